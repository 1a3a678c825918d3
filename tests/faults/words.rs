//! What the harness and its writers say to each other: a line of JSON each, over the writer's standard input and
//! output. Times are nanoseconds of CLOCK_BOOTTIME, which is the same for all processes of a machine.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::load::Load;
use crate::support::writer::Outcome;

/// Who a writer is: its only argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Post {
    /// Different for every process, also for one that takes the place of another.
    pub(crate) name: String,
    pub(crate) resource: String,
    /// Where it campaigns.
    pub(crate) url: String,
    pub(crate) ttl_ms: u64,
    pub(crate) seed: u64,
    pub(crate) load: Load,
}

/// To a writer. At the end of its input it ends, too.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Where the gateways are now.
    Doors(Vec<Place>),
    /// Resign at once, if it leads, with writes under way.
    Resign,
    /// Campaign no longer.
    Rest,
    /// Forget all that is known of etcd and, after a while, campaign anew.
    Reconnect,
    /// Resign and end.
    End,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) data: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// A balancer would send to it.
    pub(crate) ready: bool,
}

/// From a writer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    Won { token: u64, at: u64 },
    Over { token: u64, at: u64, how: String },
    Wrote(Wrote),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Wrote {
    pub(crate) id: String,
    pub(crate) token: u64,
    pub(crate) gateway: usize,
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// It led by its own clock, when it sent this and when it was answered, and asked for nothing that keeps a write
    /// from passing.
    pub(crate) led: bool,
    pub(crate) outcome: Outcome,
}
