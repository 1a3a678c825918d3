//! What the store keeps of a resource.

use super::Revision;
use crate::ledger::Shut;

/// The durable state of one resource, 32 bytes: there may be millions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The mark; 0 before the first token.
    pub token: u64,
    /// The revision that wrote this record; for a RAISED one, the revision that members acknowledge.
    pub modified: Revision,
    /// Up to where an operator has settled unknown outcomes.
    pub settled: Revision,
    pub state: State,
    /// An operator keeps the resource shut, whatever its state.
    pub frozen: bool,
    /// The leader whose token the mark is has gone, and nobody has taken over yet.
    pub vacant: bool,
    /// An end with unknown outcome blocks higher tokens until an operator settles it.
    pub block: bool,
    /// The same for the token that is being raised, once it is open.
    pub block_next: bool,
    /// An election issued the token, and the store has checked that.
    pub issued: bool,
    /// The store holds what nobody can read, and no mark was known before it: nothing passes, and nothing is
    /// written over it.
    pub unreadable: bool,
}

/// Whether a mark passes requests yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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

    /// With the mark raised to a higher token. What is unsettled below blocks this raise even if the route
    /// of the new token would not; once open, it is as that route asks. Below the first token there is nothing:
    /// whoever was before `watermark` has left nothing unsettled here.
    pub(super) fn raised(&self, token: u64, block: Option<bool>, issued: bool, watermark: Revision) -> Self {
        let block_next = block.unwrap_or(self.policy());
        Self {
            token,
            settled: if self.token == 0 { watermark } else { self.settled },
            state: State::Raised,
            vacant: false,
            block: self.block || block_next,
            block_next,
            issued,
            ..*self
        }
    }

    /// The same mark, sealed by who has applied everything up to `watermark`. Whoever was gone by then has never
    /// opened this mark, and what it left below is settled: else nobody could seal.
    pub(super) fn opened(&self, watermark: Revision) -> Self {
        Self { settled: watermark, state: State::Open, block: self.block_next, ..*self }
    }

    /// The same, with unknown outcomes of the mark left to an operator.
    pub(super) fn blocking(&self) -> Self {
        Self { block: true, block_next: true, ..*self }
    }

    /// Whether unknown outcomes of the mark are left to an operator, once it is open.
    pub fn policy(&self) -> bool {
        if self.state == State::Open { self.block } else { self.block_next }
    }
}
