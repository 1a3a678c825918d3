//! What is counted of client addresses, on all cores together: their connections, and the requests that failed for their
//! tokens.
//!
//! The hot path does not come here: connections are counted where they open and close, refusals where somebody is refused
//! or the store is about to be asked. What must stay true: a client cannot have more memory by having more addresses than
//! [`Buckets`] has places and `max_connections` allows connections.

mod buckets;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::config::Limits;
use buckets::Buckets;

/// Whom several connections belong to: an IPv4 address, or the network of an IPv6 address that its owner has for himself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    network: u64,
    is_ipv4: bool,
}

impl Owner {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self { network: address.to_bits().into(), is_ipv4: true },
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments().map(u64::from);
                Self { network: a << 48 | b << 32 | c << 16 | d, is_ipv4: false }
            }
        }
    }
}

pub(crate) struct Clients {
    started: Instant,
    connections: Option<Connections>,
    refusals: Option<Mutex<Buckets>>,
}

struct Connections {
    most: usize,
    open: Mutex<HashMap<Owner, usize, RandomState>>,
}

/// A connection that is counted for its client until this is dropped.
pub(super) struct Place {
    clients: Arc<Clients>,
    owner: Owner,
}

impl Clients {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        let connections = |most| Connections { most, open: Mutex::default() };
        Arc::new(Self {
            started: Instant::now(),
            connections: limits.connections_per_client.map(connections),
            refusals: limits.refusals.map(|limits| Mutex::new(Buckets::new(limits))),
        })
    }

    /// Counts a connection. None: this client has as many as it may.
    pub(super) fn connect(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let owner = Owner::of(address);
        if let Some(connections) = &self.connections {
            let mut open = connections.open.lock();
            let count = open.entry(owner).or_default();
            if *count >= connections.most {
                return None;
            }
            *count += 1;
        }
        Some(Place { clients: self.clone(), owner })
    }

    /// Counts a request that failed for its token. False: there were too many, and this one is to be turned away.
    pub(crate) fn refuse(&self, address: IpAddr) -> bool {
        let Some(refusals) = &self.refusals else { return true };
        refusals.lock().take(Owner::of(address), self.started.elapsed())
    }

    /// Whether so many requests of this client have failed that the store is not asked for another.
    pub(crate) fn is_spent(&self, address: IpAddr) -> bool {
        let Some(refusals) = &self.refusals else { return false };
        refusals.lock().is_empty(Owner::of(address), self.started.elapsed())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(connections) = &self.clients.connections else { return };
        let mut open = connections.open.lock();
        if let Some(count) = open.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{HeadLimits, RefusalLimits};

    fn clients(connections_per_client: Option<usize>) -> Arc<Clients> {
        Clients::new(&Limits {
            connections_per_client,
            requests_per_connection: None,
            streams_per_connection: 200,
            head: HeadLimits { bytes: 64 << 10, fields: 100 },
            refusals: Some(RefusalLimits { per_second: 1, burst: 3 }),
            send_timeout: Duration::from_secs(1),
        })
    }

    #[test]
    fn a_client_has_so_many_connections_and_no_more() {
        let clients = clients(Some(2));
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let first = clients.connect(one).unwrap();
        let second = clients.connect("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert!(clients.connect(one).is_none() && clients.connect(other).is_some());
        drop(first);
        assert!(clients.connect(one).is_some());
        drop(second);
        assert!(clients.connections.as_ref().unwrap().open.lock().is_empty(), "nobody is remembered");
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_client() {
        let clients = clients(None);
        let address = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, last, last, last, last]);
        assert!((0..3).all(|last| clients.refuse(address(last))));
        assert!(clients.is_spent(address(9)) && !clients.refuse(address(10)));
        assert!(!clients.is_spent("2001:db8:0:8::1".parse().unwrap()));
        assert!(!clients.is_spent("0.0.0.7".parse().unwrap()));
    }
}
