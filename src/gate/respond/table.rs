//! The table: refusal to status, reason, title, gRPC status, retry, connection and log level.

use bytes::Bytes;
use highgate_elector::headers::{OUTCOME, REASON, RESOURCE};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, response};
use serde_json::json;
use tracing::Level;

use super::detail::detail;
use super::{Body, Fault, Outcome, Refusal, RequestFault, Story};
use crate::gate::accept::Unreadable;
use crate::gate::claim::ClaimError;
use crate::metrics::{Decision, Limit};

/// One row.
pub(super) struct Verdict {
    status: StatusCode,
    pub(super) reason: &'static str,
    title: &'static str,
    /// <https://grpc.github.io/grpc/core/md_doc_statuscodes.html>
    pub(super) grpc_status: u16,
    /// Whether the same request may succeed a little later.
    retry: bool,
    /// Whether the connection cannot be trusted for another request.
    pub(super) close: bool,
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
        Refusal::Unclaimed(ClaimError::TooLarge(_)) | Refusal::CutShort(RequestFault::TooLarge(_)) => {
            Verdict {
                close: true,
                ..row(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Request body too large", 8)
            }
        }
        Refusal::Unclaimed(why @ ClaimError::Malformed(_)) => Verdict {
            close: why.closes_connection(),
            ..row(StatusCode::BAD_REQUEST, "malformed", "Malformed request", 3)
        },
        Refusal::Unreadable(why) => Verdict {
            close: true,
            ..match why {
                Unreadable::Ambiguous(_) => row(StatusCode::BAD_REQUEST, "malformed", "Malformed request", 3),
                Unreadable::TargetTooLong(_) => {
                    row(StatusCode::URI_TOO_LONG, "malformed", "Target too long", 3)
                }
                Unreadable::TooLong(_) | Unreadable::TooManyFields(_) => {
                    row(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "malformed", "Request head too large", 3)
                }
            }
        },
        Refusal::TargetTooLong => row(StatusCode::URI_TOO_LONG, "malformed", "Target too long", 3),
        Refusal::SlowRequest => Verdict {
            close: true,
            ..row(StatusCode::REQUEST_TIMEOUT, "request-timeout", "Request body too slow", 4)
        },
        Refusal::BrokenRequest | Refusal::CutShort(RequestFault::Broken) => {
            Verdict { close: true, ..row(StatusCode::BAD_REQUEST, "malformed", "Request body broken", 3) }
        }
        Refusal::Forbidden(_) => {
            Verdict { level: Level::WARN, ..row(StatusCode::FORBIDDEN, "forbidden", "Not granted", 7) }
        }
        Refusal::Stale { .. } => Verdict {
            level: Level::WARN,
            ..row(StatusCode::PRECONDITION_FAILED, "stale", "Stale fencing token", 9)
        },
        Refusal::NotIssued { .. } => row(StatusCode::FORBIDDEN, "not-issued", "Fencing token not issued", 7),
        Refusal::Unverified(_) => row(StatusCode::FORBIDDEN, "not-issued", "Signed token not good", 7),
        Refusal::Departed { .. } => row(StatusCode::FORBIDDEN, "not-issued", "Leader has left", 7),
        Refusal::Frozen { .. } => row(StatusCode::LOCKED, "frozen", "Resource frozen", 9),
        Refusal::Raising => unavailable("raising", "Earlier writes still draining"),
        Refusal::StoreUnavailable => unavailable("store-unavailable", "Token store unavailable"),
        Refusal::Fenced => unavailable("fenced", "Replica fenced"),
        Refusal::Overloaded => unavailable("overloaded", "Gateway overloaded"),
        Refusal::Throttled => unavailable("overloaded", "Too many bogus tokens"),
        Refusal::NoRoom { .. } => unavailable("overloaded", "Too many resources"),
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
        Refusal::Upstream { .. } | Refusal::CutShort(_) => Decision::Failed,
        _ => Decision::Refused,
    }
}

/// Which limit of the config was met.
pub(super) fn limit(refusal: &Refusal) -> Option<Limit> {
    match refusal {
        Refusal::NoRoom { .. } => Some(Limit::MaxResources),
        Refusal::Throttled => Some(Limit::RefusalsPerSecond),
        _ => None,
    }
}

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// The refusal as HTTP: problem+json (RFC 9457), or a gRPC status for who speaks gRPC.
pub(super) fn response(
    refusal: &Refusal,
    story: &Story,
    grpc: bool,
    token_header: &HeaderName,
) -> Response<Body> {
    let row = verdict(refusal);
    let detail = detail(refusal, story, token_header);
    let mut answer = Response::builder().header(REASON, row.reason);
    if let Some(resource) = &story.resource {
        // For clients that do not read bodies: whether it is their own leadership that this is about.
        answer = answer.header(RESOURCE, resource.as_str());
    }
    if row.retry {
        answer = answer.header(RETRY_AFTER, "1");
    }
    if row.close {
        answer = answer.header(CONNECTION, "close");
    }
    if let Some(outcome) = outcome(refusal) {
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

/// Whether a request that got as far as its upstream may have taken effect.
fn outcome(refusal: &Refusal) -> Option<Outcome> {
    match refusal {
        Refusal::Upstream { outcome, .. } => Some(*outcome),
        Refusal::CutShort(_) => Some(Outcome::Unknown),
        _ => None,
    }
}

fn mark(refusal: &Refusal) -> Option<u64> {
    match refusal {
        Refusal::Stale { mark }
        | Refusal::NotIssued { mark }
        | Refusal::Departed { mark }
        | Refusal::Frozen { mark } => Some(*mark),
        _ => None,
    }
}

/// Percent-encoded, as the gRPC protocol wants it.
pub(super) fn grpc_message(detail: &str) -> HeaderValue {
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
