//! Every way a head can be read, and the promise that a second spelling is the same resource or refused.

use std::path::Path;

use http::{HeaderValue, Request, Version};
use proptest::prelude::*;

use super::*;
use crate::config::{Config, Overrides};

const ROUTES: &str = r#"
    [[routes]]
    name = "ledger"
    match = { host = "ledger.internal", path = "/accounts/{account}/{*rest}" }
    upstream = "http://u"
    resource = "ledger/{account}"

    [[routes]]
    name = "search"
    match = { host = "ledger.internal", path = "/search", methods = ["POST"] }
    upstream = "http://u"
    fenced_methods = ["GET"]

    [[routes]]
    name = "by-host"
    match = { path = "/by-host" }
    upstream = "http://u"
    resource = "{host}/x"

    [[routes]]
    name = "allow"
    match = { path = "/allow" }
    upstream = "http://u"
    missing_token = "allow"

    [[routes]]
    name = "audit"
    match = { path = "/audit" }
    upstream = "http://u"
    missing_token = "audit"

    [[routes]]
    name = "live"
    match = { path = "/live" }
    upstream = "http://u"
    upgrades = ["websocket"]

    [[routes]]
    name = "named"
    match = { path = "/named" }
    upstream = "http://u"
    resource = { client = true }

    [[routes]]
    name = "defaulted"
    match = { host = "*.jobs.internal" }
    upstream = "http://u"
    resource = { client = true, default = "jobs" }
"#;

fn table() -> RouteTable {
    RouteTable::of(Config::parse(ROUTES, Path::new("f.toml"), &Overrides::default()).unwrap().routes)
}

/// A request's head: `METHOD uri`, and headers.
fn head(line: &str, headers: &[(&str, &str)]) -> Parts {
    let (method, uri) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    request.body(()).unwrap().into_parts().0
}

fn claim_of(line: &str, headers: &[(&str, &str)]) -> Result<Claim, Unclaimed> {
    claim(&head(line, headers), &table(), &HeaderName::from_static(headers::TOKEN))
}

/// The same with the ledger's host.
fn at_ledger(line: &str, headers: &[(&str, &str)]) -> Result<Claim, Unclaimed> {
    claim_of(line, &[&[("host", "ledger.internal")], headers].concat())
}

fn fenced(resource: &str, token: u64) -> Stand {
    Stand::Fenced { resource: Resource::parse(resource).unwrap(), token: Token::new(token).unwrap() }
}

fn why(result: Result<Claim, Unclaimed>) -> ClaimError {
    result.unwrap_err().why
}

const TOKEN: (&str, &str) = ("X-Fencing-Token", "7");

#[test]
fn a_fenced_request_claims_its_resource_with_its_token() {
    let claim = at_ledger("POST /accounts/ACCT%2D7/transfer?x=//..;", &[TOKEN]).unwrap();
    assert_eq!((&*claim.route.name, claim.stand), ("ledger", fenced("ledger/acct-7", 7)));
}

#[test]
fn which_methods_are_fenced_is_up_to_the_route() {
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        assert_eq!(at_ledger(&format!("{method} /accounts/7"), &[]).unwrap().stand, Stand::Unfenced);
    }
    for method in ["POST", "PUT", "PATCH", "DELETE", "PURGE"] {
        assert_eq!(why(at_ledger(&format!("{method} /accounts/7"), &[])), ClaimError::Missing, "{method}");
    }
    assert_eq!(at_ledger("POST /search", &[]).unwrap().stand, Stand::Unfenced, "a POST can be a read");
    assert_eq!(why(at_ledger("GET /search", &[])), ClaimError::NoRoute, "the route is for POST");
}

