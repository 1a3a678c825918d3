//! What a gRPC client is told when a response that has begun cannot be finished.

use highgate_elector::headers::{OUTCOME, REASON};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::table::grpc_message;
use super::{Fault, Outcome, Refusal, table};
use crate::gate::forward::body::DownloadError;

/// The trailers in place of a reset, which a client could not tell from a fault of its own connection: UNAVAILABLE, with
/// the words and headers of a refusal.
pub(crate) fn broken_off(error: &DownloadError) -> HeaderMap {
    let refusal =
        Refusal::Upstream { fault: Fault::Broken("the response broke off"), outcome: Outcome::Unknown };
    let row = table::verdict(&refusal);
    let message = format!("{error}; the request may have taken effect");
    HeaderMap::from_iter([
        (HeaderName::from_static("grpc-status"), HeaderValue::from(row.grpc_status)),
        (HeaderName::from_static("grpc-message"), grpc_message(&message)),
        (HeaderName::from_static(REASON), HeaderValue::from_static(row.reason)),
        (HeaderName::from_static(OUTCOME), HeaderValue::from_static(Outcome::Unknown.as_str())),
    ])
}
