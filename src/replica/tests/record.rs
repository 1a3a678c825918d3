//! The durable state of a resource, and what each step makes of it.

use super::*;

#[test]
fn a_mark_passes_only_when_it_is_open_and_nothing_keeps_it_shut() {
    let open = record(7, State::Open);
    assert!(open.passes());
    let frozen = Record { frozen: true, ..open };
    let vacant = Record { vacant: true, ..open };
    for shut in [record(7, State::Raised), frozen, vacant, record(0, State::Open)] {
        assert!(!shut.passes(), "{shut:?}");
    }
}

#[test]
fn an_operator_comes_first_among_the_reasons_to_be_shut() {
    let raised = record(7, State::Raised);
    let vacant = Record { vacant: true, ..raised };
    let frozen = Record { frozen: true, ..vacant };
    assert_eq!([raised.shut(), vacant.shut(), frozen.shut()], [Shut::Raised, Shut::Vacant, Shut::Frozen]);
}

#[test]
fn a_raise_changes_the_mark_and_keeps_what_is_unsettled_below() {
    let vacant = Record { settled: 3, vacant: true, frozen: true, ..record(7, State::Open) };
    let raised = vacant.raised(8, Some(true), true, 100);
    let expected = Record {
        token: 8,
        state: State::Raised,
        vacant: false,
        block: true,
        block_next: true,
        issued: true,
        ..vacant
    };
    assert_eq!(raised, expected);
    let trusted = raised.raised(9, Some(false), false, 100);
    assert_eq!(trusted, Record { token: 9, block_next: false, issued: false, ..raised }, "8 may block still");
}

#[test]
fn below_the_first_token_there_is_nothing_to_settle() {
    let first = Record::default().raised(1, None, false, 100);
    assert_eq!(first, Record { token: 1, settled: 100, state: State::Raised, ..Record::default() });
}

#[test]
fn a_seal_settles_what_is_below_and_takes_on_what_the_new_token_asks() {
    let raised = Record { block: true, ..record(8, State::Raised) };
    let opened = raised.opened(100);
    assert_eq!(opened, Record { settled: 100, state: State::Open, block: false, ..raised });
}

#[test]
fn what_an_unknown_outcome_means_is_asked_of_the_token_that_passes_next() {
    let open = Record { block: true, ..record(7, State::Open) };
    let raised = Record { state: State::Raised, ..open };
    assert_eq!((open.policy(), raised.policy()), (true, false), "it blocked below, the new token does not");
    assert_eq!(raised.blocking(), Record { block_next: true, ..raised });
    let free = record(7, State::Open);
    assert_eq!(free.blocking(), Record { block: true, block_next: true, ..free });
}
