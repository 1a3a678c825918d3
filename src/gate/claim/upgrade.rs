//! Whether a request asks to go on with another protocol that its route takes.
//!
//! Everywhere else an `Upgrade` is dropped on the way to the upstream, as RFC 9110 lets every server do. What must stay
//! true: a request that asks has no body and offers one protocol, so that there is one reading of what comes after it.

use http::header::{CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_KEY, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Version};

use super::Malformed;
use crate::config::{Protocol, Upgrades};

/// The protocol that the request asks for. None: it is a request like any other.
pub(super) fn asked(head: &Parts, upgrades: &Upgrades) -> Result<Option<Protocol>, Malformed> {
    let headers = &head.headers;
    if upgrades.is_empty() || head.version != Version::HTTP_11 || !is_for_this_connection(headers) {
        return Ok(None);
    }
    let Some(protocol) = items(headers, &UPGRADE).find_map(|name| upgrades.find(name)) else {
        return Ok(None);
    };
    if items(headers, &UPGRADE).count() > 1 {
        return Err(Malformed::Upgrades);
    }
    if headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING) {
        return Err(Malformed::UpgradeWithBody);
    }
    if headers.get_all(SEC_WEBSOCKET_KEY).iter().count() > 1 {
        return Err(Malformed::WebSocketKeys);
    }
    Ok(Some(protocol.clone()))
}

/// Without the option in `Connection` an `Upgrade` was meant for somebody before.
pub(in crate::gate) fn is_for_this_connection(headers: &HeaderMap) -> bool {
    items(headers, &CONNECTION).any(|option| option.eq_ignore_ascii_case(b"upgrade"))
}

fn items<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    let values = headers.get_all(name).into_iter();
    let items = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    items.map(<[u8]>::trim_ascii).filter(|item| !item.is_empty())
}
