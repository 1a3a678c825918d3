//! `[store]` and `--etcd`, as users meet them.

use highgate_etcd::url::Login;
use tempfile::TempDir;

use super::*;
use crate::config::Config;
use crate::config::tests::{ROUTE, full_example, parse, refusal, to_upstream, with};

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nAA==\n-----END EC PRIVATE KEY-----\n";

/// A config whose store has these lines; the first is line 2.
fn of_store(lines: &str) -> String {
    format!("[store]\n{lines}\n{ROUTE}")
}

fn etcd_of(config: Config) -> Etcd {
    match config.store {
        Store::Etcd(etcd) => etcd,
        Store::Embedded { .. } => panic!("the marks are in etcd"),
    }
}

/// What is refused in a store of kind etcd with these lines; the first is line 3.
fn etcd_refusal(lines: &str) -> String {
    refusal(&of_store(&format!("kind = 'etcd'\n{lines}")))
}

/// A folder with a certificate, its key and a password.
fn files() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("etcd-ca.pem", CERTIFICATE),
        ("etcd-client.pem", CERTIFICATE),
        ("etcd-client-key.pem", KEY),
        ("etcd-password", "s3cret pass\n"),
        ("admin-token", "admin\n"),
        ("elections-token", "jobs\n"),
        ("secrets", "ci s3cret\n"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn in_folder(folder: &TempDir, text: &str) -> String {
    text.replace("/etc/highgate", &folder.path().display().to_string())
}

fn with_etcd(urls: &[&str]) -> Overrides {
    Overrides { etcd: Some(urls.iter().map(|url| (*url).to_owned()).collect()), ..to_upstream("http://u") }
}

#[test]
fn endpoints_alone_make_an_etcd_store_with_the_documented_defaults() {
    let config = parse(&of_store("kind = 'etcd'\nendpoints = ['http://h1:2379', 'h2:2379']")).unwrap();
    let etcd = etcd_of(config);
    assert_eq!(etcd.url.endpoints, ["h1:2379", "h2:2379"]);
    assert_eq!(etcd.url.prefix, "/highgate/default");
    assert!(etcd.url.login.is_none() && etcd.url.tls.is_none());
    assert_eq!((etcd.path, etcd.validity), (PathBuf::from("./highgate-data"), Duration::from_secs(4)));
    assert_eq!(etcd.compact, Some(Duration::from_secs(3600)));
}

#[test]
fn the_example_is_a_whole_etcd_store_when_its_kind_says_so() {
    let folder = files();
    let example = in_folder(&folder, &full_example()).replace("kind = \"embedded\"", "kind = \"etcd\"");
    let (_, store) = example.split_once("\n[store]\n").expect("the table is there");
    let (store, _) = store.split_once("\n[log]\n").expect("the next one is there");
    let etcd = etcd_of(parse(&of_store(store)).unwrap_or_else(|error| panic!("{error}")));
    assert_eq!(etcd.url.endpoints.len(), 3);
    let tls = etcd.url.tls.as_ref().unwrap();
    assert_eq!(tls.ca, CERTIFICATE.as_bytes());
    assert_eq!(tls.identity, Some((CERTIFICATE.as_bytes().to_vec(), KEY.as_bytes().to_vec())));
    let login = Login { user: "highgate".to_owned(), password: "s3cret pass".to_owned() };
    assert!(etcd.url.login.as_ref() == Some(&login), "the password is the line of its file");
    let plain = etcd_of(parse(&of_store("kind = 'etcd'\nendpoints = ['h:1']")).unwrap());
    assert_eq!((&etcd.url.prefix, etcd.validity), (&plain.url.prefix, plain.validity), "shown as by default");
    assert_eq!(etcd.compact, plain.compact, "shown as by default");
    assert!(!format!("{etcd:?}").contains("s3cret"), "the password is never printed");
}

#[test]
fn keys_of_the_etcd_store_are_refused_beside_the_embedded_one() {
    for kind in ["", "kind = 'embedded'"] {
        let message = refusal(&of_store(&format!(
            "{kind}\nendpoints = ['h:1']\nprefix = '/p'\nuser = {{ name = 'a' }}\ntls = {{}}\nvalidity = '4s'\ncompact = 'off'"
        )));
        let keys: Vec<_> = message.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
        let etcd_only =
            ["store.endpoints", "store.prefix", "store.user", "store.tls", "store.validity", "store.compact"]
                .to_vec();
        assert_eq!(keys, etcd_only, "{message}");
        let says = "belongs to the etcd store, and this store is embedded; allowed: with kind = \"etcd\", ";
        assert!(message.lines().all(|line| line.contains(says)), "{message}");
    }
    assert_eq!(
        refusal(&of_store("kind = 'redis'\nprefix = '/p'")),
        r#"f.toml:2:8: store.kind: unknown value "redis"; allowed: embedded, etcd"#
    );
}

#[test]
fn a_bad_value_is_reported_with_its_place_its_key_and_what_is_allowed() {
    let endpoints =
        r#"with kind = "etcd", one or more of http://host:port, all of them https:// with store.tls"#;
    let prefix = r#"with kind = "etcd", a slash and names with slashes between, such as "/highgate/default""#;
    for (lines, problem, allowed) in [
        ("", "f.toml:1:1: store.endpoints: is missing: the etcd store needs its etcd", endpoints),
        ("endpoints = []", "f.toml:3:13: store.endpoints: without an endpoint there is no etcd", endpoints),
        (
            "endpoints = ['a:1', 'http://b']",
            "f.toml:3:21: store.endpoints[1]: \"http://b\" is not a host with a port",
            endpoints,
        ),
        (
            "endpoints = ['http://a:1', 'https://b:1']",
            "f.toml:3:28: store.endpoints[1]: \"https://b:1\" and an endpoint before it mix http:// and https://",
            endpoints,
        ),
        (
            "endpoints = ['https://a:1']",
            "f.toml:3:13: store.endpoints: https:// needs store.tls with its ca: only the authority named there is trusted",
            endpoints,
        ),
        (
            "endpoints = ['a:1']\nprefix = 'p'",
            "f.toml:4:10: store.prefix: \"p\" does not begin with a slash",
            prefix,
        ),
        (
            "endpoints = ['a:1']\nprefix = '/p/'",
            "f.toml:4:10: store.prefix: \"/p/\" has a slash at its end, or two in a row",
            prefix,
        ),
        (
            "endpoints = ['a:1']\nvalidity = '999ms'",
            "f.toml:4:12: store.validity: \"999ms\" is out of range",
            r#"with kind = "etcd", from "1s" to "60s""#,
        ),
        (
            "endpoints = ['a:1']\nuser = { name = 'a' }",
            "f.toml:4:8: store.user.password_file: is missing",
            "a file with one line, the password",
        ),
        ("endpoints = 'a:1'", "f.toml:3:13: store.endpoints: wrong type: string \"a:1\"", endpoints),
        (
            "endpoints = ['a:1']\ntls = { cacert = 'x' }",
            "f.toml:4:9: store.tls.cacert: unknown key",
            "ca, cert, key",
        ),
    ] {
        assert_eq!(etcd_refusal(lines), format!("{problem}; allowed: {allowed}"));
    }
}

#[test]
fn prefixes_validities_and_histories_have_their_limits() {
    for good in ["/a", "/highgate/blue", "/a/é"] {
        assert_eq!(prefix(good.to_owned()).as_deref(), Ok(good));
    }
    for bad in ["", "/", "a/b", "/a//b", "/a b", "/a\n"] {
        assert!(prefix(bad.to_owned()).is_err(), "{bad:?}");
    }
    assert_eq!(validity("1s"), Ok(Duration::from_secs(1)));
    assert_eq!(validity("1m"), Ok(Duration::from_secs(60)));
    for bad in ["999ms", "61s", "0s", "4"] {
        assert!(validity(bad).is_err(), "{bad}");
    }
    assert_eq!(history("off"), Ok(None));
    assert_eq!(history("10s"), Ok(Some(Duration::from_secs(10))));
    for bad in ["9s", "0s", "", "on", "25h"] {
        assert!(history(bad).is_err(), "{bad}");
    }
}

#[test]
fn tls_and_the_scheme_of_the_endpoints_have_to_agree() {
    let folder = files();
    let store = |scheme: &str, tls: &str| {
        let lines = format!("kind = 'etcd'\nendpoints = ['{scheme}a:1']\ntls = {{ {tls} }}");
        parse(&in_folder(&folder, &of_store(&lines))).map(etcd_of).map_err(|error| error.to_string())
    };
    let ca = "ca = '/etc/highgate/etcd-ca.pem'";
    assert!(store("https://", ca).unwrap().url.tls.is_some_and(|tls| tls.identity.is_none()));
    assert!(store("", ca).unwrap().url.tls.is_some(), "without a scheme it is TLS's word that counts");
    let plain = store("http://", ca).unwrap_err();
    assert!(
        plain.starts_with(
            "f.toml:4:7: store.tls: the endpoints are http:// ones, so nothing would be encrypted"
        ),
        "{plain}"
    );
    let half = store("https://", &format!("{ca}, cert = '/etc/highgate/etcd-client.pem'")).unwrap_err();
    assert!(half.contains("store.tls.key: is missing: cert and key come together; allowed: "), "{half}");
    let half = store("https://", &format!("{ca}, key = '/etc/highgate/etcd-client-key.pem'")).unwrap_err();
    assert!(half.contains("store.tls.cert: is missing: cert and key come together; allowed: "), "{half}");
    let none = store("https://", "").unwrap_err();
    assert!(
        none.starts_with("f.toml:4:7: store.tls.ca: is missing: only the authority named here is trusted; "),
        "{none}"
    );
}

#[test]
fn files_that_do_not_hold_what_they_should_are_named() {
    let folder = files();
    let refuse = |lines: &str| {
        etcd_refusal(&in_folder(&folder, &format!("endpoints = ['a:1']\n{lines}")))
            .replace(&folder.path().display().to_string(), "/etc/highgate")
    };
    let swapped = refuse("tls = { ca = '/etc/highgate/etcd-client-key.pem' }");
    assert_eq!(
        swapped,
        "f.toml:4:14: store.tls.ca: /etc/highgate/etcd-client-key.pem holds no certificate in PEM; allowed: a PEM file with the certificates of who may have signed etcd's"
    );
    let absent = refuse("tls = { ca = '/etc/highgate/none.pem' }");
    assert!(absent.contains("store.tls.ca: /etc/highgate/none.pem cannot be read: No such file"), "{absent}");
    for bad in ["", "\n", "a\nb\n"] {
        std::fs::write(folder.path().join("etcd-password"), bad).unwrap();
        let user = refuse("user = { name = 'a', password_file = '/etc/highgate/etcd-password' }");
        assert!(
            user.contains("store.user.password_file: /etc/highgate/etcd-password does not hold one line")
        );
    }
}

#[test]
fn the_flag_stands_over_kind_and_endpoints_and_keeps_the_rest() {
    let text =
        "[store]\nkind = 'embedded'\npath = 'a'\nprefix = '/p'\nvalidity = '2s'\nendpoints = ['h:1']\n";
    let flags = with_etcd(&["http://127.0.0.1:2379", "http://127.0.0.1:2381"]);
    let etcd = etcd_of(Config::parse(text, Path::new("f.toml"), &flags).unwrap());
    assert_eq!(etcd.url.endpoints, ["127.0.0.1:2379", "127.0.0.1:2381"]);
    assert_eq!((etcd.url.prefix.as_str(), etcd.validity), ("/p", Duration::from_secs(2)));
    assert_eq!(etcd.path, PathBuf::from("a"));
    let flags = Overrides { data_dir: Some("b".into()), ..flags };
    assert_eq!(etcd_of(Config::parse(text, Path::new("f.toml"), &flags).unwrap()).path, PathBuf::from("b"));
    let bad = text.replace("h:1", "h");
    let message = Config::parse(&bad, Path::new("f.toml"), &flags).unwrap_err().to_string();
    assert!(message.starts_with("f.toml:6:14: store.endpoints[0]: \"h\" is not a host"), "{message}");
    assert_eq!(etcd_of(with(flags).unwrap()).url.prefix, "/highgate/default", "without a file");
}

#[test]
fn problems_of_the_flag_name_it_and_its_variable() {
    for (urls, problem) in [
        (["http://a:1", "b"], "\"b\" is not a host with a port"),
        (["http://a:1", "https://b:1"], "\"https://b:1\" and an endpoint before it mix http:// and https://"),
        (
            ["https://a:1", "b:1"],
            "https:// needs store.tls with its ca: only the authority named there is trusted",
        ),
        (["me:s3cret@a:1", "b:1"], "an endpoint holds no user name and no password; store.user does"),
    ] {
        let message = with(with_etcd(&urls)).unwrap_err().to_string();
        let allowed =
            "one or more of http://host:port with commas between, all of them https:// with store.tls";
        assert_eq!(message, format!("--etcd: {problem} (or in HIGHGATE_ETCD); allowed: {allowed}"));
    }
}

#[test]
fn every_key_of_the_store_needs_a_restart_when_it_changes() {
    let folder = files();
    let store = |lines: &str| {
        let text = of_store(&format!("kind = 'etcd'\n{lines}"));
        parse(&in_folder(&folder, &text)).unwrap_or_else(|error| panic!("{error}"))
    };
    let old = store("endpoints = ['a:1']");
    for (lines, changes) in [
        ("endpoints = ['a:1']", [].as_slice()),
        ("endpoints = ['b:1']", &["store.endpoints"]),
        ("endpoints = ['a:1']\npath = 'x'\nprefix = '/p'", &["store.path", "store.prefix"]),
        ("endpoints = ['a:1']\ntls = { ca = '/etc/highgate/etcd-ca.pem' }", &["store.tls"]),
        (
            "endpoints = ['a:1']\nvalidity = '5s'\nuser = { name = 'a', password_file = '/etc/highgate/etcd-password' }",
            &["store.user", "store.validity"],
        ),
    ] {
        assert_eq!(old.needs_restart(&store(lines)), changes, "{lines}");
    }
    assert_eq!(old.needs_restart(&parse(ROUTE).unwrap()), ["store.kind"]);
}
