//! The lock service of the demo: one lease, held by one leader at a time, with a token that grows.
//!
//! It does everything right, and it is not enough: it cannot take a write back that a former holder makes
//! after its time is up. Leaders ask it over HTTP: `POST /acquire` and `POST /renew`, with a [`Claim`], get
//! 200 and a [`Grant`], or 409 and the [`Held`] that is in the way.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::wire::{Server, json, status};

/// How long a lease lasts without being renewed.
pub(super) const TTL: Duration = Duration::from_millis(1500);
pub(super) const FIRST_TOKEN: u64 = 33;
pub(super) const ACQUIRE: &str = "/acquire";
pub(super) const RENEW: &str = "/renew";

/// Who asks, and on a renewal the token that was granted.
#[derive(Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) holder: String,
    pub(super) token: Option<u64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) token: u64,
}

/// The lease is another's, or on a renewal perhaps nobody's.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) by: Option<String>,
}

pub(super) struct LeaseServer(Server);

impl LeaseServer {
    pub(super) async fn start() -> io::Result<Self> {
        let lease = Mutex::new(Lease::default());
        Server::start(move |request| answer(&mut lease.lock(), &request)).await.map(Self)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

fn answer(lease: &mut Lease, request: &Request<Bytes>) -> Response<Full<Bytes>> {
    let Ok(Claim { holder, token }) = serde_json::from_slice(request.body()) else {
        return status(StatusCode::BAD_REQUEST);
    };
    let granted = match (request.uri().path(), token) {
        (ACQUIRE, None) => lease.acquire(&holder, Instant::now()),
        (RENEW, Some(token)) => lease.renew(token, Instant::now()),
        _ => return status(StatusCode::NOT_FOUND),
    };
    match granted {
        Ok(grant) => json(StatusCode::OK, &grant),
        Err(held) => json(StatusCode::CONFLICT, &held),
    }
}

#[derive(Default)]
struct Lease {
    current: Option<Current>,
    granted: u64,
}

struct Current {
    holder: String,
    token: u64,
    ends: Instant,
}

impl Lease {
    /// Grants a lease that nobody holds, with a token above all earlier ones.
    fn acquire(&mut self, holder: &str, now: Instant) -> Result<Grant, Held> {
        if let Some(current) = self.held(now) {
            return Err(Held { by: Some(current.holder.clone()) });
        }
        let token = FIRST_TOKEN + self.granted;
        self.granted += 1;
        self.current = Some(Current { holder: holder.to_owned(), token, ends: now + TTL });
        Ok(Grant { token })
    }

    fn renew(&mut self, token: u64, now: Instant) -> Result<Grant, Held> {
        match self.held(now) {
            Some(current) if current.token == token => {
                current.ends = now + TTL;
                Ok(Grant { token })
            }
            other => Err(Held { by: other.map(|current| current.holder.clone()) }),
        }
    }

    fn held(&mut self, now: Instant) -> Option<&mut Current> {
        self.current.as_mut().filter(|current| now < current.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> Held {
        Held { by: Some(holder.to_owned()) }
    }

    #[test]
    fn a_lease_that_is_renewed_stays_with_its_holder() {
        let (mut lease, start) = (Lease::default(), Instant::now());
        assert_eq!(lease.acquire("A", start), Ok(Grant { token: 33 }));
        assert_eq!(lease.renew(33, start + TTL / 2), Ok(Grant { token: 33 }));
        assert_eq!(lease.acquire("B", start + TTL), Err(held_by("A")));
    }

    #[test]
    fn a_lease_that_ran_out_goes_to_the_next_with_a_higher_token() {
        let (mut lease, start) = (Lease::default(), Instant::now());
        assert_eq!(lease.acquire("A", start), Ok(Grant { token: 33 }));
        assert_eq!(lease.renew(33, start + TTL), Err(Held { by: None }));
        assert_eq!(lease.acquire("B", start + TTL), Ok(Grant { token: 34 }));
        assert_eq!(lease.renew(33, start + TTL), Err(held_by("B")));
    }
}
