//! Heads of requests that ask for another protocol, and of the 101 that grants it.
//!
//! What must stay true: a client gets a 101 only if it asked for the one protocol that the upstream has switched to; and
//! where the request has a WebSocket's key, the 101 is the answer to that key and to no other.

use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    UPGRADE,
};
use http::{Response, StatusCode};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::flight::Flight;
use super::headers;
use super::tunnel::Tunnel;
use crate::config::Protocol;
use crate::gate::claim::is_for_this_connection;
use crate::gate::respond::{Answer, Body, Refusal, Refused, Story};

/// Says in a head that was stripped of everything that speaks of one connection what this one is to go on with.
pub(super) fn name(headers: &mut HeaderMap, protocol: &Protocol) {
    let name = HeaderValue::from_str(protocol.as_str()).expect("a token is a header's value");
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, name);
}

/// What a request asks to go on with in HTTP's place.
pub(super) struct Asked {
    pub(super) protocol: Protocol,
    /// What a WebSocket's server makes of the request's key.
    accept: Option<String>,
}

impl Asked {
    /// `headers`: those of the request, which has one key at the most.
    pub(super) fn new(protocol: Protocol, headers: &HeaderMap) -> Self {
        let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| protocol.is_websocket());
        let accept = key.map(|key| accept(key.as_bytes()));
        Self { protocol, accept }
    }

    /// Whether a 101 is about this connection, and grants what was asked for and nothing else. An error says why not.
    pub(super) fn check(&self, head: &Response<()>) -> Result<(), &'static str> {
        let headers = head.headers();
        if !only(headers, &UPGRADE).is_some_and(|granted| self.protocol.is(granted)) {
            return Err("another protocol was switched to than was asked for");
        }
        if !is_for_this_connection(headers) {
            return Err("protocols were switched without `upgrade` in Connection");
        }
        match &self.accept {
            Some(accept) if only(headers, &SEC_WEBSOCKET_ACCEPT) != Some(accept.as_bytes()) => {
                Err("the WebSocket's handshake does not answer the key of the request")
            }
            _ => Ok(()),
        }
    }
}

/// The only value of a header.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().filter(|_| values.next().is_none());
    first.map(|value| value.as_bytes().trim_ascii())
}

/// By RFC 6455, 4.2.2. SHA-1 protects nothing here: it shows that the other side speaks the protocol.
fn accept(key: &[u8]) -> String {
    let words = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &words))
}

pub(super) fn is_switch(head: &Response<()>) -> bool {
    head.status() == StatusCode::SWITCHING_PROTOCOLS
}

/// The 101 as the client gets it. Once that has left, its connection goes on as a tunnel.
pub(super) fn answer(flight: Rc<Flight>, mut head: Response<()>, story: Story) -> Result<Answer, Refused> {
    let (protocol, said) = match flight.switch(&head) {
        Ok(switched) => switched,
        Err(why) => return Err(Refused { refusal: Refusal::upstream_broken(why), story }),
    };
    headers::inbound(&mut head);
    head.headers_mut().remove(CONTENT_LENGTH);
    name(head.headers_mut(), &protocol);
    flight.client().hand_over(Tunnel::new(flight.clone(), &protocol, &said, &story));
    Ok(Answer { response: head.map(|()| Body::empty()), story })
}
