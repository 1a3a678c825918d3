//! The real ledger under threads: workers admit and release as fast as they can, a driver closes and opens.
//!
//! The input says how often each worker lingers and what the driver does; how it interleaves is up to the machine.
//! What must hold: a permit is counted only while it is held, so two tokens that are counted at once were held at
//! once; after a close no lower token gets in; and of a close that finds requests under way the last release is
//! reported, once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use highgate::ledger::{Ledger, Shut};
use highgate_elector::{Resource, Token};

use super::target::{Answer, Target};

/// Marks go from 1 to this.
const MARKS: usize = 24;
const WORKERS: usize = 2;
/// A release that is not reported by then never will be.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn target() -> Target {
    Target {
        name: "threads",
        accepted: "close a gate over requests under way",
        examples: vec![(0..48).collect(), vec![0; 8], vec![255; 32]],
        words: &[],
        check,
        exact: false,
    }
}

fn check(input: &[u8]) -> Result<Answer, String> {
    let shared = Arena::new(input);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let shared = &shared;
            scope.spawn(move || shared.work(worker));
        }
        let done = shared.drive();
        shared.over.store(true, Ordering::SeqCst);
        if let Err(wrong) = done {
            shared.fail(wrong);
        }
    });
    if let Some(wrong) = shared.wrong.lock().unwrap().take() {
        return Err(wrong);
    }
    let (reported, expected) =
        (shared.reported.load(Ordering::SeqCst), shared.expected.load(Ordering::SeqCst));
    if reported != expected {
        return Err(format!("{reported} drains were reported, and there were {expected}"));
    }
    Ok(Answer::of(expected > 0))
}

struct Arena<'i> {
    input: &'i [u8],
    ledger: Ledger,
    resource: Resource,
    /// How many permits of each token are held: counted after the admission, uncounted before the release.
    inside: [AtomicU64; MARKS + 1],
    /// Below this nothing is admitted any more.
    closed: AtomicU64,
    reported: Arc<AtomicU64>,
    expected: AtomicU64,
    over: AtomicBool,
    wrong: Mutex<Option<String>>,
}

impl<'i> Arena<'i> {
    fn new(input: &'i [u8]) -> Self {
        let reported = Arc::new(AtomicU64::new(0));
        let count = reported.clone();
        Self {
            input,
            ledger: Ledger::new(move |_| _ = count.fetch_add(1, Ordering::SeqCst)),
            resource: Resource::parse("r").expect("a name"),
            inside: std::array::from_fn(|_| AtomicU64::new(0)),
            closed: AtomicU64::new(0),
            reported,
            expected: AtomicU64::new(0),
            over: AtomicBool::new(false),
            wrong: Mutex::new(None),
        }
    }

    fn byte(&self, at: usize) -> u8 {
        if self.input.is_empty() { 0 } else { self.input[at % self.input.len()] }
    }

    fn fail(&self, wrong: String) {
        self.wrong.lock().unwrap().get_or_insert(wrong);
    }

    fn work(&self, worker: usize) {
        let cell = self.ledger.enter(&self.resource);
        let mut round = worker;
        while !self.over.load(Ordering::SeqCst) {
            round += WORKERS;
            let turn = self.byte(round);
            let closed = self.closed.load(Ordering::SeqCst);
            // Mostly at the mark, now and then the one before.
            let number = cell.mark().saturating_sub(u64::from(turn % 7 == 6));
            let Some(token) = Token::new(number) else {
                thread::yield_now();
                continue;
            };
            let Ok(permit) = cell.clone().admit(token) else {
                thread::yield_now();
                continue;
            };
            if number < closed {
                self.fail(format!("{number} was admitted after a close at {closed}"));
            }
            self.stay(number, turn);
            drop(permit);
        }
    }

    fn stay(&self, number: u64, turn: u8) {
        let own = usize::try_from(number).expect("a small number");
        self.inside[own].fetch_add(1, Ordering::SeqCst);
        for (other, count) in self.inside.iter().enumerate() {
            if other != own && count.load(Ordering::SeqCst) > 0 {
                self.fail(format!("permits of {own} and {other} are held at once"));
            }
        }
        for _ in 0..u32::from(turn) * 2 {
            std::hint::spin_loop();
        }
        if turn % 4 == 3 {
            thread::yield_now();
        }
        self.inside[own].fetch_sub(1, Ordering::SeqCst);
    }

    /// Raises from mark to mark, each time in another way.
    fn drive(&self) -> Result<(), String> {
        let mut mark = 0;
        let mut turns = 0;
        while mark < MARKS as u64 {
            let turn = self.byte(turns);
            turns += 1;
            mark = (mark + 1 + u64::from(turn % 3 == 2)).min(MARKS as u64);
            let under_way = self.close(mark) > 0;
            if turn % 4 == 1 && mark < MARKS as u64 {
                // Raised again before the first raise has drained: still one drain.
                mark += 1;
                let remaining = self.close(mark);
                if remaining > 0 && !under_way {
                    return Err(format!("{remaining} requests came in through a closed gate"));
                }
            }
            // Now and then too early: if it opens over somebody, the workers see each other inside.
            let early = turn % 4 == 2 && self.ledger.open(&self.resource, mark, false).is_ok();
            self.expect(under_way)?;
            if !early {
                let opened = self.ledger.open(&self.resource, mark, false);
                opened.map_err(|error| format!("drained, but {error}"))?;
            }
            self.let_in(turn);
        }
        let under_way = self.close(mark) > 0;
        self.expect(under_way)
    }

    fn close(&self, mark: u64) -> u64 {
        let drain = self.ledger.close(&self.resource, mark, Shut::Raised);
        self.closed.store(mark, Ordering::SeqCst);
        drain.remaining
    }

    /// Waits until the last release is reported, if there was something to wait for.
    fn expect(&self, under_way: bool) -> Result<(), String> {
        let expected = self.expected.load(Ordering::SeqCst) + u64::from(under_way);
        self.expected.store(expected, Ordering::SeqCst);
        let deadline = Instant::now() + PATIENCE;
        while self.reported.load(Ordering::SeqCst) < expected {
            if Instant::now() > deadline {
                return Err("the last release of a closed gate was not reported".to_owned());
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Until somebody is inside, or for a moment.
    fn let_in(&self, turn: u8) {
        for _ in 0..=turn % 16 {
            if turn % 5 != 4 && self.ledger.in_flight() > 0 {
                break;
            }
            thread::yield_now();
        }
    }
}
