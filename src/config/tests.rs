//! The file and its layers, as users meet them; `error::tests` has the messages.

use std::collections::BTreeSet;

use highgate_elector::Resource;
use http::Method;
use toml::de::{DeTable, DeValue};

use super::*;

pub(super) const ROUTE: &str = "[[routes]]\nname = 'a'\nupstream = 'http://u'\n";

pub(super) fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("f.toml"), &Overrides::default())
}

/// The message of a config that is refused.
pub(super) fn refusal(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

#[test]
fn a_file_with_one_route_has_the_documented_defaults() {
    let config = parse(ROUTE).unwrap();
    assert_eq!(config.listen.address, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(config.admin, Admin { address: "127.0.0.1:9901".parse().unwrap(), auth: None, tls: None });
    assert!(config.listen.workers >= 1);
    assert_eq!(config.store, Store::Embedded { path: "./highgate-data".into() });
    let route = config.routes.iter().next().unwrap();
    assert_eq!((route.tokens, route.missing_token), (Tokens::Issued, MissingToken::Refuse));
    assert_eq!(
        route.resource,
        ResourceRule::Fixed(Resource::parse("a").unwrap()),
        "the name is the resource"
    );
    assert_eq!((route.on_unknown, route.total_timeout), (OnUnknown::Delay, None));
    for (status, unknown) in [(202, true), (408, true), (502, true), (503, true), (504, true), (500, false)] {
        assert_eq!(route.unknown_statuses.contains(status.try_into().unwrap()), unknown, "{status}");
    }
    assert_eq!(config.routes.longest_lock_delay(), Duration::from_secs(5));
    for (method, fenced) in
        [("GET", false), ("HEAD", false), ("POST", true), ("DELETE", true), ("PURGE", true), ("get", true)]
    {
        assert_eq!(
            route.fenced.contains(&Method::from_bytes(method.as_bytes()).unwrap()),
            fenced,
            "{method}"
        );
    }
}

#[test]
fn every_key_of_the_product_is_understood() {
    let config = parse(
        r#"
        [[routes]]
        name     = "ledger"
        match    = { host = "ledger.internal", path = "/accounts/{account}/{*rest}", methods = ["PUT"] }
        upstream = "http://127.0.0.1:9000/api"
        resource = "ledger/{account}"
        fenced_methods = []
        tokens   = "trusted"
        missing_token = "audit"
        drain_timeout = "0s"
        hold_timeout  = "250ms"
        lock_delay    = "0s"
        on_unknown    = "proceed"
        unknown_statuses = [500, 599, 100]
        total_timeout = "2m"
        "#,
    )
    .unwrap();
    let route = config.routes.iter().next().unwrap();
    assert_eq!(route.matcher.to_string(), "PUT ledger.internal/accounts/{account}/{*rest}");
    assert_eq!((route.tokens, route.missing_token), (Tokens::Trusted, MissingToken::Audit));
    assert_eq!((route.drain_timeout, route.hold_timeout), (Duration::ZERO, Duration::from_millis(250)));
    assert_eq!((route.lock_delay, route.total_timeout), (Duration::ZERO, Some(Duration::from_secs(120))));
    let unknown = |status: u16| route.unknown_statuses.contains(status.try_into().unwrap());
    assert!(unknown(500) && unknown(599) && !unknown(504), "a list stands in the place of the usual one");
    assert!(!route.fenced.contains(&Method::POST));
    let reasons = "not fenced (fenced_methods = [], missing_token = audit, on_unknown = proceed, \
                   unknown_statuses without 202, 408, 502, 503, 504)";
    assert_eq!(route.grade(), reasons, "every reason, not only the first");
}

#[test]
fn a_grade_names_every_reason_against_it() {
    for (lines, grade) in [
        ("", "gated"),
        ("missing_token = 'allow'", "not gated (missing_token = allow)"),
        (
            "on_unknown = 'proceed'\nmissing_token = 'audit'",
            "not gated (missing_token = audit, on_unknown = proceed)",
        ),
        ("fenced_methods = []", "not fenced (fenced_methods = [])"),
        ("unknown_statuses = []", "not gated (unknown_statuses without 202, 408, 502, 503, 504)"),
        ("unknown_statuses = [202, 408, 502, 504]", "not gated (unknown_statuses without 503)"),
        ("unknown_statuses = [500, 504, 503, 502, 408, 202]", "gated"),
    ] {
        let config = parse(&format!("{ROUTE}{lines}")).unwrap();
        assert_eq!(config.routes.iter().next().unwrap().grade(), grade);
    }
}

#[test]
fn routes_that_get_in_each_others_way_are_refused() {
    let pair = |first: &str, second: &str| {
        let route =
            |name: &str, rest: &str| format!("[[routes]]\nname = '{name}'\nupstream = 'http://u'\n{rest}\n");
        parse(&(route("a", first) + &route("b", second))).map_err(|error| error.to_string())
    };
    let same = pair("match = { path = '/x/{a}' }", "match = { path = '/x/{b}/' }").unwrap_err();
    assert!(
        same.starts_with("f.toml:5:1: routes[1].match: routes[0] (a) has the same match; allowed: "),
        "{same}"
    );
    let hidden = pair("", "match = { host = 'h', methods = ['PUT'] }").unwrap_err();
    assert!(hidden.contains("routes[1].match: can never match: routes[0] (a) takes all of it"), "{hidden}");
    assert!(
        pair("match = { methods = ['PUT', 'GET'] }", "match = { methods = ['GET'], path = '/a' }").is_err()
    );
    assert!(pair("match = { host = '*.h' }", "match = { host = 'a.h' }").is_err());
    assert!(pair("match = { methods = ['PUT'] }", "").is_ok());
    assert!(pair("match = { host = 'h' }", "").is_ok());
    assert!(pair("match = { path = '/a/{b}' }", "match = { path = '/a/{*b}' }").is_ok());
    let twice = refusal(&format!("{ROUTE}match.path = '/a'\n{ROUTE}"));
    assert!(
        twice.starts_with(r#"f.toml:6:8: routes[1].name: "a" is the name of routes[0]; allowed: "#),
        "{twice}"
    );
}

#[test]
fn the_token_header_cannot_be_one_with_another_meaning() {
    let header = |name: &str| {
        parse(&format!("[listen]\ntoken_header = '{name}'\n{ROUTE}")).map(|config| config.listen.token_header)
    };
    assert_eq!(header("X-Leader-Epoch").unwrap(), "x-leader-epoch");
    for name in
        ["", "a b", "Host", "connection", "X-Fencing-Resource", "X_Fencing_Resource", "Content_Length"]
    {
        assert!(header(name).is_err(), "{name:?}");
    }
}

#[test]
fn the_two_ports_have_to_differ() {
    let message = refusal(&format!("[admin]\naddress = '0.0.0.0:8080'\ninsecure = true\n{ROUTE}"));
    assert!(
        message.starts_with("f.toml:2:11: admin.address: the admin port 0.0.0.0:8080 and the data port"),
        "{message}"
    );
    assert!(
        parse(&format!("[listen]\naddress = '127.0.0.1:0'\n[admin]\naddress = '127.0.0.1:0'\n{ROUTE}"))
            .is_ok()
    );
}

#[test]
fn jobs_have_a_port_where_the_file_or_a_flag_says_so() {
    assert_eq!(parse(ROUTE).unwrap().elections, None);
    let port = |address: &str| Some(Elections { address: address.parse().unwrap(), auth: None, tls: None });
    assert_eq!(parse(&format!("[elections]\n{ROUTE}")).unwrap().elections, port("127.0.0.1:9902"));
    let overrides = Overrides { elections: "127.0.0.1:7".parse().ok(), ..Overrides::default() };
    let flagged = Config::parse(ROUTE, Path::new("f.toml"), &overrides).unwrap();
    assert_eq!(flagged.elections, port("127.0.0.1:7"));
    let none = parse(ROUTE).unwrap();
    assert_eq!(none.needs_restart(&flagged), ["elections"]);
    let other = parse(&format!("[elections]\n{ROUTE}")).unwrap();
    assert_eq!(other.needs_restart(&flagged), ["elections.address"]);
    for (port, name) in [(8080, "data"), (9901, "admin")] {
        let message = refusal(&format!("[elections]\naddress = '127.0.0.1:{port}'\n{ROUTE}"));
        let expected = format!(
            "f.toml:2:11: elections.address: the elections port 127.0.0.1:{port} and the {name} port"
        );
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn the_secret_of_the_jobs_is_never_the_operators() {
    let folder = tempfile::tempdir().unwrap();
    let (operators, jobs) = (folder.path().join("operators"), folder.path().join("jobs"));
    let table =
        |name: &str, file: &Path| format!("[{name}]\nauth = {{ bearer_file = '{}' }}\n", file.display());
    let text = table("admin", &operators) + &table("elections", &jobs) + ROUTE;
    std::fs::write(&operators, "s3cret\n").unwrap();
    std::fs::write(&jobs, "s3cret\n").unwrap();
    let message = refusal(&text);
    assert!(
        message.starts_with("f.toml:4:8: elections.auth.bearer_file: it holds the secret of"),
        "{message}"
    );
    std::fs::write(&jobs, "another\n").unwrap();
    let config = parse(&text).unwrap();
    assert!(config.elections.unwrap().auth.unwrap().accepts(b"another"));
    assert!(config.admin.auth.unwrap().accepts(b"s3cret"));
}

#[test]
fn the_admin_secret_is_read_from_its_file_and_never_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let text = format!("[admin]\nauth = {{ bearer_file = '{}' }}\n{ROUTE}", file.display());
    assert!(
        refusal(&text).contains("f.toml:2:24: admin.auth.bearer_file: ")
            && refusal(&text).contains("cannot be read")
    );
    for bad in ["", "\n", "a b\n", "a\nb\n", "é"] {
        std::fs::write(&file, bad).unwrap();
        assert!(refusal(&text).contains("does not hold a bearer token"), "{bad:?}");
    }
    std::fs::write(&file, "s3cret\n").unwrap();
    let auth = parse(&text).unwrap().admin.auth.unwrap();
    assert!(auth.accepts(b"s3cret"));
    for wrong in ["", "s3cre", "s3cret\n", "s3crets", "S3cret"] {
        assert!(!auth.accepts(wrong.as_bytes()), "{wrong:?}");
    }
    assert!(!format!("{auth:?}").contains("s3cret"));
    assert!(
        refusal(&format!("[admin]\nauth = {{}}\n{ROUTE}"))
            .starts_with("f.toml:2:8: admin.auth.bearer_file: is missing")
    );
}

pub(super) fn with(overrides: Overrides) -> Result<Config, ConfigError> {
    Config::load(&LoadInput { file: None, overrides })
}

pub(super) fn to_upstream(url: &str) -> Overrides {
    Overrides { upstream: Some(url.to_owned()), ..Overrides::default() }
}

#[test]
fn an_upstream_alone_makes_a_gateway_that_trusts_any_token() {
    let config = with(to_upstream("http://127.0.0.1:9000")).unwrap();
    let route = config.routes.iter().next().unwrap();
    assert_eq!((&*route.name, route.matcher.to_string()), ("default", "/".to_owned()));
    assert_eq!(route.tokens, Tokens::Trusted);
    assert_eq!(route.resource, ResourceRule::Client { default: Some(Resource::parse("default").unwrap()) });
    let issued = with(Overrides { tokens: Some(Tokens::Issued), ..to_upstream("http://u") }).unwrap();
    assert_eq!(issued.routes.iter().next().unwrap().tokens, Tokens::Issued);
}

#[test]
fn with_nothing_to_serve_the_message_says_what_to_do() {
    let message = with(Overrides::default()).unwrap_err().to_string();
    assert_eq!(
        message,
        "--upstream: there is nothing to serve: neither a config file nor an upstream is given; allowed: --upstream http://host:port for one route, or --config FILE with [[routes]]"
    );
    assert!(
        refusal("[log]\n").starts_with("f.toml:1:1: routes: the file has no routes; allowed: one or more")
    );
    let message = with(to_upstream("ftp://u")).unwrap_err().to_string();
    assert_eq!(
        message,
        "--upstream: the scheme \"ftp\" is unknown; allowed: http://host[:port][/base], or the same with https://"
    );
}

#[test]
fn flags_stand_over_the_file() {
    let text = "[listen]\naddress = '127.0.0.1:1'\n[log]\nlevel = 'debug'\n[store]\npath = 'a'\n";
    let overrides = Overrides {
        listen: Some("127.0.0.1:2".parse().unwrap()),
        data_dir: Some("b".into()),
        log_format: Some(LogFormat::Json),
        ..to_upstream("http://u")
    };
    let config = Config::parse(text, Path::new("f.toml"), &overrides).unwrap();
    assert_eq!(config.listen.address.port(), 2);
    assert_eq!(config.store, Store::Embedded { path: "b".into() });
    assert_eq!((config.log.format, config.log.level.as_str()), (LogFormat::Json, "debug"));
    assert_eq!(config.routes.iter().next().unwrap().tokens, Tokens::Issued, "a file's default");
    let error = Config::parse(ROUTE, Path::new("f.toml"), &overrides).unwrap_err().to_string();
    assert!(error.starts_with("--upstream: the config file has [[routes]]"), "{error}");
    let trusted = Overrides { tokens: Some(Tokens::Trusted), ..Overrides::default() };
    let config = Config::parse(ROUTE, Path::new("f.toml"), &trusted).unwrap();
    assert_eq!(config.routes.iter().next().unwrap().tokens, Tokens::Trusted);
    let loud = Overrides { log_level: Some("loud".into()), ..Overrides::default() };
    let error = Config::parse(ROUTE, Path::new("f.toml"), &loud).unwrap_err().to_string();
    assert!(error.starts_with("--log-level: unknown value \"loud\""), "{error}");
}

#[test]
fn the_overrides_are_flags_of_a_command() {
    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        overrides: Overrides,
    }
    let parse = |flags: &[&str]| <Command as clap::Parser>::try_parse_from([&["serve"], flags].concat());
    let flags = ["--tokens", "issued", "--log-format", "json", "--data-dir", "d", "--admin", "127.0.0.1:1"];
    let overrides = parse(&flags).ok().unwrap().overrides;
    assert_eq!((overrides.tokens, overrides.log_format), (Some(Tokens::Issued), Some(LogFormat::Json)));
    assert_eq!((overrides.data_dir, overrides.admin), (Some("d".into()), "127.0.0.1:1".parse().ok()));
    let etcd = parse(&["--etcd", "http://a:1,http://b:1"]).ok().unwrap().overrides.etcd;
    assert_eq!(etcd, Some(vec!["http://a:1".to_owned(), "http://b:1".to_owned()]));
    for flag in ["--listen", "--admin", "--elections"] {
        for address in [":7", "localhost:7"] {
            let overrides = parse(&[flag, address]).ok().unwrap().overrides;
            let given = overrides.listen.or(overrides.admin).or(overrides.elections);
            assert_eq!(given, "127.0.0.1:7".parse().ok(), "{flag} {address}");
        }
    }
    let error = parse(&["--listen", "example.org:80"]).err().unwrap().to_string();
    assert!(error.contains("\"example.org:80\" is not an address and a port"), "{error}");
    let error = parse(&["--tokens", "any"]).err().unwrap().to_string();
    assert!(error.contains("is not one of issued, trusted, signed"), "{error}");
}

#[test]
fn only_changes_outside_the_routes_the_grants_and_the_log_need_a_restart() {
    let old = parse(ROUTE).unwrap();
    let routes = parse(&format!("{ROUTE}tokens = 'trusted'")).unwrap();
    assert_eq!(old.needs_restart(&routes), Vec::<&str>::new());
    let grant = "[[grants]]\nwho = ['cn:x']\nmay = ['write']\nresources = ['*']\n";
    assert_eq!(old.needs_restart(&parse(&format!("{grant}{ROUTE}")).unwrap()), Vec::<&str>::new());
    let log = parse(&format!("[log]\nformat = 'json'\naccess = 'off'\nlevel = 'warn'\n{ROUTE}")).unwrap();
    assert_eq!(old.needs_restart(&log), Vec::<&str>::new());
    let new = parse(&format!(
        "[listen]\nidle_timeout = '1s'\n[store]\npath = 'x'\n[metrics]\nmax_resources = 1\n{ROUTE}"
    ));
    assert_eq!(
        old.needs_restart(&new.unwrap()),
        ["listen.idle_timeout", "store.path", "metrics.max_resources"]
    );
}

/// The example with the settings that are off turned on.
pub(super) fn full_example() -> String {
    let on = |line: &str| match line.strip_prefix('#') {
        Some(setting) if setting.starts_with(|first: char| first.is_ascii_lowercase() || first == '[') => {
            setting.to_owned()
        }
        _ => line.to_owned(),
    };
    example().lines().map(on).collect::<Vec<_>>().join("\n")
}

fn example() -> &'static str {
    include_str!("../../config/highgate.example.toml")
}

fn list_keys(value: &DeValue<'_>, path: &str, found: &mut BTreeSet<String>) {
    match value {
        DeValue::Table(table) => {
            for (key, value) in table {
                let path = format!("{path}.{}", key.get_ref()).trim_start_matches('.').to_owned();
                list_keys(value.get_ref(), &path, found);
                found.insert(path);
            }
        }
        DeValue::Array(items) => items.iter().for_each(|item| list_keys(item.get_ref(), path, found)),
        _ => {}
    }
}

#[test]
fn the_example_has_every_key_with_its_default() {
    let config = parse(example()).unwrap_or_else(|error| panic!("{error}"));
    let text = full_example();
    let mut found = BTreeSet::new();
    list_keys(&DeValue::Table(DeTable::parse(&text).unwrap().into_inner()), "", &mut found);
    let known: BTreeSet<_> = keys::KEYS.iter().map(|(key, _)| key.to_string()).collect();
    assert_eq!(found, known);

    let defaults = parse(ROUTE).unwrap();
    assert_eq!(config.needs_restart(&defaults), Vec::<&str>::new());
    assert_eq!((&config.log, config.max_resources), (&defaults.log, defaults.max_resources));
    let (shown, default) = (config.routes.iter().next().unwrap(), defaults.routes.iter().next().unwrap());
    let base = Route {
        name: shown.name.clone(),
        matcher: shown.matcher.clone(),
        upstream: shown.upstream.clone(),
        resource: shown.resource.clone(),
        ..Route::clone(default)
    };
    assert_eq!(**shown, base);
}

#[test]
fn the_key_table_and_the_file_format_agree() {
    for table in [
        "",
        "listen",
        "listen.proxy_protocol",
        "listen.tls",
        "admin",
        "admin.auth",
        "admin.tls",
        "elections",
        "elections.auth",
        "elections.tls",
        "store",
        "store.tls",
        "store.user",
        "log",
        "shutdown",
        "metrics",
        "secrets",
        "grants",
        "routes",
        "routes.upstream_tls",
        "routes.match",
        "routes.resource",
    ] {
        let text = match table.split_once('.') {
            Some(("routes", inner)) => format!("[[routes]]\n{inner} = {{ zzz = 1 }}"),
            None if matches!(table, "routes" | "grants") => format!("[[{table}]]\nzzz = 1"),
            None if table.is_empty() => "zzz = 1".to_owned(),
            _ => format!("[{table}]\nzzz = 1"),
        };
        let error = toml::from_str::<raw::Raw>(&text).unwrap_err();
        let fields: Vec<_> = error.message().split('`').skip(3).step_by(2).collect();
        assert_eq!(
            fields.join(", "),
            keys::siblings(format!("{table}.zzz").trim_start_matches('.')),
            "{table}"
        );
    }
}

#[test]
fn the_development_config_is_a_valid_trusted_one() {
    let config = parse(include_str!("../../config/dev.toml")).unwrap_or_else(|error| panic!("{error}"));
    assert!(config.routes.iter().all(|route| route.tokens == Tokens::Trusted));
}
