//! Many seeds, until one of them fails: with word of how far it is, and of what never happened in any of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::command::{Arguments, one};
use super::tally::Tally;
use super::world::{self, Order};

/// As many as a debug build runs in a few seconds.
pub(crate) const USUAL_SEEDS: u64 = 150;
/// In fewer runs than this it may be chance that something never happened; it may still be with what is rare.
const ENOUGH: u64 = 100;
const ENOUGH_FOR_THE_RARE: u64 = 1000;
/// So many seeds of a batch are run a second time, to see that a seed is a run.
const REPEATED: u64 = 4;
const WORD_EVERY: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the threads share.
struct Batch {
    from: u64,
    end: u64,
    next: AtomicU64,
    done: AtomicU64,
    /// The lowest seed that failed.
    failed: AtomicU64,
    working: AtomicU64,
    tally: Mutex<Tally>,
    started: Instant,
}

/// Whether no seed failed, and enough happened.
pub(crate) fn run(arguments: &Arguments, from: u64, count: u64) -> bool {
    let threads = arguments.threads();
    let batch = Batch {
        from,
        end: from + count,
        next: AtomicU64::new(from),
        done: AtomicU64::new(0),
        failed: AtomicU64::new(u64::MAX),
        working: AtomicU64::new(threads as u64),
        tally: Mutex::default(),
        started: Instant::now(),
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| batch.work());
        }
        batch.report();
    });
    let failed = batch.failed.load(Ordering::Relaxed);
    if failed < u64::MAX {
        one(arguments, failed, None);
        println!("again: cargo test --profile prove --test sim -- --seed {failed} --trace");
        return false;
    }
    let took = batch.started.elapsed().as_secs_f64();
    println!("{count} seeds from {from}: no violation, in {took:.1} s");
    replays(from, count) && batch.is_telling(count)
}

impl Batch {
    fn work(&self) {
        let mut own = Tally::default();
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end || self.failed.load(Ordering::Relaxed) < seed {
                break;
            }
            let outcome = world::run(Order { seed, focus: None, control: None, traced: false });
            own.add(&outcome.tally);
            self.done.fetch_add(1, Ordering::Relaxed);
            if outcome.violation.is_some() {
                self.failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
        self.tally.lock().expect("nothing panics while it holds this").add(&own);
        self.working.fetch_sub(1, Ordering::Relaxed);
    }

    /// A line now and then, as long as somebody works.
    fn report(&self) {
        let mut told = Instant::now();
        while self.working.load(Ordering::Relaxed) > 0 {
            thread::sleep(LOOK_EVERY);
            if told.elapsed() >= WORD_EVERY {
                told = Instant::now();
                let done = self.done.load(Ordering::Relaxed);
                let pace = done as f64 / self.started.elapsed().as_secs_f64();
                println!("{done} of {} seeds, {pace:.0} seeds/s", self.end - self.from);
            }
        }
    }

    /// A run in which something never happened shows nothing of it.
    fn is_telling(&self, count: u64) -> bool {
        let tally = self.tally.lock().expect("nothing panics while it holds this");
        let mut vacuous = Vec::new();
        for row in tally.rows() {
            println!("{:>12}  {}", row.times, row.name);
            let enough = if row.rare { ENOUGH_FOR_THE_RARE } else { ENOUGH };
            vacuous.extend((row.times == 0 && count >= enough).then_some(row.name));
        }
        if !vacuous.is_empty() {
            println!("never happened, so nothing was shown: {}", vacuous.join(", "));
        }
        vacuous.is_empty()
    }
}

/// A seed that does not replay is no use to whoever is told of it.
fn replays(from: u64, count: u64) -> bool {
    for seed in from..from + count.min(REPEATED) {
        let order = Order { seed, focus: None, control: None, traced: true };
        let [first, second] = [world::run(order), world::run(order)];
        let differs = first.trace.last(usize::MAX).zip(second.trace.last(usize::MAX)).find(|(a, b)| a != b);
        if let Some((first, second)) = differs {
            println!("seed {seed} does not replay:\n{first}\n{second}");
            return false;
        }
        if first.trace.last(usize::MAX).count() != second.trace.last(usize::MAX).count() {
            println!("seed {seed} does not replay: one run is longer");
            return false;
        }
    }
    println!("seeds {from} to {} replay exactly", from + count.clamp(1, REPEATED) - 1);
    true
}
