//! What changes in a head on its way through: hop-by-hop headers go, forwarding headers come.

mod end;

use highgate_elector::headers::CREDENTIAL;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, Uri, Version};

use crate::config::Upstream;
use crate::config::fields::{is_fencing, is_forwarding};
pub(super) use end::{End, respell_length, settle};

/// Headers that speak of one connection, besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Turns the head a client sent into the one the upstream gets. False if its target is too long for that.
pub(super) fn outbound<B>(
    request: &mut Request<B>,
    upstream: &Upstream,
    client: &HeaderValue,
    encrypted: bool,
) -> bool {
    let Some(target) = origin_form(request.uri(), &upstream.base_path) else { return false };
    let host = host_of(request);
    let own_host =
        host.is_none().then(|| HeaderValue::from_str(upstream.to.authority.as_str()).ok()).flatten();
    let via = via(request.version());
    let headers = request.headers_mut();
    let wants_trailers = wants_trailers(headers);
    // What a client says of hosts and addresses in other words than these goes; the gateway says it below. A secret that
    // was shown to the gateway is nobody else's.
    strip(headers, |name| is_forwarding(name) || name == CREDENTIAL);
    // The body is read here, so the gateway is the one to say 100 Continue.
    headers.remove(header::EXPECT);
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    append_client(headers, client);
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(if encrypted { "https" } else { "http" }));
    if let Some(host) = host {
        headers.insert(FORWARDED_HOST, host.clone());
        headers.insert(header::HOST, host);
    } else if let Some(host) = own_host {
        // HTTP/1.0 need not name a host, and what goes on is HTTP/1.1, which has to.
        headers.insert(header::HOST, host);
    }
    headers.append(header::VIA, via);
    *request.uri_mut() = target;
    *request.version_mut() = Version::HTTP_11;
    true
}

/// Turns the head an upstream sent into the one the client gets.
pub(super) fn inbound<B>(response: &mut Response<B>) {
    let via = via(response.version());
    let headers = response.headers_mut();
    headers.append(header::VIA, via);
    // The gateway's own words: an upstream must not be taken for it.
    strip(headers, is_fencing);
    // Each side frames its own messages in its own version.
    *response.version_mut() = Version::default();
}

/// Takes away what speaks of one connection, and what else `goes`.
fn strip(headers: &mut HeaderMap, goes: impl Fn(&str) -> bool) {
    // Most heads have none of these: comparing names is cheaper than looking each of them up.
    let goes = |name: &&HeaderName| HOP_BY_HOP.contains(name) || goes(name.as_str());
    let mut gone: Vec<HeaderName> = headers.keys().filter(goes).cloned().collect();
    let lists = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    gone.extend(lists.flat_map(|list| list.split(',')).filter_map(|name| name.trim().parse().ok()));
    for name in gone {
        headers.remove(name);
    }
}

fn wants_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TE);
    values.iter().any(|value| {
        value.as_bytes().split(|byte| *byte == b',').any(|coding| coding.trim_ascii() == b"trailers")
    })
}

/// The host the client asked for: the target's authority if it has one, else the `Host` header.
fn host_of<B>(request: &Request<B>) -> Option<HeaderValue> {
    match request.uri().authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => request.headers().get(header::HOST).cloned(),
    }
}

/// Adds the client to `X-Forwarded-For`, as one list in one header.
fn append_client(headers: &mut HeaderMap, client: &HeaderValue) {
    if !headers.contains_key(FORWARDED_FOR) {
        headers.insert(FORWARDED_FOR, client.clone());
        return;
    }
    let mut list: Vec<u8> = Vec::new();
    for value in headers.get_all(FORWARDED_FOR) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(client.as_bytes());
    let list = HeaderValue::from_bytes(&list).expect("values of headers, joined, are a header's value");
    headers.insert(FORWARDED_FOR, list);
}

fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_2 => "2.0 highgate",
        Version::HTTP_10 => "1.0 highgate",
        _ => "1.1 highgate",
    })
}

