//! Load: writers on every gateway, and a leadership per resource that keeps changing hands.
//!
//! Each resource has a leading token. Once it has passed somewhere, the next one leads a moment later. Writers send
//! the leading token, and every fifth time the one before it, as a deposed leader does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::gateway::Door;
use super::trial::Trial;
use super::writer::{Answers, Write};
use super::{PATIENCE, eventually};

/// How long a token leads after it has passed first.
const TERM: Duration = Duration::from_millis(150);

/// Which gateways a writer uses.
#[derive(Clone, Copy)]
pub(crate) enum Choice {
    /// Always the same one, whatever becomes of it.
    Loyal,
    /// Any that says that it is ready, as a balancer does.
    Balanced,
}

pub(crate) struct Load {
    lanes: Vec<Arc<Lane>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// One resource under load.
struct Lane {
    resource: String,
    leading: AtomicU64,
    term: Mutex<Term>,
    /// The highest token that has passed, by gateway.
    passed: Vec<AtomicU64>,
    /// From a token's first being sent to its first pass.
    raises: Mutex<Vec<Duration>>,
}

/// The leading token's.
struct Term {
    began: Instant,
    first_pass: Option<Instant>,
}

impl Load {
    /// One writer for each resource and gateway.
    pub(crate) fn start(trial: &Trial, resources: &[&str], choice: Choice) -> Self {
        let doors: Vec<_> = trial.gateways.iter().map(|gateway| gateway.door.clone()).collect();
        let lanes: Vec<_> = resources.iter().map(|name| Arc::new(Lane::new(name, doors.len()))).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for lane in &lanes {
            for first in 0..doors.len() {
                let writer = Writer {
                    lane: lane.clone(),
                    doors: doors.clone(),
                    first,
                    choice,
                    answers: trial.answers.clone(),
                };
                let stop = stop.clone();
                threads.push(thread::spawn(move || writer.run(&stop)));
            }
            let (lane, stop) = (lane.clone(), stop.clone());
            threads.push(thread::spawn(move || lane.conduct(&stop)));
        }
        Self { lanes, stop, threads }
    }

    /// Waits for so many more handovers of every resource.
    pub(crate) fn hands_over(&self, times: u64) {
        let goals: Vec<_> = self.lanes.iter().map(|lane| lane.leading() + times).collect();
        eventually(&format!("{times} more handovers"), || {
            self.lanes.iter().zip(&goals).all(|(lane, goal)| lane.leading() >= *goal)
        });
    }

    /// Waits until every gateway passes tokens that nobody had sent before; how long that took.
    pub(crate) fn resumes(&self) -> Duration {
        let began = Instant::now();
        let floors: Vec<_> = self.lanes.iter().map(|lane| lane.leading()).collect();
        eventually("every gateway passes new tokens", || {
            let is_above = |(lane, floor): (&Arc<Lane>, &u64)| {
                lane.passed.iter().all(|passed| passed.load(Ordering::SeqCst) > *floor)
            };
            self.lanes.iter().zip(&floors).all(is_above)
        });
        began.elapsed()
    }

    /// Ends the writers, and returns how long each raise took until its token passed.
    pub(crate) fn stop(self) -> Vec<Duration> {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("a writer that takes any answer");
        }
        let raises = |lane: &Arc<Lane>| lane.raises.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.lanes.iter().flat_map(raises).collect()
    }
}

impl Lane {
    fn new(resource: &str, gateways: usize) -> Self {
        Self {
            resource: resource.to_owned(),
            leading: AtomicU64::new(1),
            term: Mutex::new(Term { began: Instant::now(), first_pass: None }),
            passed: (0..gateways).map(|_| AtomicU64::new(0)).collect(),
            raises: Mutex::default(),
        }
    }

    fn leading(&self) -> u64 {
        self.leading.load(Ordering::SeqCst)
    }

    /// A write with this token passed at this gateway.
    fn passes(&self, token: u64, gateway: usize) {
        self.passed[gateway].fetch_max(token, Ordering::SeqCst);
        let mut term = self.term.lock().unwrap_or_else(PoisonError::into_inner);
        if token == self.leading() && term.first_pass.is_none() {
            let now = Instant::now();
            term.first_pass = Some(now);
            self.raises.lock().unwrap_or_else(PoisonError::into_inner).push(now - term.began);
        }
    }

    /// Lets the next token lead when this one has had its time.
    fn conduct(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            let mut term = self.term.lock().unwrap_or_else(PoisonError::into_inner);
            if term.first_pass.is_some_and(|passed| passed.elapsed() >= TERM) {
                *term = Term { began: Instant::now(), first_pass: None };
                self.leading.fetch_add(1, Ordering::SeqCst);
            }
            drop(term);
            thread::sleep(Duration::from_millis(5));
        }
    }
}

struct Writer {
    lane: Arc<Lane>,
    doors: Vec<Arc<Door>>,
    first: usize,
    choice: Choice,
    answers: Arc<Answers>,
}

impl Writer {
    fn run(&self, stop: &AtomicBool) {
        for turn in 0.. {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            let Some(gateway) = self.choose(turn) else { continue };
            let leading = self.lane.leading();
            let token = if (turn + self.first) % 5 == 4 { leading.saturating_sub(1).max(1) } else { leading };
            // Most of the time is spent on slow ones, so that handovers find one under way; and out of step, so
            // that they are not all between two writes at once.
            let delay = Duration::from_millis(if (turn + self.first).is_multiple_of(3) { 120 } else { 2 });
            let write =
                Write::new(self.doors[gateway].clone(), self.answers.clone(), &self.lane.resource, token);
            if write.delayed(delay).patience(PATIENCE).send().passed() {
                self.lane.passes(token, gateway);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The gateway to write to, or a short rest if there is none.
    fn choose(&self, turn: usize) -> Option<usize> {
        let is_ready = |gateway: &usize| self.doors[*gateway].is_ready.load(Ordering::SeqCst);
        let count = self.doors.len();
        let chosen = match self.choice {
            Choice::Loyal => Some(self.first),
            Choice::Balanced => (0..count).map(|step| (self.first + turn + step) % count).find(is_ready),
        };
        if chosen.is_none() {
            thread::sleep(Duration::from_millis(10));
        }
        chosen
    }
}
