//! Heads of requests that ask for another protocol, and of the 101 that grants it.
//!
//! What must stay true: a client gets a 101 only if it asked for the one protocol that the upstream has switched to.

use std::rc::Rc;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue, UPGRADE};
use http::{Response, StatusCode};

use super::flight::Flight;
use super::headers;
use super::tunnel::Tunnel;
use crate::config::Protocol;
use crate::gate::respond::{Answer, Body, Refusal, Refused, Story};

/// Says in a head that was stripped of everything that speaks of one connection what this one is to go on with.
pub(super) fn name(headers: &mut HeaderMap, protocol: &Protocol) {
    let name = HeaderValue::from_str(protocol.as_str()).expect("a token is a header's value");
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, name);
}

/// Whether the upstream has switched to this protocol and no other.
pub(super) fn is_granted(head: &Response<()>, protocol: &Protocol) -> bool {
    let mut granted = head.headers().get_all(UPGRADE).iter();
    let (first, second) = (granted.next(), granted.next());
    first.is_some_and(|granted| protocol.is(granted.as_bytes().trim_ascii())) && second.is_none()
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
