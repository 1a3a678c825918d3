//! The production gate as a value: a [`Mark`] cannot be copied, so it is built from what it holds whenever it is used.

use highgate::ledger::mark::{Denied, Mark, Release};
use highgate_elector::Token;

/// What a [`Mark`] holds, but for the generation of its word, which only threads that race for it can see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gate {
    token: u64,
    /// The token that it was last open for; whatever is held was let in at this one or before.
    passed: u64,
    is_open: bool,
    held: u64,
}

impl Gate {
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn admit(&mut self, token: Token) -> Result<(), Denied> {
        self.with(|mark| mark.admit(token))
    }

    /// Whether that emptied a gate that is shut.
    pub(crate) fn release(&mut self) -> bool {
        self.with(Mark::release) == Release::Drained
    }

    /// Marks never go down. How many are still to be let out.
    pub(crate) fn close(&mut self, token: u64) -> u64 {
        let token = token.max(self.token);
        self.with(|mark| mark.close(token).remaining)
    }

    /// False if lower requests are still held.
    pub(crate) fn open(&mut self) -> bool {
        let opened = self.with(|mark| mark.open().is_ok());
        if opened {
            self.passed = self.token;
        }
        opened
    }

    fn with<R>(&mut self, act: impl FnOnce(&Mark) -> R) -> R {
        let mark = self.build();
        let result = act(&mark);
        (self.token, self.is_open, self.held) = (mark.token(), mark.is_open(), mark.in_flight());
        result
    }

    fn build(&self) -> Mark {
        let mark = Mark::shut_at(self.passed);
        if let Some(passed) = Token::new(self.passed) {
            mark.open().expect("nothing is held yet");
            for _ in 0..self.held {
                mark.admit(passed).expect("it is open at this token");
            }
        }
        if !self.is_open {
            let _ = mark.close(self.token);
        }
        mark
    }
}
