//! The table: refusal to status, reason, title, gRPC status, retry, connection and log level.

use bytes::Bytes;
use highgate_elector::headers::{OUTCOME, REASON};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};
use serde_json::json;
use tracing::Level;

use super::{Body, Fault, Outcome, Refusal, Story};
use crate::gate::claim::ClaimError;
use crate::metrics::Decision;

/// One row.
pub(super) struct Verdict {
    status: StatusCode,
    reason: &'static str,
    title: &'static str,
    /// <https://grpc.github.io/grpc/core/md_doc_statuscodes.html>
    grpc_status: u16,
    /// Whether the same request may succeed a little later.
    retry: bool,
    /// Whether the connection cannot be trusted for another request.
    close: bool,
    pub(super) level: Level,
}

/// Every refusal has its row: the compiler sees to it.
pub(super) fn verdict(refusal: &Refusal) -> Verdict {
    let row = |status, reason, title, grpc_status| Verdict {
        status,
        reason,
        title,
        grpc_status,
        retry: false,
        close: false,
        level: Level::INFO,
    };
    match refusal {
        Refusal::Unclaimed(ClaimError::NoRoute) => row(StatusCode::NOT_FOUND, "no-route", "No route", 12),
        Refusal::Unclaimed(ClaimError::Missing) => {
            row(StatusCode::PRECONDITION_REQUIRED, "missing", "Fencing token required", 9)
        }
        Refusal::Unclaimed(why @ ClaimError::Malformed(_)) => Verdict {
            close: why.closes_connection(),
            ..row(StatusCode::BAD_REQUEST, "malformed", "Malformed request", 3)
        },
        Refusal::Framing(_) => {
            Verdict { close: true, ..row(StatusCode::BAD_REQUEST, "malformed", "Malformed request", 3) }
        }
        Refusal::TargetTooLong => row(StatusCode::URI_TOO_LONG, "malformed", "Target too long", 3),
        Refusal::SlowRequest => Verdict {
            close: true,
            ..row(StatusCode::REQUEST_TIMEOUT, "request-timeout", "Request body too slow", 4)
        },
        Refusal::BrokenRequest => {
            Verdict { close: true, ..row(StatusCode::BAD_REQUEST, "malformed", "Request body broken", 3) }
        }
        Refusal::Stale { .. } => Verdict {
            level: Level::WARN,
            ..row(StatusCode::PRECONDITION_FAILED, "stale", "Stale fencing token", 9)
        },
        Refusal::NotIssued { .. } => row(StatusCode::FORBIDDEN, "not-issued", "Fencing token not issued", 7),
        Refusal::Frozen { .. } => row(StatusCode::LOCKED, "frozen", "Resource frozen", 9),
        Refusal::Raising => unavailable("raising", "Earlier writes still draining"),
        Refusal::StoreUnavailable => unavailable("store-unavailable", "Token store unavailable"),
        Refusal::Fenced => unavailable("fenced", "Replica fenced"),
        Refusal::Overloaded => unavailable("overloaded", "Gateway overloaded"),
        Refusal::Upstream { fault: Fault::Broken(_), .. } => {
            Verdict { level: Level::WARN, ..row(StatusCode::BAD_GATEWAY, "upstream", "Upstream failed", 14) }
        }
        Refusal::Upstream { fault: Fault::Slow(_), .. } => Verdict {
            level: Level::WARN,
            ..row(StatusCode::GATEWAY_TIMEOUT, "upstream", "Upstream too slow", 4)
        },
    }
}

fn unavailable(reason: &'static str, title: &'static str) -> Verdict {
    Verdict {
        status: StatusCode::SERVICE_UNAVAILABLE,
        reason,
        title,
        grpc_status: 14,
        retry: true,
        close: false,
        level: Level::WARN,
    }
}

pub(super) fn reason(refusal: &Refusal) -> &'static str {
    verdict(refusal).reason
}

pub(super) fn decision(refusal: &Refusal) -> Decision {
    match refusal {
        Refusal::Upstream { .. } => Decision::Failed,
        _ => Decision::Refused,
    }
}

pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// The refusal as HTTP: problem+json (RFC 9457), or a gRPC status for who speaks gRPC.
pub(super) fn response(refusal: &Refusal, story: &Story, grpc: bool) -> Response<Body> {
    let row = verdict(refusal);
    let detail = detail(refusal, story);
    let mut answer = Response::builder().header(REASON, row.reason);
    if row.retry {
        answer = answer.header(RETRY_AFTER, "1");
    }
    if row.close {
        answer = answer.header(CONNECTION, "close");
    }
    if let Refusal::Upstream { outcome, .. } = refusal {
        answer = answer.header(OUTCOME, outcome.as_str());
    }
    let answer = if grpc {
        answer
            .header(CONTENT_TYPE, "application/grpc")
            .header("grpc-status", row.grpc_status)
            .header("grpc-message", grpc_message(&detail))
            .body(Body::empty())
    } else {
        problem(answer.status(row.status), refusal, &row, story, &detail)
    };
    answer.expect("every header above is valid by construction")
}

fn problem(
    answer: response::Builder,
    refusal: &Refusal,
    row: &Verdict,
    story: &Story,
    detail: &str,
) -> http::Result<Response<Body>> {
    let problem = json!({
        "type": format!("urn:highgate:problem:{}", row.reason),
        "title": row.title,
        "status": row.status.as_u16(),
        "detail": detail,
        "reason": row.reason,
        "resource": story.resource.as_ref().map(|resource| resource.as_str()),
        "token": story.token.map(|token| token.get()),
        "mark": mark(refusal),
    });
    answer.header(CONTENT_TYPE, "application/problem+json").body(Body::own(Bytes::from(problem.to_string())))
}

fn mark(refusal: &Refusal) -> Option<u64> {
    match refusal {
        Refusal::Stale { mark } | Refusal::NotIssued { mark } | Refusal::Frozen { mark } => Some(*mark),
        _ => None,
    }
}

/// What happened, to which resource, and what to do.
fn detail(refusal: &Refusal, story: &Story) -> String {
    let resource = story.resource.as_ref().map_or("the resource", |resource| resource.as_str());
    let token = story.token.map_or_else(|| "none".to_owned(), |token| token.to_string());
    match refusal {
        Refusal::Unclaimed(why) => why.to_string(),
        Refusal::Framing(why) => (*why).to_owned(),
        Refusal::TargetTooLong => "the target is too long for the upstream's base path".to_owned(),
        Refusal::SlowRequest => "the request body did not arrive in time; nothing was forwarded".to_owned(),
        Refusal::BrokenRequest => "the request body broke off; nothing was forwarded".to_owned(),
        Refusal::Stale { mark } => format!(
            "token {token} is below the mark {mark} of {resource}: a later leader has taken over; stop writing"
        ),
        Refusal::NotIssued { mark } => format!(
            "token {token} was not issued to the leader of {resource}, whose mark is {mark}; win the election first"
        ),
        Refusal::Frozen { mark } => {
            format!("{resource} was frozen by an operator at mark {mark}; wait until it is thawed")
        }
        Refusal::Raising => format!(
            "token {token} waits until the writes of earlier leaders to {resource} have ended; try again"
        ),
        Refusal::StoreUnavailable => {
            format!("the marks are not available, so nothing may be written to {resource}; try again")
        }
        Refusal::Fenced => format!(
            "this gateway is not, or not any more, one of those that may write to {resource}; nothing was \
             forwarded; try again, or try another replica"
        ),
        Refusal::Overloaded => format!("too many requests for {resource} are waiting; try again"),
        Refusal::Upstream { fault: Fault::Broken(how) | Fault::Slow(how), outcome } => {
            let effect = match outcome {
                Outcome::NotSent => "nothing was sent",
                Outcome::Unknown => "the request may have taken effect",
            };
            format!("the upstream failed: {how}; {effect}")
        }
    }
}

/// Percent-encoded, as the gRPC protocol wants it.
fn grpc_message(detail: &str) -> HeaderValue {
    let mut encoded = String::with_capacity(detail.len());
    for byte in detail.bytes() {
        match byte {
            b'%' => encoded.push_str("%25"),
            b' '..=b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&encoded).expect("printable ASCII only")
}

impl Outcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not-sent",
            Self::Unknown => "unknown",
        }
    }
}
