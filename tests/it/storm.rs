//! Many clients and many handovers at once; the origin's log is the judge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Ask, Client, H2, Origin, Reply, Running, eventually, gateway_to, origin, post, reply};

/// What all clients of a storm share: the token that leads, and what came of their requests.
#[derive(Default)]
struct Storm {
    leading: AtomicU64,
    passed: AtomicUsize,
    refused: AtomicUsize,
    /// Sent by clients that did not wait for the answer.
    abandoned: AtomicUsize,
}

impl Storm {
    fn leading(&self) -> u64 {
        self.leading.load(Ordering::SeqCst)
    }

    /// What this client sends now: the leader's token, or an old one every third time.
    fn token(&self, turn: u64) -> u64 {
        let leading = self.leading();
        if turn.is_multiple_of(3) { leading.saturating_sub(1 + turn % 2).max(1) } else { leading }
    }

    /// Judges an answer; a token that passed makes the next one lead.
    fn count(&self, token: u64, status: u16) {
        match status {
            200 => {
                self.passed.fetch_add(1, Ordering::SeqCst);
                // Whoever loses this race was not the first to pass.
                let _ = self.leading.compare_exchange(token, token + 1, Ordering::SeqCst, Ordering::SeqCst);
            }
            412 => drop(self.refused.fetch_add(1, Ordering::SeqCst)),
            status => panic!("{status} for {token}"),
        }
    }
}

/// Answers at once or a little later, so that handovers meet requests of every age.
fn uneven(request: usize) -> Reply {
    match request % 4 {
        0 => reply(200).body("ok").after(Duration::from_millis(2)),
        1 => reply(200).chunked("2\r\nok\r\n0\r\n\r\n"),
        2 => reply(200).body("ok").header("connection", "close").then_closes(),
        _ => reply(200).body("ok"),
    }
}

fn uneven_origin() -> Origin {
    let turn = AtomicUsize::new(0);
    origin().answering(move |_| uneven(turn.fetch_add(1, Ordering::Relaxed))).start()
}

fn ask_with(turn: u64, token: u64) -> Ask {
    let ask = post("/").token(token).body(vec![b'x'; (turn % 5) as usize * 100]);
    if turn.is_multiple_of(2) { ask.chunked() } else { ask }
}

/// Every kind of client, until the token `last` leads.
fn client(gate: std::net::SocketAddr, storm: &Storm, kind: u64, last: u64) {
    let mut kept = Client::connect(gate);
    let h2 = (kind % 3 == 1).then(|| H2::connect(gate));
    for turn in kind.. {
        let token = storm.token(turn);
        if token >= last {
            return;
        }
        let ask = ask_with(turn, token);
        match &h2 {
            Some(h2) => storm.count(token, h2.ask(&ask).status),
            None if kind % 3 == 2 && turn % 7 == 0 => {
                storm.abandoned.fetch_add(1, Ordering::SeqCst);
                Client::connect(gate).send(ask.bytes());
            }
            None => storm.count(token, kept.ask(&ask).status),
        }
    }
}

fn rage(gate: &Running, origin: &Origin, clients: u64, last: u64) {
    let storm = Arc::new(Storm::default());
    storm.leading.store(1, Ordering::SeqCst);
    let address = gate.address;
    let threads: Vec<_> = (0..clients)
        .map(|kind| {
            let storm = storm.clone();
            thread::spawn(move || client(address, &storm, kind, last))
        })
        .collect();
    for thread in threads {
        thread.join().expect("a client that was answered");
    }
    gate.comes_to_rest();
    let seen = origin.seen();
    seen.check_fenced(Duration::ZERO);
    let (passed, abandoned) = (storm.passed.load(Ordering::SeqCst), storm.abandoned.load(Ordering::SeqCst));
    let received = seen.requests.len();
    assert!((passed..=passed + abandoned).contains(&received), "{received} received, {passed} passed");
    assert!(storm.refused.load(Ordering::SeqCst) > 0, "a storm without a stale request shows nothing");
    for token in 1..last {
        assert!(!seen.with_token(token).is_empty(), "{token} never passed");
    }
}

#[test]
fn a_thousand_handovers_in_a_row_among_stale_senders() {
    let origin = uneven_origin();
    let gate = gateway_to(&origin).route("hold_timeout", "20s").start();
    rage(&gate, &origin, 6, 1001);
}

#[test]
fn a_hundred_clients_of_old_and_new_tokens() {
    let origin = uneven_origin();
    let gate = gateway_to(&origin).route("hold_timeout", "20s").start();
    rage(&gate, &origin, 100, 31);
}

#[test]
fn many_resources_are_raised_at_once() {
    let origin = origin().start();
    let gate = Arc::new(gateway_to(&origin).start());
    let threads: Vec<_> = (0..8)
        .map(|worker| {
            let gate = gate.clone();
            thread::spawn(move || {
                let mut client = gate.connect();
                for resource in 0..50 {
                    let ask = post("/").token(5).resource(&format!("r/{worker}/{resource}"));
                    client.ask(&ask).is_ok();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a client that was answered");
    }
    eventually("all marks stand", || gate.ledger().len() == 400);
    assert_eq!(origin.count(), 400);
}
