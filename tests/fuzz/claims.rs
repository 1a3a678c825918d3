//! Whole heads of requests against tables of routes: one reading or none, and no way around the fence.

use std::sync::LazyLock;

use highgate::config::{Config, Overrides};
use highgate::gate::claim::{Claim, Stand, Unclaimed, claim};
use highgate::gate::table::RouteTable;
use highgate_elector::{Resource, headers};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Version};

use super::target::{Answer, Target, ensure, respelled, texts};

const FIXED: &str = r#"
[[routes]]
name = "ledger"
match = { host = "*.internal", path = "/accounts/{account}/{*rest}", methods = ["POST", "PUT"] }
upstream = "http://127.0.0.1:1"
resource = "{host}/{account}"
[[routes]]
name = "reads"
match = { path = "/accounts/{*rest}" }
upstream = "http://127.0.0.1:1"
fenced_methods = ["PURGE"]
missing_token = "audit"
[[routes]]
name = "jobs"
match = { path = "/jobs" }
upstream = "http://127.0.0.1:1"
"#;
const NAMED: &str = r#"
[[routes]]
name = "jobs"
match = { path = "/jobs/{*rest}" }
upstream = "http://127.0.0.1:1"
resource = { client = true }
[[routes]]
name = "rest"
upstream = "http://127.0.0.1:1"
resource = { client = true, default = "rest" }
missing_token = "allow"
"#;

/// Every table twice: the same text has to mean the same.
static TABLES: LazyLock<[[RouteTable; 2]; 2]> = LazyLock::new(|| {
    let routes = |text| Config::parse(text, "fuzz.toml".as_ref(), &Overrides::default()).unwrap().routes;
    [FIXED, NAMED].map(|text| [RouteTable::of(routes(text)), RouteTable::of(routes(text))])
});