#[test]
fn a_method_in_another_case_is_refused_whether_it_would_be_fenced_or_not() {
    for method in ["post", "pOST", "Post", "get", "hEAD", "delete", "purge", "connect", "m-search"] {
        for line in ["/accounts/7", "/search", "/elsewhere"] {
            let error = why(at_ledger(&format!("{method} {line}"), &[TOKEN]));
            assert!(
                matches!(error, ClaimError::Malformed(Malformed::LowerCase(_))),
                "{method} {line}: {error}"
            );
        }
    }
    assert!(at_ledger("M-SEARCH /accounts/7", &[TOKEN]).is_ok(), "a method nobody has heard of");
}

#[test]
fn a_request_that_an_upstream_may_read_as_another_is_refused() {
    for name in ["x-http-method-override", "X_HTTP_Method_Override", "X-HTTP-Method", "x-method-override"] {
        for line in ["GET /accounts/7", "POST /search"] {
            let error = why(at_ledger(line, &[(name, "DELETE")]));
            assert!(matches!(error, ClaimError::Malformed(Malformed::Override(_))), "{name}: {error}");
        }
    }
    for name in ["x-original-url", "x-rewrite-url"] {
        let error = why(at_ledger("GET /public", &[(name, "/accounts/7")]));
        assert!(matches!(error, ClaimError::Malformed(Malformed::Override(_))), "{name}: {error}");
    }
}

#[test]
fn only_one_plain_decimal_is_a_token() {
    for value in
        ["0", "-1", "+1", "7 8", "7,8", "0x7", "1e3", "9223372036854775808", "18446744073709551617", "", "٧"]
    {
        let refused = at_ledger("POST /accounts/7", &[("x-fencing-token", value)]).unwrap_err();
        assert!(
            matches!(refused.why, ClaimError::Malformed(Malformed::Token(_))),
            "{value:?}: {}",
            refused.why
        );
        assert_eq!(refused.resource.unwrap().as_str(), "ledger/7");
        assert_eq!(&*refused.route.unwrap().name, "ledger");
        assert!(!refused.why.closes_connection());
        assert_eq!(
            at_ledger("GET /accounts/7", &[("x-fencing-token", value)]).unwrap().stand,
            Stand::Unfenced
        );
    }
    assert_eq!(why(at_ledger("POST /accounts/7", &[TOKEN, TOKEN])), Malformed::DuplicateToken.into());
}

#[test]
fn a_missing_token_is_what_the_route_says() {
    let refused = at_ledger("POST /accounts/7", &[]).unwrap_err();
    assert_eq!((refused.why, refused.resource.unwrap().as_str()), (ClaimError::Missing, "ledger/7"));
    for (path, waiver) in [("allow", Waiver::Allowed), ("audit", Waiver::Audited)] {
        let resource = Resource::parse(path).unwrap();
        assert_eq!(
            claim_of(&format!("POST http://h/{path}"), &[]).unwrap().stand,
            Stand::Unchecked { resource, waiver }
        );
        let empty = claim_of(&format!("POST http://h/{path}"), &[("x-fencing-token", "")]);
        assert_eq!(
            why(empty),
            Malformed::Token(TokenError::Empty).into(),
            "an empty token is not a missing one"
        );
    }
}

#[test]
fn an_alias_of_a_fencing_header_is_refused_on_every_request() {
    for name in
        ["X_Fencing_Token", "x-fencing_token", "X_FENCING-TOKEN", "x_fencing_resource", "x-fencing_resource"]
    {
        for line in ["POST /accounts/7", "GET /accounts/7", "GET /nowhere"] {
            let refused = why(at_ledger(line, &[TOKEN, (name, "7")]));
            assert!(
                matches!(refused, ClaimError::Malformed(Malformed::Alias(_))),
                "{name} on {line}: {refused}"
            );
        }
    }
    assert!(at_ledger("POST /accounts/7", &[TOKEN, ("X-Fencing-Tokens", "7"), ("x_other", "7")]).is_ok());
}

#[test]
fn the_alias_rule_follows_a_configured_name() {
    let token_header = HeaderName::from_static("leader_epoch");
    let claim_with = |name: &str| {
        claim(&head("POST /accounts/7", &[("host", "ledger.internal"), (name, "7")]), &table(), &token_header)
    };
    assert_eq!(claim_with("Leader_Epoch").unwrap().stand, fenced("ledger/7", 7));
    assert!(matches!(why(claim_with("leader-epoch")), ClaimError::Malformed(Malformed::Alias(_))));
    assert_eq!(why(claim_with("x-fencing-token")), ClaimError::Missing);
}

