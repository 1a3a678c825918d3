use std::sync::mpsc;

use super::*;

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn resource() -> Resource {
    Resource::parse("ledger/acct-7").unwrap()
}

/// A ledger whose one resource is open at 7, and who hears of its drains.
fn open_at_seven() -> (Ledger, mpsc::Receiver<Resource>) {
    let (drained, hear) = mpsc::channel();
    let ledger = Ledger::new(move |resource| drained.send(resource.clone()).unwrap());
    let _ = ledger.close(&resource(), 7, Shut::Raised);
    ledger.open(&resource(), 7, false).unwrap();
    (ledger, hear)
}

#[test]
fn the_last_request_out_of_a_closed_gate_reports_the_drain() {
    let (ledger, hear) = open_at_seven();
    let cell = ledger.enter(&resource());
    let (first, second) = (cell.clone().admit(token(7)).unwrap(), cell.clone().admit(token(7)).unwrap());
    assert_eq!(ledger.close(&resource(), 8, Shut::Raised).remaining, 2);
    assert!(first.is_superseded());
    drop(first);
    assert!(hear.try_recv().is_err());
    drop(second);
    assert_eq!(hear.try_recv(), Ok(resource()));
    assert_eq!(ledger.in_flight(), 0);
}

#[test]
fn a_token_of_an_era_before_is_stale_for_a_resource_that_nobody_has_asked_for_yet() {
    let ledger = Ledger::new(|_| {});
    ledger.bound(1 << 48, 2 << 48);
    assert!(matches!(ledger.look(&resource(), token(7)), Err(Denied::Stale { .. })));
    assert!(matches!(ledger.look(&resource(), token((1 << 48) + 7)), Err(Denied::Ahead { .. })));
    assert!(ledger.is_empty(), "nothing is kept");
}

#[test]
fn stale_is_said_before_anything_else() {
    let (ledger, _hear) = open_at_seven();
    let cell = ledger.enter(&resource());
    let _ = ledger.close(&resource(), 7, Shut::Frozen);
    assert_eq!(cell.clone().admit(token(6)).err(), Some(Denied::Stale { mark: 7 }));
    assert_eq!(cell.clone().admit(token(7)).err(), Some(Denied::Frozen { mark: 7 }));
    assert_eq!(cell.clone().admit(token(8)).err(), Some(Denied::Frozen { mark: 7 }));
    ledger.halt();
    assert_eq!(cell.clone().admit(token(6)).err(), Some(Denied::Stale { mark: 7 }));
}

#[test]
fn refusals_are_counted_for_all_and_for_resources_that_were_seen() {
    let (ledger, _hear) = open_at_seven();
    let unseen = Resource::parse("unseen").unwrap();
    for about in [Some(&resource()), Some(&unseen), None] {
        ledger.count_refused(about);
    }
    assert_eq!((ledger.refused(), ledger.enter(&resource()).refused()), (3, 1));
    assert!(ledger.get("unseen").is_none(), "whoever is refused makes no cells");
}

#[test]
fn a_halted_ledger_admits_nobody() {
    let (ledger, _hear) = open_at_seven();
    ledger.halt();
    let cell = ledger.enter(&resource());
    assert_eq!(cell.clone().admit(token(7)).err(), Some(Denied::Halted));
    assert_eq!(cell.in_flight(), 0, "the place was given back");
}

#[tokio::test]
async fn a_waiter_hears_of_the_opening_it_looked_for() {
    let (ledger, _hear) = open_at_seven();
    let _ = ledger.close(&resource(), 8, Shut::Raised);
    let cell = ledger.enter(&resource());
    let changed = cell.changed();
    assert_eq!(cell.look(token(8)), Err(Denied::Raising));
    ledger.open(&resource(), 8, false).unwrap();
    changed.await;
    assert_eq!(cell.look(token(8)), Ok(()));
}

#[test]
fn a_vacant_mark_passes_nobody_and_a_higher_token_may_still_raise() {
    let (ledger, _hear) = open_at_seven();
    let _ = ledger.close(&resource(), 7, Shut::Vacant);
    let cell = ledger.enter(&resource());
    assert_eq!(cell.look(token(6)), Err(Denied::Stale { mark: 7 }));
    assert_eq!(cell.look(token(7)), Err(Denied::Vacant { mark: 7 }));
    assert_eq!(cell.look(token(8)), Err(Denied::Ahead { mark: 7 }));
}
