//! The real ledger, step by step beside a model of it: each byte of the input is one step.
//!
//! The model is a mark, whether the gate is open, and a list of the permits held. What must hold after every step:
//! the ledger says what the model says, permits of two tokens are never held at once, and the release that empties
//! a closed gate is reported, once. `threads` does the same with threads, without a model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highgate::ledger::mark::StillHeld;
use highgate::ledger::{Denied, Ledger, NotOpened, Permit, Shut};
use highgate_elector::{Resource, Token};

use super::target::{Answer, Target, ensure};

pub(crate) fn target() -> Target {
    // As in `Gate::step`: the low three bits say what, the others with what.
    let examples = [[9, 3, 0, 0, 1, 9, 3, 1, 3, 0, 2, 4], [9, 3, 0, 5, 6, 1, 9, 1, 7, 3, 12, 0]];
    Target {
        name: "gate",
        accepted: "close a gate that reports its last release",
        examples: examples.map(|steps| steps.repeat(4)).to_vec(),
        words: &["\t\u{3}\0\0", "\u{1}\u{1}\u{1}", "\t\u{3}"],
        check,
        exact: true,
    }
}

fn check(input: &[u8]) -> Result<Answer, String> {
    let mut gate = Gate::new();
    for (at, step) in input.iter().enumerate() {
        gate.step(*step).map_err(|wrong| format!("at step {at}: {wrong}"))?;
        gate.compare().map_err(|wrong| format!("after step {at}: {wrong}"))?;
    }
    Ok(Answer::of(gate.expected > 0))
}

struct Gate {
    ledger: Ledger,
    resource: Resource,
    /// How often the ledger said that a closed gate is empty, and how often it should have.
    reported: Arc<AtomicU64>,
    expected: u64,
    mark: u64,
    open: bool,
    /// Which token the gate was last open for.
    passed: u64,
    shut: Shut,
    held: Vec<Permit>,
    blocked: usize,
}

impl Gate {
    fn new() -> Self {
        let reported = Arc::new(AtomicU64::new(0));
        let count = reported.clone();
        let ledger = Ledger::new(move |_| _ = count.fetch_add(1, Ordering::SeqCst));
        let resource = Resource::parse("r").expect("a name");
        let (held, shut) = (Vec::new(), Shut::Raised);
        Self {
            ledger,
            resource,
            reported,
            expected: 0,
            mark: 0,
            open: false,
            passed: 0,
            shut,
            held,
            blocked: 0,
        }
    }

    fn step(&mut self, step: u8) -> Result<(), String> {
        let with = usize::from(step >> 3);
        match step & 7 {
            0 => self.admit(self.mark),
            1 if with % 2 == 1 => self.close(self.mark + with as u64 / 2 + 1, Shut::Raised),
            1 => self.release(with),
            2 => self.admit((self.mark + with as u64 % 3).saturating_sub(1)),
            3 => self.open(self.mark),
            4 => self.open((self.mark + with as u64 % 3).saturating_sub(1)),
            5 => self.close(self.mark.saturating_sub(with as u64), [Shut::Frozen, Shut::Vacant][with % 2]),
            6 => self.block(with),
            _ => self.settle(),
        }
    }

    fn admit(&mut self, number: u64) -> Result<(), String> {
        let Some(token) = Token::new(number) else { return Ok(()) };
        let cell = self.ledger.enter(&self.resource);
        let expected = self.denied(number);
        if expected.is_none() {
            ensure(cell.look(token).is_ok(), || format!("{token} would not pass"))?;
        }
        match (cell.admit(token), expected) {
            (Ok(permit), None) => self.held.push(permit),
            (Err(denied), Some(expected)) if denied == expected => {}
            (outcome, expected) => {
                return Err(format!(
                    "{token}: {:?}, expected {expected:?}",
                    outcome.map(|permit| permit.token())
                ));
            }
        }
        Ok(())
    }

    fn denied(&self, number: u64) -> Option<Denied> {
        let mark = self.mark;
        let frozen = !self.open && self.shut == Shut::Frozen;
        match number.cmp(&mark) {
            std::cmp::Ordering::Less => Some(Denied::Stale { mark }),
            _ if frozen => Some(Denied::Frozen { mark }),
            std::cmp::Ordering::Greater => Some(Denied::Ahead { mark }),
            std::cmp::Ordering::Equal if self.open => None,
            std::cmp::Ordering::Equal if self.shut == Shut::Vacant => Some(Denied::Vacant { mark }),
            std::cmp::Ordering::Equal => Some(Denied::Raising),
        }
    }

    fn under_way(&self) -> usize {
        self.held.len() + self.blocked
    }

    fn release(&mut self, with: usize) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let permit = self.held.swap_remove(with % self.held.len());
        self.expected += u64::from(!self.open && self.under_way() == 0);
        drop(permit);
        Ok(())
    }

    fn block(&mut self, with: usize) -> Result<(), String> {
        if !self.held.is_empty() {
            let permit = self.held.swap_remove(with % self.held.len());
            self.ledger.block(permit);
            self.blocked += 1;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), String> {
        let last = self.blocked > 0 && self.held.is_empty();
        self.expected += u64::from(!self.open && last);
        self.blocked = 0;
        self.ledger.settle(&self.resource);
        Ok(())
    }

    fn close(&mut self, mark: u64, shut: Shut) -> Result<(), String> {
        let drain = self.ledger.close(&self.resource, mark, shut);
        (self.mark, self.open, self.shut) = (self.mark.max(mark), false, shut);
        let under_way = self.under_way() as u64;
        ensure(drain.remaining == under_way, || format!("{drain:?}, and {under_way} are held"))
    }

    fn open(&mut self, mark: u64) -> Result<(), String> {
        let outcome = self.ledger.open(&self.resource, mark, false);
        let held = self.under_way() as u64;
        let expected = if mark != self.mark {
            Err(NotOpened::WentBack { known: self.mark, mark })
        } else if held > 0 && self.passed != mark {
            Err(NotOpened::Held(StillHeld { held }))
        } else {
            Ok(())
        };
        ensure(outcome == expected, || format!("open at {mark}: {outcome:?}, expected {expected:?}"))?;
        if mark == self.mark {
            self.shut = Shut::Raised;
        }
        if expected.is_ok() {
            (self.open, self.passed) = (true, mark);
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), String> {
        let cell = self.ledger.enter(&self.resource);
        let (told, modelled) = ((cell.mark(), cell.is_open()), (self.mark, self.open));
        ensure(told == modelled, || format!("mark and open: {told:?}, expected {modelled:?}"))?;
        let under_way = self.under_way() as u64;
        let counts = [cell.in_flight(), self.ledger.in_flight()];
        ensure(counts == [under_way; 2], || format!("in flight: {counts:?}, and {under_way} are held"))?;
        let reported = self.reported.load(Ordering::SeqCst);
        ensure(reported == self.expected, || {
            format!("{reported} drains reported, expected {}", self.expected)
        })?;
        let one_token = self.held.iter().all(|permit| permit.token() == self.held[0].token());
        ensure(one_token, || "permits of two tokens are held at once".to_owned())
    }
}