#[test]
fn a_fencing_header_named_in_connection_is_refused_and_closes() {
    for value in [
        "X-Fencing-Token",
        "close, x-fencing-token",
        "keep-alive ,\tX-FENCING-TOKEN ,",
        "x_fencing_token",
        "X-Fencing-Resource",
    ] {
        for line in ["POST /accounts/7", "GET /accounts/7", "GET /nowhere"] {
            let refused = why(at_ledger(line, &[TOKEN, ("connection", "close"), ("connection", value)]));
            assert_eq!(refused, Malformed::HopByHop.into(), "{value:?} on {line}");
            assert!(refused.closes_connection());
        }
    }
    assert!(at_ledger("POST /accounts/7", &[TOKEN, ("connection", "close, x-other")]).is_ok());
}

#[test]
fn a_path_with_two_readings_is_refused_even_where_nothing_is_fenced() {
    for (path, error) in [
        ("//accounts/7", PathError::EmptySegment),
        ("/accounts//7", PathError::EmptySegment),
        ("/x/../accounts/7", PathError::DotSegment),
        ("/x/%2e%2e/accounts/7", PathError::DotSegment),
        ("/accounts%2F7", PathError::EncodedSlash),
        ("/accounts%5c7", PathError::Backslash),
        ("/accounts;v=1/7", PathError::Semicolon),
        ("/accounts/7%3b", PathError::Semicolon),
        ("/accounts/%00", PathError::Control),
        ("/accounts/%7", PathError::BadEscape),
        ("/accounts/%ff", PathError::NotUtf8),
        ("/accounts/cafe%CC%81", PathError::NotNormal),
    ] {
        for method in ["POST", "GET", "OPTIONS"] {
            assert_eq!(
                why(at_ledger(&format!("{method} {path}"), &[TOKEN])),
                Malformed::Path(error).into(),
                "{path}"
            );
        }
    }
}

#[test]
fn what_no_route_matches_is_not_claimed() {
    for line in ["GET /", "GET /Accounts/7", "GET /accounts", "POST /allow/x", "OPTIONS *"] {
        let refused = at_ledger(line, &[]).unwrap_err();
        assert_eq!((refused.why, refused.route), (ClaimError::NoRoute, None), "{line}");
    }
    assert_eq!(why(claim_of("CONNECT ledger.internal:443", &[TOKEN])), ClaimError::NoRoute);
}

#[test]
fn the_host_decides_in_one_spelling() {
    for host in ["ledger.internal", "LEDGER.Internal", "ledger.internal:8080", "ledger.internal."] {
        let claim = claim_of("PUT /accounts/7", &[TOKEN, ("host", host)]).unwrap();
        assert_eq!(claim.stand, fenced("ledger/7", 7), "{host}");
        assert_eq!(
            claim_of("PUT /by-host", &[TOKEN, ("host", host)]).unwrap().stand,
            fenced("ledger.internal/x", 7)
        );
    }
    assert_eq!(why(claim_of("PUT /accounts/7", &[TOKEN, ("host", "other")])), ClaimError::NoRoute);
    let absolute = claim_of("PUT http://ledger.internal:80/accounts/7", &[TOKEN, ("host", "other")]).unwrap();
    assert_eq!(absolute.stand, fenced("ledger/7", 7), "the absolute form wins");
    assert_eq!(claim_of("PUT http://a.jobs.internal", &[TOKEN]).unwrap().stand, fenced("jobs", 7));
}

