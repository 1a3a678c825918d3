//! A gateway before a recorder, and cases tried on it one after the other.

use std::thread;
use std::time::Duration;

use super::laws;
use super::readers;
use super::recorder::Recorder;
use super::table::{Case, cases};
use crate::support::{Client, Running, eventually, gateway};

/// What follows every case: a request that is its own, whatever came before.
const FOLLOW: &[u8] = b"GET /follow HTTP/1.1\r\nHost: ledger.test\r\nConnection: close\r\n\r\n";

pub(super) struct Stand {
    recorder: Recorder,
    gate: Running,
}

/// How a case's bytes come.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Whole,
    AfterEveryCr,
    InSevens,
}

/// What reached the upstream, and what the gateway says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    forwarded: usize,
    let_through: usize,
}

impl Stand {
    pub(super) fn start() -> Self {
        let recorder = Recorder::start();
        let gate = gateway(recorder.address).route("lock_delay", "10ms").start();
        Self { recorder, gate }
    }

    pub(super) fn try_all(self, name: &str, table: &str) {
        let mut cases = cases(table);
        // What is left of a broken request may reach the upstream late, so these come last: nothing is counted after them.
        cases.sort_by_key(|case| case.want == "broken");
        for case in &cases {
            let whole = self.try_one(case, Cut::Whole);
            for cut in [Cut::AfterEveryCr, Cut::InSevens] {
                assert_eq!(self.try_one(case, cut), whole, "{}: {cut:?} makes a difference", case.name);
            }
        }
        let broken = cases.iter().filter(|case| case.want == "broken").count();
        let Counts { forwarded, let_through } = self.counts();
        assert!(forwarded <= let_through + 3 * broken, "{forwarded} forwarded, {let_through} let through");
        let streams = self.recorder.streams();
        streams.iter().for_each(laws::check);
        readers::agree(name, &streams);
    }

    /// Sends a case and what follows it. The answers, in their order.
    fn try_one(&self, case: &Case, cut: Cut) -> Vec<u16> {
        let before = self.counts();
        let mut client = self.gate.connect();
        send(&mut client, &[&case.bytes, FOLLOW].concat(), cut);
        let mut answers = Vec::new();
        while let Some(answer) = client.response_if_any() {
            let ours = answer.reason().is_some();
            assert_eq!(ours, answer.status != 200, "{}: {answer:?}", case.name);
            answers.push(answer.status);
        }
        self.judge(case, &answers, before);
        // Whether the connection of a refused request goes on hangs on how much of its body had come by then.
        let refused = case.want.parse::<u16>().is_ok();
        answers.into_iter().take(if refused { 1 } else { usize::MAX }).collect()
    }

    fn judge(&self, case: &Case, answers: &[u16], before: Counts) {
        let name = &case.name;
        let passes: Option<usize> =
            case.want.strip_prefix("pass").map(|count| count.trim().parse().unwrap_or(1));
        let served = match (passes, case.want.as_str()) {
            (Some(count), _) => {
                assert_eq!(answers, vec![200; count + 1], "{name}");
                count + 1
            }
            (None, exact) if exact.starts_with('=') => {
                let wanted: Vec<u16> =
                    exact[1..].split(',').map(|status| status.parse().expect("a status")).collect();
                assert_eq!(answers, wanted, "{name}");
                answers.iter().filter(|status| **status == 200).count()
            }
            (None, "broken") => {
                assert_eq!(answers, [400], "{name}");
                0
            }
            (None, status) => {
                assert_eq!(
                    answers.first().map(u16::to_string).as_deref(),
                    Some(status),
                    "{name}: {answers:?}"
                );
                assert!(matches!(answers, [_] | [_, 200]), "{name}: {answers:?}");
                answers.len() - 1
            }
        };
        let heads = self.recorder.heads();
        assert!(!heads.iter().any(|head| head.contains("smuggled")), "{name}: {heads:?}");
        assert_eq!(self.gate.mark("default").max(7), 7, "{name}: the token inside a body counted");
        if case.want == "broken" {
            // What was begun is cut, and need not have got to its first byte.
            return;
        }
        eventually(&format!("{name}: as many forwarded as let through"), || {
            let now = self.counts();
            now.forwarded == before.forwarded + served && now.let_through == before.let_through + served
        });
    }

    fn counts(&self) -> Counts {
        let metrics = self.gate.admin("/metrics").text();
        let let_through = metrics
            .lines()
            .filter(|line| line.starts_with("highgate_requests_total{"))
            .filter(|line| ["admitted", "unfenced", "allowed"].iter().any(|passed| line.contains(passed)))
            .map(|line| line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0))
            .sum();
        Counts { forwarded: self.recorder.heads().len(), let_through }
    }
}

fn send(client: &mut Client, bytes: &[u8], cut: Cut) {
    let pieces: Vec<&[u8]> = match cut {
        Cut::Whole => vec![bytes],
        Cut::AfterEveryCr => bytes.split_inclusive(|byte| *byte == b'\r').collect(),
        Cut::InSevens => bytes.chunks(7.max(bytes.len() / 50)).collect(),
    };
    let apart = pieces.len() > 1;
    for piece in pieces.iter().take(60) {
        client.send(piece);
        if apart {
            // So that the pieces come apart more often than not; nothing hangs on it.
            thread::sleep(Duration::from_micros(300));
        }
    }
    client.send(pieces.get(60..).unwrap_or_default().concat());
}
