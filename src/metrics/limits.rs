//! What met a limit of the config: `highgate_limited_total`, a series for each limit.

use metrics::{Counter, Label};

use super::{Registry, names};

/// A limit that a client can meet. Its label is the key of the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    MaxConnections,
    ConnectionsPerClient,
    RefusalsPerSecond,
    MaxResources,
    SendTimeout,
    ProxyProtocol,
}

impl Limit {
    const ALL: [Self; 6] = [
        Self::MaxConnections,
        Self::ConnectionsPerClient,
        Self::RefusalsPerSecond,
        Self::MaxResources,
        Self::SendTimeout,
        Self::ProxyProtocol,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::MaxConnections => "max_connections",
            Self::ConnectionsPerClient => "connections_per_client",
            Self::RefusalsPerSecond => "refusals_per_second",
            Self::MaxResources => "max_resources",
            Self::SendTimeout => "send_timeout",
            Self::ProxyProtocol => "proxy_protocol",
        }
    }
}

/// One counter each, there from the start.
pub(super) struct Limited([(Limit, Counter); Limit::ALL.len()]);

impl Limited {
    pub(super) fn new(registry: &Registry) -> Self {
        Self(Limit::ALL.map(|limit| {
            let label = Label::new("limit", limit.label());
            (limit, registry.counter(names::LIMITED, vec![label]))
        }))
    }

    pub(super) fn count(&self, limit: Limit) {
        for (_, counter) in self.0.iter().filter(|(counted, _)| *counted == limit) {
            counter.increment(1);
        }
    }
}