#[test]
fn a_request_has_exactly_one_good_host() {
    let host = |error: HostError| ClaimError::from(Malformed::Host(error));
    assert_eq!(why(claim_of("PUT /allow", &[])), host(HostError::Missing));
    assert_eq!(why(claim_of("PUT /allow", &[("host", "a"), ("host", "a")])), host(HostError::Duplicate));
    for bad in ["", "a b", "user@a", "a,b", "é", "a:x", "l%65dger.internal"] {
        assert_eq!(why(claim_of("PUT /allow", &[("host", bad)])), host(HostError::Invalid), "{bad:?}");
        assert_eq!(
            why(claim_of("PUT http://a/allow", &[("host", bad)])),
            host(HostError::Invalid),
            "{bad:?}"
        );
    }
    assert_eq!(why(claim_of("PUT http://user@a/allow", &[])), host(HostError::Invalid));
}

/// A claim of an HTTP/1.0 request without a host, by these routes.
fn old(path: &str, table: &RouteTable) -> Result<Claim, Unclaimed> {
    let mut head = head(&format!("PUT {path}"), &[TOKEN]);
    head.version = Version::HTTP_10;
    claim(&head, table, &HeaderName::from_static(headers::TOKEN))
}

#[test]
fn an_old_client_without_a_host_does_not_get_past_a_route_that_goes_by_it() {
    for path in ["/allow", "/accounts/7", "/by-host"] {
        assert_eq!(why(old(path, &table())), Malformed::Host(HostError::Missing).into(), "{path}");
    }
    let route = |lines: &str| {
        let text = format!("[[routes]]\nname = 'a'\nupstream = 'http://u'\n{lines}");
        let config = Config::parse(&text, Path::new("f.toml"), &Overrides::default()).unwrap();
        RouteTable::of(config.routes)
    };
    assert_eq!(old("/", &route("")).unwrap().stand, fenced("a", 7));
    for by_host in ["match = { host = 'h' }", "resource = '{host}/x'"] {
        assert_eq!(why(old("/", &route(by_host))), Malformed::Host(HostError::Missing).into(), "{by_host}");
    }
}

#[test]
fn what_hyper_and_h2_let_through_and_others_may_not_is_refused() {
    let claimed = |change: &dyn Fn(&mut Parts)| {
        let mut head = head("PUT /accounts/7", &[("host", "ledger.internal"), TOKEN]);
        head.version = Version::HTTP_2;
        change(&mut head);
        why(claim(&head, &table(), &HeaderName::from_static(headers::TOKEN)))
    };
    let lengths = |values: &'static [&'static str]| {
        claimed(&|head| {
            for value in values {
                head.headers.append("content-length", HeaderValue::from_static(value));
            }
        })
    };
    for values in [&["5", "5"][..], &["9223372036854775808"], &["5,5"], &["+5"], &[""]] {
        assert_eq!(lengths(values), Malformed::Length.into(), "{values:?}");
    }
    let name = HeaderName::from_lowercase(b"x-\"quoted\"").unwrap();
    let quoted = claimed(&|head| drop(head.headers.insert(name.clone(), HeaderValue::from_static("1"))));
    assert_eq!(quoted, Malformed::Name(name.clone()).into());
    for target in ["/accounts/\u{e9}", "/accounts/7?q=\u{e9}"] {
        assert_eq!(claimed(&|head| head.uri = target.parse().unwrap()), Malformed::NotAscii.into());
    }
    for name in ["content_length", "transfer_encoding"] {
        let refused = claimed(&|head| drop(head.headers.insert(name, HeaderValue::from_static("5"))));
        assert_eq!(refused, Malformed::FramingAlias(HeaderName::from_static(name)).into());
        assert!(refused.closes_connection(), "a body may follow that nobody sees");
    }
    let other = claimed(&|head| {
        head.uri = "http://ledger.internal/accounts/7".parse().unwrap();
        drop(head.headers.insert("host", HeaderValue::from_static("other.internal")));
    });
    assert_eq!(other, Malformed::Host(HostError::Differs).into());
    let ftp = claimed(&|head| head.uri = "ftp://ledger.internal/accounts/7".parse().unwrap());
    assert_eq!(ftp, Malformed::Scheme.into());
}

