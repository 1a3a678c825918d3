//! Every way a head can be read, and the promise that a second spelling is the same resource or refused.

use std::path::Path;

use http::{HeaderValue, Request};
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

fn routes() -> Routes {
    Config::parse(ROUTES, Path::new("f.toml"), &Overrides::default()).unwrap().routes
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
    claim(&head(line, headers), &routes(), &HeaderName::from_static(headers::TOKEN))
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
    for method in ["POST", "PUT", "PATCH", "DELETE", "PURGE", "get"] {
        assert_eq!(why(at_ledger(&format!("{method} /accounts/7"), &[])), ClaimError::Missing, "{method}");
    }
    assert_eq!(at_ledger("POST /search", &[]).unwrap().stand, Stand::Unfenced, "a POST can be a read");
    assert_eq!(why(at_ledger("GET /search", &[])), ClaimError::NoRoute, "the route is for POST");
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
        claim(
            &head("POST /accounts/7", &[("host", "ledger.internal"), (name, "7")]),
            &routes(),
            &token_header,
        )
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

#[test]
fn an_old_client_without_a_host_reaches_only_what_needs_none() {
    let old = |path: &str| {
        let mut head = head(&format!("PUT {path}"), &[TOKEN]);
        head.version = Version::HTTP_10;
        claim(&head, &routes(), &HeaderName::from_static(headers::TOKEN))
    };
    assert_eq!(old("/allow").unwrap().stand, fenced("allow", 7));
    assert_eq!(why(old("/accounts/7")), ClaimError::NoRoute);
    assert_eq!(why(old("/by-host")), Malformed::Host(HostError::Missing).into());
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
        let plain = format!("/accounts/{}{rest}", account.replace(' ', "%20"));
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
            let result = claim(&request.into_parts().0, &routes(), &HeaderName::from_static(headers::TOKEN));
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
            let result = claim(&request.into_parts().0, &routes(), &HeaderName::from_static(headers::TOKEN));
            if let Err(unclaimed) = result {
                prop_assert!(!unclaimed.why.to_string().is_empty());
            }
        }
    }
}
