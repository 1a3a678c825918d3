//! What the fence costs: `cargo bench --bench gate`.
//!
//! Time of an admission with its release, and of a stale refusal, with one resource and with a million; and
//! the memory that a million resources take, beyond their names, in the ledger and the protocol machine.

use std::hint::black_box;

use criterion::Criterion;
use highgate::ledger::Ledger;
use highgate::replica::{Output, Record, Replica, Snapshot, State, Time};
use highgate_elector::{Resource, Token};

const MILLION: usize = 1_000_000;
const MARK: u64 = 1_000;

fn main() {
    let current = Token::new(MARK).expect("a token");
    let stale = Token::new(MARK - 1).expect("a token");
    let mut criterion = Criterion::default().configure_from_args();
    for count in [1, MILLION] {
        let before = resident_bytes();
        let (ledger, replica) = fenced(count);
        if count == MILLION {
            report_memory(before, count);
        }
        let names = shuffled(count);
        let mut next = names.iter().cycle();
        let mut admit = |token| {
            let name = next.next().expect("cycles for ever");
            let cell = ledger.get(name.as_str()).expect("every name is fenced");
            black_box(cell.admit(token).is_ok())
        };
        criterion.bench_function(&format!("admit and release, {count} resources"), |bench| {
            bench.iter(|| admit(current));
        });
        criterion.bench_function(&format!("refuse stale, {count} resources"), |bench| {
            bench.iter(|| admit(stale));
        });
        drop(replica);
    }
    criterion.final_summary();
}

/// What a store holds in memory after a start with this many open marks.
fn fenced(count: usize) -> (Ledger, Replica) {
    let ledger = Ledger::new(|_| {});
    let record = Record { token: MARK, modified: 1, state: State::Open, ..Record::default() };
    let records = (0..count).map(|number| (name(number), record)).collect();
    let snapshot = Snapshot { seq: 1, watermark: 1, records, ..Snapshot::default() };
    let (replica, outputs) = Replica::join(Time::ZERO, Time::ZERO, 1, None, snapshot);
    for output in outputs {
        match output {
            Output::Close { resource, mark, shut } => drop(ledger.close(&resource, mark, shut)),
            Output::Open { resource, mark, blocks } => {
                ledger.open(&resource, mark, blocks).expect("nothing is held");
            }
            _ => {}
        }
    }
    (ledger, replica)
}

fn name(number: usize) -> Resource {
    Resource::parse(&format!("ledger/acct-{number:07}")).expect("a plain name")
}

/// Every name once, in an order without locality.
fn shuffled(count: usize) -> Vec<Resource> {
    (0..count).map(|number| name(number * 611_953 % count)).collect()
}

fn report_memory(before: usize, count: usize) {
    let each = (resident_bytes() - before) / count;
    let name_bytes = name(0).as_str().len();
    println!(
        "memory per resource, {count} resources: {each} bytes, {} beyond its name (goal: at most 256)",
        each.saturating_sub(name_bytes)
    );
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