#[test]
fn a_read_may_not_announce_a_body() {
    for field in [("content-length", "1"), ("transfer-encoding", "chunked")] {
        let refused = at_ledger("GET /accounts/7", &[field]).unwrap_err();
        assert_eq!(refused.why, Malformed::Content(Method::GET).into());
        assert_eq!(&*refused.route.unwrap().name, "ledger");
    }
    for length in ["0", "000"] {
        assert!(at_ledger("GET /accounts/7", &[("content-length", length)]).is_ok());
    }
}

#[test]
fn the_client_names_the_resource_only_where_the_route_lets_it() {
    let named = |value: &str| claim_of("PUT http://h/named", &[TOKEN, ("x-fencing-resource", value)]);
    assert_eq!(named("Ledger/ACCT%2D7").unwrap().stand, fenced("ledger/acct-7", 7));
    assert_eq!(why(named("a//b")), Malformed::Resource(ResourceError::EmptySegment).into());
    assert_eq!(why(named("")), Malformed::Resource(ResourceError::EmptySegment).into());
    assert_eq!(why(claim_of("PUT http://h/named", &[TOKEN])), Malformed::MissingResource.into());
    let twice = [TOKEN, ("x-fencing-resource", "a"), ("x-fencing-resource", "a")];
    assert_eq!(why(claim_of("PUT http://h/named", &twice)), Malformed::DuplicateResource.into());
    let elsewhere = at_ledger("PUT /accounts/7", &[TOKEN, ("x-fencing-resource", "other")]).unwrap();
    assert_eq!(elsewhere.stand, fenced("ledger/7", 7));
}

