//! What the store keeps of a resource.

use super::Revision;
use crate::ledger::Shut;

/// The durable state of one resource, 24 bytes: there may be millions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The mark; 0 before the first token.
    pub token: u64,
    /// The revision that wrote this record; for a RAISED one, the revision that members acknowledge.
    pub modified: Revision,
    pub state: State,
    /// An operator keeps the resource shut, whatever its state.
    pub frozen: bool,
    /// The leader whose token the mark is has gone, and nobody has taken over yet.
    pub vacant: bool,
    /// An end with unknown outcome blocks higher tokens until an operator settles it.
    pub block: bool,
}

/// Whether a mark passes requests yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Requests with exactly the mark pass.
    #[default]
    Open,
    /// Lower tokens are refused, and the mark itself waits until they have drained.
    Raised,
}

impl Record {
    /// Whether requests with exactly the mark pass.
    pub fn passes(&self) -> bool {
        self.state == State::Open && !self.frozen && !self.vacant && self.token > 0
    }

    /// Why its gate is shut, while it is.
    pub(super) fn shut(&self) -> Shut {
        match () {
            () if self.frozen => Shut::Frozen,
            () if self.vacant => Shut::Vacant,
            () => Shut::Raised,
        }
    }
}
