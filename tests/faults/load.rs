//! How the writers write: what the upstream is asked to do with it, how long leaders lead, and how long they haunt.
//!
//! Drawn by every writer for itself; sent to it with its post.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::chance::Chance;

/// From and to, in milliseconds.
pub(crate) type Millis = (u64, u64);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// How many writes a writer may have under way.
    pub(crate) threads: usize,
    /// How long the upstream takes, each range as likely as its number says.
    pub(crate) delays: Vec<(usize, Millis)>,
    pub(crate) manners: Vec<(usize, Manner)>,
    /// How long a leader leads before it resigns by itself.
    pub(crate) terms: Millis,
    /// How long a deposed token is still sent, and for how much of that by all threads rather than one.
    pub(crate) zombie: u64,
    pub(crate) fresh: u64,
    /// One thread sends tokens that were deposed long ago, whoever leads now.
    pub(crate) haunts: bool,
    /// One write in so many goes to any gateway, ready or not.
    pub(crate) any_door: usize,
    /// Leaders wait until the gateways pass their token.
    pub(crate) sealed: bool,
}

/// What is out of the ordinary about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Manner {
    Plain,
    /// The head of the answer comes long before its end.
    HeadFirst,
    /// The upstream takes effect and resets the connection.
    BreaksOff,
    /// A load balancer before the upstream answers 504 at once, and the upstream goes on.
    GivenUp,
    /// The writer does not wait for the answer.
    HangsUp,
    /// A large body that the upstream reads bit by bit.
    ReadSlowly,
    /// A large body whose last byte the writer sends late.
    UploadedSlowly,
}

impl Load {
    /// Most writes are fast, but a handover finds a slow one under way almost always.
    pub(crate) fn usual() -> Self {
        Self {
            threads: 5,
            delays: vec![(56, (0, 20)), (26, (20, 300)), (14, (300, 900)), (4, (900, 3000))],
            manners: vec![
                (30, Manner::Plain),
                (6, Manner::HeadFirst),
                (3, Manner::UploadedSlowly),
                (1, Manner::HangsUp),
                (1, Manner::BreaksOff),
                (1, Manner::GivenUp),
            ],
            terms: (400, 4000),
            zombie: 4000,
            fresh: 1000,
            haunts: false,
            any_door: 8,
            sealed: true,
        }
    }

    /// Leaders come and go, and those that are deposed go on with all that they have.
    pub(crate) fn hasty() -> Self {
        Self {
            delays: vec![(50, (0, 30)), (25, (30, 300)), (25, (300, 900))],
            manners: vec![(1, Manner::Plain)],
            terms: (150, 500),
            fresh: 4000,
            ..Self::usual()
        }
    }

    /// Leaders stay until they are told to resign, and many writes are slow.
    pub(crate) fn steady() -> Self {
        Self {
            delays: vec![(60, (0, 50)), (25, (200, 900)), (15, (1500, 3000))],
            terms: (20_000, 60_000),
            zombie: 8000,
            fresh: 8000,
            ..Self::hasty()
        }
    }

    pub(crate) fn with(self, delays: &[(usize, Millis)]) -> Self {
        Self { delays: delays.to_vec(), ..self }
    }

    pub(crate) fn with_manners(self, manners: &[(usize, Manner)]) -> Self {
        Self { manners: manners.to_vec(), ..self }
    }

    pub(crate) fn delay(&self, chance: &mut Chance) -> Duration {
        let (least, most) = chance.weighted(&self.delays);
        chance.between(Duration::from_millis(least), Duration::from_millis(most))
    }

    pub(crate) fn term(&self, chance: &mut Chance) -> Duration {
        chance.spread(Duration::from_millis(self.terms.0), Duration::from_millis(self.terms.1))
    }
}
