//! The sentence of a refusal: what happened, to which resource, how that was found, and what to do.
//!
//! A refusal is often read by somebody whose request meant another resource than they thought, so those that hang on
//! the resource say where its name is from.

use highgate_elector::headers;
use http::HeaderName;

use super::{Fault, Outcome, Refusal, RequestFault, Story};
use crate::config::{ResourceRule, Route, spelled};
use crate::gate::accept::Unreadable;
use crate::gate::claim::ClaimError;
use crate::gate::entitle::Forbidden;

/// What happened, to which resource, and what to do.
pub(super) fn detail(refusal: &Refusal, story: &Story, token_header: &HeaderName) -> String {
    let resource = story.resource.as_ref().map_or("the resource", |resource| resource.as_str());
    let token = story.token.map_or_else(|| "none".to_owned(), |token| token.to_string());
    match refusal {
        Refusal::Unclaimed(ClaimError::Missing) => format!(
            "a write to {} needs a fencing token: send the one that its election gave you in the header {}",
            meant(story),
            spelled(token_header.as_str())
        ),
        Refusal::Unclaimed(why) => why.to_string(),
        Refusal::Unreadable(why) => unreadable(*why),
        Refusal::TargetTooLong => "the target is too long for the upstream's base path".to_owned(),
        Refusal::SlowRequest => "the request body did not arrive in time; nothing was forwarded".to_owned(),
        Refusal::BrokenRequest => "the request body broke off; nothing was forwarded".to_owned(),
        Refusal::CutShort(fault) => {
            let what = match fault {
                RequestFault::Broken => "the request body broke off".to_owned(),
                RequestFault::TooLarge(limit) => {
                    format!("the request body is larger than `max_body` of the route, {limit} bytes")
                }
            };
            format!("{what}; a part of it was forwarded, so the request may have taken effect")
        }
        Refusal::Forbidden(why) => forbidden(why, &token, &meant(story)),
        Refusal::Stale { mark } => format!(
            "token {token} is below the mark {mark} of {}: a later leader has taken over; stop writing",
            meant(story)
        ),
        Refusal::NotIssued { mark } => format!(
            "token {token} was not issued to the leader of {}, whose mark is {mark}; win the election first",
            meant(story)
        ),
        Refusal::Unverified(why) => {
            format!("the signed token {token} is not good for {}: {why}", meant(story))
        }
        Refusal::Departed { .. } => format!(
            "the leader of {} that had token {token} has left (it resigned, was evicted, or let its lease run out), and \
             nobody has followed; stop writing, or win the election again for a new token",
            meant(story)
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
        Refusal::NoRoom { limit } => format!(
            "{} is new, and the gateway has as many resources as requests may make, {limit} (`max_resources` of [store]); \
             those that it knows go on",
            meant(story)
        ),
        Refusal::Throttled => format!(
            "too many requests from your address have failed for their tokens, and token {token} would have to be looked up; \
             bring the mark of {resource}, or try again later"
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

fn unreadable(why: Unreadable) -> String {
    match why {
        Unreadable::Ambiguous(why) => why.to_owned(),
        Unreadable::TargetTooLong(most) => {
            format!("the request's target is longer than a request's head may be, {} KiB", most >> 10)
        }
        Unreadable::TooLong(most) => format!("the request's head is larger than {} KiB", most >> 10),
        Unreadable::TooManyFields(most) => format!("the request has more than {most} header fields"),
    }
}

/// Never what grants or elections know of others.
fn forbidden(why: &Forbidden, token: &str, meant: &str) -> String {
    let credential = spelled(headers::CREDENTIAL);
    match why {
        Forbidden::Nobody => format!(
            "only who was granted it may write to {meant}, and this request does not say who sends it: send your secret \
             in the header {credential}"
        ),
        Forbidden::UnknownCredential => format!(
            "only who was granted it may write to {meant}, and what {credential} carries is no secret that this gateway \
             knows"
        ),
        Forbidden::NotGranted(who) => {
            format!("{who} may not write to {meant}: no [[grants]] table of the gateway's config lets it")
        }
        Forbidden::NotHolder(_) => format!(
            "token {token} of {meant} was issued to another identity, and only that one may use it here; win the \
             election yourself"
        ),
        Forbidden::UnknownHolder => format!(
            "nobody knows to which identity token {token} of {meant} was issued, and only that one may use it here; \
             campaign through a gateway, with the identity that you write with"
        ),
    }
}

/// The resource that the request meant, and where its name is from.
fn meant(story: &Story) -> String {
    match (&story.resource, &story.route) {
        (Some(resource), Some(route)) => format!("{resource} ({})", source(route, story.names_resource)),
        (Some(resource), None) => resource.to_string(),
        (None, _) => "the resource".to_owned(),
    }
}

fn source(route: &Route, named: bool) -> String {
    let (name, header) = (&route.name, spelled(headers::RESOURCE));
    match &route.resource {
        ResourceRule::Fixed(_) => format!("the resource of route {name}"),
        template @ ResourceRule::Template(_) => format!("by {template} of route {name}"),
        ResourceRule::Client { .. } if named => format!("named by the request's {header}"),
        ResourceRule::Client { .. } => {
            format!("the default of route {name}, as the request has no {header}; send it to name another")
        }
    }
}