/// Escapes some bytes of a path's segments, as `seed` says, and perhaps adds a trailing slash.
fn respell(path: &str, seed: u64) -> String {
    let respelled: String = path
        .bytes()
        .enumerate()
        .map(|(at, byte)| match seed.rotate_right(u32::try_from(at * 2).unwrap()) & 3 {
            0 if byte != b'/' => format!("%{byte:02x}"),
            1 if byte != b'/' => format!("%{byte:02X}"),
            _ if byte.is_ascii_graphic() => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect();
    if seed & 1 == 0 { respelled + "/" } else { respelled }
}

/// What some server or other takes for nothing at the end of a segment.
const DETOURS: &[&str] =
    &["/", "/.", "/x/..", "/%2e", "/y/%2E.", "%2F", "%2f.", ";x", ";", "%3b", "\\", "%5C", "%00", "%", "%ff"];

proptest! {
    #[test]
    fn any_escaping_of_a_path_claims_the_same(account in "[a-zA-Z0-9._~é@ -]{1,12}", rest in "(/[a-z0-9]{1,4}){0,3}", seed: u64) {
        prop_assume!(!matches!(account.as_str(), "." | ".."));
        let plain = format!("/accounts/{}{rest}", account.replace(' ', "%20").replace('é', "%C3%A9"));
        let respelled = respell(&format!("/accounts/{account}{rest}"), seed);
        let stand = |path: &str| at_ledger(&format!("PUT {path}"), &[TOKEN]).unwrap().stand;
        prop_assert_eq!(stand(&plain), stand(&respelled), "{} and {}", plain, respelled);
    }

    #[test]
    fn a_detour_in_a_path_claims_the_same_or_is_refused(
        at in prop::sample::select(vec![0, "/accounts".len(), "/accounts/acct-7".len()]),
        detours in prop::collection::vec(prop::sample::select(DETOURS), 1..3),
    ) {
        let (before, after) = "/accounts/acct-7".split_at(at);
        let detoured = format!("{before}{}{after}", detours.concat());
        let request = Request::builder().method("PUT").uri(detoured.as_str());
        if let Ok(request) = request.header("host", "ledger.internal").header("x-fencing-token", "7").body(()) {
            let result = claim(&request.into_parts().0, &table(), &HeaderName::from_static(headers::TOKEN));
            if let Ok(claim) = result {
                prop_assert_eq!(claim.stand, fenced("ledger/acct-7", 7), "{}", detoured);
            }
        }
    }

    #[test]
    fn no_head_makes_it_panic(
        method in "[A-Za-z!]{1,8}|POST|GET|CONNECT",
        uri in "\\PC{0,20}|/[a-z%./;0-9?]{0,20}|\\*|http://[a-z.:@\\[\\]]{1,12}/[a-z%/]{0,9}",
        headers in prop::collection::vec(("host|connection|x[-_]fencing[-_](token|resource)", prop::collection::vec(any::<u8>(), 0..12)), 0..5),
        version in prop::sample::select(vec![Version::HTTP_10, Version::HTTP_11, Version::HTTP_2]),
    ) {
        let mut request = Request::builder().method(method.as_str()).uri(uri.as_str()).version(version);
        for (name, value) in &headers {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                request = request.header(name.as_str(), value);
            }
        }
        if let Ok(request) = request.body(()) {
            let result = claim(&request.into_parts().0, &table(), &HeaderName::from_static(headers::TOKEN));
            if let Err(unclaimed) = result {
                prop_assert!(!unclaimed.why.to_string().is_empty());
            }
        }
    }
}

#[test]
fn a_path_in_another_case_does_not_go_to_the_next_route() {
    let text = r#"
        [[routes]]
        name = "ledger"
        match = { path = "/Accounts/{account}", methods = ["POST"] }
        upstream = "http://u"
        resource = "ledger/{account}"

        [[routes]]
        name = "rest"
        upstream = "http://u"
        fenced_methods = []
    "#;
    let config = Config::parse(text, Path::new("f.toml"), &Overrides::default()).unwrap();
    let table = RouteTable::of(config.routes);
    let at = |line: &str| {
        let head = head(line, &[("host", "h"), TOKEN]);
        claim(&head, &table, &HeaderName::from_static(headers::TOKEN))
    };
    assert_eq!(at("POST /Accounts/7").unwrap().stand, fenced("ledger/7", 7));
    for path in ["/accounts/7", "/ACCOUNTS/7", "/%61ccounts/7", "/accounts/7/"] {
        let error = why(at(&format!("POST {path}")));
        assert_eq!(error, Malformed::OtherCase("/Accounts/{account}".into()).into(), "{path}");
    }
    for line in ["PUT /accounts/7", "POST /accounts/7/x", "POST /account/7"] {
        assert_eq!(&*at(line).unwrap().route.name, "rest", "{line}: that route is not meant");
    }
}

#[test]
fn who_asks_for_another_protocol_is_fenced_under_every_name_whatever_the_method() {
    let named = |upgrades: &str| {
        let text = format!("[[routes]]\nname = 'old'\nupstream = 'http://u'\n{upgrades}");
        Naming::of(&Config::parse(&text, Path::new("f.toml"), &Overrides::default()).unwrap().routes)
    };
    let claim_with = |aliases: Vec<Naming>, more: &[(&str, &str)]| {
        let table = RouteTable { aliases, ..table() };
        let headers =
            [&[("host", "a.test"), ("x-fencing-token", "7"), ("upgrade", "WebSocket")], more].concat();
        claim(&head("GET /live", &headers), &table, &HeaderName::from_static("x-fencing-token")).unwrap()
    };
    let asks = [("connection", "keep-alive, UPGRADE")];
    let asked = claim_with(vec![named("upgrades = ['x', 'websocket']")], &asks);
    assert_eq!(asked.stand, fenced("live", 7));
    assert_eq!(asked.upgrade.unwrap().as_str(), "websocket");
    assert_eq!(asked.aliases, [Resource::parse("old").unwrap()]);
    assert_eq!(claim_with(vec![named("")], &asks).aliases, [], "a GET was not fenced there");
    let plain = claim_with(vec![named("upgrades = ['websocket']")], &[]);
    assert_eq!((plain.stand, plain.upgrade, plain.aliases), (Stand::Unfenced, None, Vec::new()));
}