/// The target as an origin expects it, below the upstream's base path.
fn origin_form(uri: &Uri, base_path: &str) -> Option<Uri> {
    if base_path.is_empty() && uri.authority().is_none() {
        return Some(uri.clone());
    }
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    // Both halves were valid, so only their length together can be wrong.
    format!("{base_path}{path}").parse().ok()
}

#[cfg(test)]
mod tests {
    use http::request::Builder;

    use super::*;
    use crate::config::Url;

    fn outbound_head(build: impl FnOnce(Builder) -> Builder) -> Request<()> {
        let request = Request::builder().uri("/a?b=c").header("host", "gate.test");
        let mut request = build(request).body(()).unwrap();
        let upstream = Url::parse("http://127.0.0.1:9000/base").unwrap().with(None);
        assert!(outbound(&mut request, &upstream, &HeaderValue::from_static("10.0.0.9"), false));
        request
    }

    #[test]
    fn headers_of_one_connection_do_not_travel() {
        let head = outbound_head(|request| {
            request
                .header("connection", "keep-alive, X-Private")
                .header("x-private", "1")
                .header("keep-alive", "timeout=5")
                .header("proxy-connection", "keep-alive")
                .header("upgrade", "websocket")
                .header("te", "trailers, deflate")
                .header("expect", "100-continue")
                .header("idempotency-key", "k")
                .header("x-fencing-credential", "s3cret")
                .header("x-fencing-token", "7")
        });
        assert_eq!(head.headers()["x-fencing-token"], "7");
        let gone = ["connection", "x-private", "keep-alive", "proxy-connection", "upgrade", "expect"];
        for gone in gone.into_iter().chain(["x-fencing-credential"]) {
            assert!(!head.headers().contains_key(gone), "{gone}");
        }
        assert_eq!(head.headers()["te"], "trailers");
        assert_eq!(head.headers()["idempotency-key"], "k");
    }

    #[test]
    fn the_upstream_learns_who_asked_for_what() {
        let head = outbound_head(|request| {
            request.header("x-forwarded-for", "1.2.3.4").header("x-forwarded-proto", "https")
        });
        assert_eq!(head.headers()["x-forwarded-for"], "1.2.3.4, 10.0.0.9");
        assert_eq!(head.headers()["x-forwarded-proto"], "http");
        assert_eq!(head.headers()["x-forwarded-host"], "gate.test");
        assert_eq!(head.headers()["host"], "gate.test");
        assert_eq!(head.headers()["via"], "1.1 highgate");
        assert_eq!(head.uri(), "/base/a?b=c");
    }

    #[test]
    fn a_client_cannot_say_who_asked_for_what_in_other_words() {
        let names =
            ["forwarded", "x_forwarded_host", "x_forwarded_for", "x-forwarded-prefix", "x-original-host"];
        let head = outbound_head(|request| {
            names.iter().fold(request, |request, name| request.header(*name, "forged"))
        });
        for gone in names {
            assert!(!head.headers().contains_key(gone), "{gone}");
        }
        assert_eq!(head.headers()["x-forwarded-host"], "gate.test");
    }

    #[test]
    fn a_target_that_grows_too_long_is_not_sent_without_its_base() {
        let target = format!("/{}", "x".repeat(65_530));
        let mut request = Request::builder().uri(target).body(()).unwrap();
        let upstream = Url::parse("http://127.0.0.1:9000/base").unwrap().with(None);
        assert!(!outbound(&mut request, &upstream, &HeaderValue::from_static("10.0.0.9"), false));
    }

    #[test]
    fn an_upstream_cannot_speak_for_the_gateway() {
        let mut response = Response::builder()
            .header("x-fencing-reason", "stale")
            .header("x-fencing-outcome", "not-sent")
            .header("x_fencing_resource", "ledger")
            .header("x-other", "stays")
            .body(())
            .unwrap();
        inbound(&mut response);
        assert!(!response.headers().keys().any(|name| is_fencing(name.as_str())));
        assert!(response.headers().contains_key("x-other"));
    }
}