pub(crate) fn target() -> Target {
    let examples = texts(&[
        "POST /accounts/7/a/b HTTP/1.1\r\nHost: ledger.internal\r\nX-Fencing-Token: 7\r\n\r\n",
        "PUT /accounts/a%20b/ HTTP/1.1\r\nhost: LEDGER.internal:80\r\nx-fencing-token: 9223372036854775807\r\n\r\n",
        "GET /accounts/7?x=1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "PURGE /accounts/7 HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /jobs HTTP/1.0\r\nX-Fencing-Token: 1\r\n\r\n",
        "POST http://ledger.internal/jobs/1 HTTP/1.1\r\nHost: other\r\nX-Fencing-Token: 1\r\nX-Fencing-Resource: a/B\r\n\r\n",
        "DELETE /jobs/1 HTTP/1.1\r\nHost: a\r\nX-Fencing-Token: 1\r\nX-Fencing-Resource: caf%C3%89\r\nConnection: close\r\n\r\n",
        "POST /jobs HTTP/1.1\r\nHost: a\r\nX_Fencing_Token: 1\r\n\r\n",
        "POST /jobs HTTP/1.1\r\nHost: a\r\nX-Fencing-Token: 1\r\nX-Fencing-Token: 2\r\n\r\n",
        "POST /jobs HTTP/1.1\r\nHost: a\r\nX-Fencing-Token: 1\r\nConnection: close, x-fencing_token\r\n\r\n",
        "GET /jobs HTTP/1.1\r\nHost: a\r\nX-HTTP-Method-Override: POST\r\n\r\n",
        "POST /jobs/../accounts/7 HTTP/1.1\r\nHost: a\r\nX-Fencing-Token: 1\r\n\r\n",
        "POST /ACCOUNTS/7/a HTTP/1.1\r\nHost: a.internal\r\nX-Fencing-Token: 1\r\n\r\n",
        "post /Jobs/1 HTTP/1.1\r\nHost: a\r\nX-Fencing-Token: 1\r\nX-Fencing-Resource: a\r\n\r\n",
        "POST /Jobs/1 HTTP/1.1\r\nHost: a\r\nX-Fencing-Token: 1\r\nX-Fencing-Resource: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /accounts/7?x=1\u{130}\u{3a3} HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    ]);
    let words = &[
        "X-Fencing-Token: 8\r\n",
        "X-Fencing-Resource: b\r\n",
        "x_fencing_resource: b\r\n",
        "Host: b.internal\r\n",
        "Connection: x-fencing-token\r\n",
        "X-Original-Url: /\r\n",
        "%2e%2e/",
        "POST",
        "GET",
        "M-SEARCH",
        "HTTP/1.0",
        "accounts",
        "/jobs",
        "[::1]",
        "\r\n",
        "a@b",
    ];
    Target { name: "claims", accepted: "claim something", examples, words, check, exact: true }
}

fn check(input: &[u8]) -> Result<Answer, String> {
    let Some(head) = head(input) else { return Ok(Answer::Refused) };
    let token = HeaderName::from_static(headers::TOKEN);
    let mut accepted = false;
    for [routes, same] in &*TABLES {
        let outcome = claim(&head, routes, &token);
        let told = told(&outcome);
        let again = self::told(&claim(&head, same, &token));
        ensure(again == told, || format!("claims {told}, then {again}"))?;
        if let Ok(claim) = &outcome {
            check_claim(claim, &head)?;
        }
        if let Some(other) = respelled_head(&head) {
            let again = claim_or_not(&other, routes, &token);
            ensure(again == claim_or_not(&head, routes, &token), || {
                format!("{told}, but {again} as {}", other.uri)
            })?;
        }
        if let (Ok(_), Some(other)) = (&outcome, in_another_case(&head)) {
            let again = claim(&other, routes, &token);
            let again = again.is_ok().then(|| self::told(&again));
            ensure(again.as_ref().is_none_or(|again| *again == told), || {
                format!("{told}, but {again:?} as {}", other.uri)
            })?;
        }
        accepted |= outcome.is_ok();
    }
    Ok(Answer::of(accepted))
}

/// Nothing if it is no head of a request; the server's own parser would not hand it on.
fn head(input: &[u8]) -> Option<Parts> {
    let mut slots = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Request::new(&mut slots);
    parsed.parse(input).ok().filter(httparse::Status::is_complete)?;
    let version = if parsed.version? == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let mut request = Request::builder().method(parsed.method?).uri(parsed.path?).version(version);
    for header in parsed.headers.iter() {
        request = request.header(header.name, HeaderValue::from_bytes(header.value).ok()?);
    }
    request.body(()).ok().map(|request| request.into_parts().0)
}

/// Route, resource and token, or why not.
fn told(outcome: &Result<Claim, Unclaimed>) -> String {
    match outcome {
        Ok(claim) => format!("{}: {:?}", claim.route.name, claim.stand),
        Err(unclaimed) => {
            let route = unclaimed.route.as_ref().map(|route| route.name.clone());
            format!("{:?} on {route:?} for {:?}", unclaimed.why, unclaimed.resource)
        }
    }
}

/// The same for all that is refused: which of two wrong things is told does not matter.
fn claim_or_not(head: &Parts, routes: &RouteTable, token: &HeaderName) -> String {
    let outcome = claim(head, routes, token);
    if outcome.is_ok() { told(&outcome) } else { "refused".to_owned() }
}

/// What a claim says is what the head says.
fn check_claim(claim: &Claim, head: &Parts) -> Result<(), String> {
    let fenced = claim.route.fenced.contains(&head.method);
    ensure(fenced == (claim.stand != Stand::Unfenced), || {
        format!("{} is wrongly {:?}", head.method, claim.stand)
    })?;
    let values: Vec<_> = head.headers.get_all(headers::TOKEN).iter().collect();
    let folded = |name: &HeaderName| name.as_str().replace('_', "-");
    let named = head.headers.iter().filter(|(name, _)| folded(name) == headers::TOKEN).count();
    ensure(named == values.len(), || "there is a second name of the token header".to_owned())?;
    let resource = match &claim.stand {
        Stand::Unfenced => return Ok(()),
        Stand::Unchecked { resource, .. } => {
            ensure(values.is_empty(), || "unchecked although it has a token".to_owned())?;
            resource
        }
        Stand::Fenced { resource, token } => {
            let shown = values.as_slice() == [token.to_string().as_str()];
            ensure(shown, || format!("{token} is not what {values:?} say"))?;
            resource
        }
    };
    ensure(Resource::parse(resource.as_str()).as_ref() == Ok(resource), || {
        format!("{resource} is not canonical")
    })
}

/// The same request with its path in another spelling. None of one that has letters outside ASCII: those are refused as
/// they are, and have no other spelling that is.
fn respelled_head(head: &Parts) -> Option<Parts> {
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    target.is_ascii().then(|| with_path(head, &respelled(head.uri.path())))?
}

/// The same request to an upstream that does not tell upper from lower case.
fn in_another_case(head: &Parts) -> Option<Parts> {
    let swap = |letter: char| match letter.is_ascii_lowercase() {
        true => letter.to_ascii_uppercase(),
        false => letter.to_ascii_lowercase(),
    };
    with_path(head, &head.uri.path().chars().map(swap).collect::<String>())
}

fn with_path(head: &Parts, path: &str) -> Option<Parts> {
    let mut other = head.clone();
    let mut uri = head.uri.clone().into_parts();
    let query = head.uri.query().map_or(String::new(), |query| format!("?{query}"));
    uri.path_and_query = Some(format!("{path}{query}").parse().ok()?);
    other.uri = http::Uri::from_parts(uri).ok()?;
    (head.uri.path() != "*").then_some(other)
}
