use super::*;

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

#[cfg(not(highgate_loom))]
mod sequential {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_new_gate_lets_nobody_in() {
        assert_eq!(Mark::new().admit(token(1)), Err(Denied::Ahead { mark: 0 }));
    }

    #[test]
    fn the_generation_wraps_without_touching_its_neighbours() {
        let top = !OPEN & !IN_FLIGHT;
        assert_eq!(closed(OPEN | top | 5), 5);
        assert_eq!(closed(OPEN | 5), (1 << 24) | 5);
    }

    #[test]
    fn a_word_read_before_a_close_is_not_the_word_after_it_is_open_again() {
        let mark = Mark::new();
        let _ = mark.close(7);
        mark.open().unwrap();
        let before = mark.word.load(Ordering::Acquire);
        let _ = mark.close(8);
        mark.open().unwrap();
        assert_ne!(mark.word.load(Ordering::Acquire), before, "7 would take it for its own gate");
    }

    #[test]
    fn a_full_gate_takes_nobody_more_until_one_has_left() {
        let mark = Mark::new();
        let _ = mark.close(7);
        mark.open().unwrap();
        mark.word.fetch_add(IN_FLIGHT - 1, Ordering::AcqRel);
        assert_eq!(mark.admit(token(7)), Ok(()));
        assert_eq!(mark.in_flight(), (1 << 24) - 1);
        assert_eq!(mark.admit(token(7)), Err(Denied::Full));
        assert_eq!(mark.release(), Release::Left);
        assert_eq!(mark.admit(token(7)), Ok(()));
        assert!(mark.is_open());
    }

    #[test]
    fn a_gate_does_not_open_over_a_lower_guard() {
        let mark = Mark::new();
        assert_eq!(mark.close(7), Drain { remaining: 0 });
        mark.open().unwrap();
        mark.admit(token(7)).unwrap();
        assert_eq!(mark.close(8), Drain { remaining: 1 });
        assert_eq!(mark.open(), Err(StillHeld { held: 1 }));
        assert_eq!(mark.release(), Release::Drained);
        assert_eq!(mark.open(), Ok(()));
    }

    #[test]
    fn a_gate_reopens_over_guards_of_its_own_token() {
        let mark = Mark::new();
        let _ = mark.close(7);
        mark.open().unwrap();
        mark.admit(token(7)).unwrap();
        let _ = mark.close(7);
        assert_eq!(mark.open(), Ok(()));
    }

    /// The gate as one would write it without threads.
    #[derive(Default)]
    struct Plain {
        mark: u64,
        open: bool,
        guards: Vec<u64>,
    }

    #[derive(Clone, Debug)]
    enum Op {
        Admit(u64),
        Release,
        Close(u64),
        Open,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (1u64..6).prop_map(Op::Admit),
            3 => Just(Op::Release),
            1 => (0u64..2).prop_map(Op::Close),
            2 => Just(Op::Open),
        ]
    }

    proptest! {
        #[test]
        fn the_word_does_what_a_plain_model_does(ops in prop::collection::vec(op(), 1..80)) {
            let (mark, mut plain) = (Mark::new(), Plain::default());
            for op in ops {
                match op {
                    Op::Admit(number) => {
                        let admitted = number == plain.mark && plain.open;
                        prop_assert_eq!(mark.admit(token(number)).is_ok(), admitted);
                        if admitted {
                            plain.guards.push(number);
                        }
                    }
                    Op::Release if plain.guards.is_empty() => {}
                    Op::Release => {
                        plain.guards.pop();
                        let drained = plain.guards.is_empty() && !plain.open;
                        prop_assert_eq!(mark.release() == Release::Drained, drained);
                    }
                    Op::Close(step) => {
                        plain.open = false;
                        plain.mark += step;
                        prop_assert_eq!(mark.close(plain.mark).remaining, plain.guards.len() as u64);
                    }
                    Op::Open => {
                        let lower_held = plain.guards.iter().any(|guard| *guard < plain.mark);
                        prop_assert_eq!(mark.open().is_err(), lower_held);
                        plain.open |= !lower_held;
                    }
                }
                prop_assert_eq!(mark.token(), plain.mark);
                prop_assert_eq!(mark.is_open(), plain.open);
                prop_assert_eq!(mark.in_flight(), plain.guards.len() as u64);
            }
        }
    }
}

/// Every interleaving of two leaders' requests, the driver that closes the gate under the first, and the
/// drain that lets it open for the second.
#[cfg(highgate_loom)]
mod interleaved {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use loom::thread;

    struct Stage {
        mark: Mark,
        /// Requests of token 7 that are at the resource right now.
        effects: AtomicU64,
        drained: AtomicBool,
    }

    fn request(stage: &Stage, number: u64) {
        if stage.mark.admit(token(number)).is_err() {
            return;
        }
        if number == 7 {
            stage.effects.fetch_add(1, Ordering::Relaxed);
            stage.effects.fetch_sub(1, Ordering::Relaxed);
        } else {
            assert_eq!(stage.effects.load(Ordering::Relaxed), 0, "8 is at the resource beside a 7");
        }
        if stage.mark.release() == Release::Drained {
            stage.drained.store(true, Ordering::Release);
        }
    }

    /// Runs the handover with these requests in every interleaving of up to so many preemptions; `opens` is the
    /// driver's part, and says whether the end of the drain has to have been reported to it.
    fn handover(requests: &'static [u64], preemptions: usize, opens: fn(&Stage, Drain) -> bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let stage = Arc::new(Stage {
                mark: Mark::new(),
                effects: AtomicU64::new(0),
                drained: AtomicBool::new(false),
            });
            let _ = stage.mark.close(7);
            stage.mark.open().unwrap();
            let requests: Vec<_> = requests
                .iter()
                .map(|number| {
                    let stage = stage.clone();
                    thread::spawn(move || request(&stage, *number))
                })
                .collect();
            let drain = stage.mark.close(8);
            let must_hear = opens(&stage, drain);
            for request in requests {
                request.join().unwrap();
            }
            let drained = drain.remaining == 0 || stage.drained.load(Ordering::Acquire);
            assert!(drained || !must_hear, "the end of the drain was reported to nobody");
        });
    }

    fn open_when_drained(stage: &Stage, drain: Drain) -> bool {
        if drain.remaining == 0 || stage.drained.load(Ordering::Acquire) {
            stage.mark.open().unwrap();
        }
        true
    }

    #[test]
    fn the_next_token_never_meets_the_one_before() {
        handover(&[7, 8], 4, open_when_drained);
    }

    #[test]
    fn the_next_token_waits_for_two_of_the_one_before() {
        handover(&[7, 7, 8], 2, open_when_drained);
    }

    #[test]
    fn opening_checks_the_drain_by_itself() {
        handover(&[7, 8], 4, |stage, _| {
            let _ = stage.mark.open();
            true
        });
    }

    /// The control: a gate that is opened without its drain is caught by the same stage.
    #[test]
    #[should_panic(expected = "8 is at the resource beside a 7")]
    fn a_gate_opened_without_its_drain_is_caught() {
        handover(&[7, 8], 4, |stage, _| {
            stage.mark.passed.store(8, Ordering::Relaxed);
            stage.mark.open().unwrap();
            false
        });
    }
}
