use std::time::{Instant, SystemTime};

use highgate_elector::Token;

use highgate_elector::Resource;

use super::*;
use crate::ledger::Denied;
use crate::store::once::{OnceEntry, Place, Wanted};

const NO_DELAY: Duration = Duration::ZERO;
const DEADLINE: Duration = Duration::from_secs(10);

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn resource(name: &str) -> Resource {
    Resource::parse(name).unwrap()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "never came true: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn raise(store: &Store, name: &str, number: u64) {
    store.want(resource(name), token(number), None).unwrap();
    let cell = store.ledger().enter(&resource(name));
    eventually("the mark is open", || cell.look(token(number)).is_ok());
}

#[test]
fn marks_are_there_after_a_clean_restart_and_nothing_waits() {
    let folder = tempfile::tempdir().unwrap();
    let store = start(folder.path(), Duration::from_secs(60), OwnNames::default(), |_| ()).unwrap();
    raise(&store.store, "a", 7);
    assert!(store.store.stop(), "nothing is outstanding");

    let store = start(folder.path(), Duration::from_secs(60), OwnNames::default(), |_| ()).unwrap();
    assert_eq!(store.inherited_delay, None);
    assert_eq!(store.store.ledger().enter(&resource("a")).mark(), 7);
    raise(&store.store, "a", 8);
}

#[test]
fn an_unclean_start_delays_raises_by_the_longest_promise_and_lets_the_open_mark_pass() {
    let folder = tempfile::tempdir().unwrap();
    let store = start(folder.path(), Duration::from_millis(100), OwnNames::default(), |_| ()).unwrap();
    raise(&store.store, "a", 7);
    store.store.promise(Duration::from_millis(400), Duration::ZERO);
    raise(&store.store, "a", 8);
    end_uncleanly(&store, "a", 8);

    let started = Instant::now();
    let again = start(folder.path(), NO_DELAY, OwnNames::default(), |_| ()).unwrap();
    assert_eq!(again.inherited_delay, Some(Duration::from_millis(400)));
    let cell = again.store.ledger().enter(&resource("a"));
    assert!(cell.look(token(8)).is_ok(), "what was open goes on passing");
    raise(&again.store, "a", 9);
    assert!(started.elapsed() >= Duration::from_millis(400));
}

#[test]
fn a_process_that_ends_before_its_inherited_delay_is_over_does_not_end_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(folder.path(), Duration::from_secs(60), OwnNames::default(), |_| ()).unwrap();
    raise(&first.store, "a", 7);
    end_uncleanly(&first, "a", 7);
    let second = start(folder.path(), NO_DELAY, OwnNames::default(), |_| ()).unwrap();
    assert!(!second.store.stop());
    assert!(start(folder.path(), NO_DELAY, OwnNames::default(), |_| ()).unwrap().inherited_delay.is_some());
}

#[test]
fn a_second_opening_is_refused_with_the_folder_named() {
    let folder = tempfile::tempdir().unwrap();
    let _first = start(folder.path(), NO_DELAY, OwnNames::default(), |_| ()).unwrap();
    let error = start(folder.path(), NO_DELAY, OwnNames::default(), |_| ()).err().unwrap();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    assert!(error.to_string().contains(&folder.path().display().to_string()));
}

#[test]
fn a_raise_waits_for_the_last_permit_of_the_token_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = start(folder.path(), NO_DELAY, OwnNames::default(), |_| ()).unwrap();
    raise(&store.store, "a", 7);
    let cell = store.store.ledger().enter(&resource("a"));
    let permit = cell.clone().admit(token(7)).ok().unwrap();
    store.store.want(resource("a"), token(8), None).unwrap();
    eventually("the mark is raised", || cell.mark() == 8);
    assert_eq!(cell.look(token(8)), Err(Denied::Raising));
    assert_eq!(cell.look(token(7)), Err(Denied::Stale { mark: 8 }));
    drop(permit);
    eventually("the mark is open", || cell.look(token(8)).is_ok());
}

#[test]
fn a_thousand_resources_are_raised_together() {
    let folder = tempfile::tempdir().unwrap();
    let store = start(folder.path(), NO_DELAY, OwnNames::default(), |_| ()).unwrap();
    for number in 0..1000 {
        store.store.want(resource(&format!("r/{number}")), token(5), None).unwrap();
    }
    let last = store.store.ledger().enter(&resource("r/999"));
    eventually("all are open", || last.look(token(5)).is_ok());
    assert_eq!(store.store.ledger().len(), 1000);
}

#[test]
fn a_freeze_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = start(folder.path(), NO_DELAY, OwnNames::default(), |_| ()).unwrap();
    raise(&store.store, "a", 7);
    store.store.freeze(resource("a"), true);
    let cell = store.store.ledger().enter(&resource("a"));
    eventually("it is frozen", || cell.is_frozen());
    assert!(store.store.stop());

    let store = start(folder.path(), NO_DELAY, OwnNames::default(), |_| ()).unwrap();
    let cell = store.store.ledger().enter(&resource("a"));
    assert_eq!(cell.look(token(7)), Err(Denied::Frozen { mark: 7 }));
    store.store.freeze(resource("a"), false);
    eventually("it is thawed", || cell.look(token(7)).is_ok());
}

/// Ends while a request is under way.
fn end_uncleanly(store: &Embedded, name: &str, number: u64) {
    let permit = store.store.ledger().enter(&resource(name)).admit(token(number)).ok();
    assert!(permit.is_some());
    assert!(!store.store.stop(), "a held permit forbids the clean marker");
}

#[test]
fn a_busy_store_still_notices_that_the_inherited_delay_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(folder.path(), Duration::from_millis(300), OwnNames::default(), |_| ()).unwrap();
    raise(&first.store, "a", 7);
    end_uncleanly(&first, "a", 7);
    let second = start(folder.path(), NO_DELAY, OwnNames::default(), |_| ()).unwrap();
    second.store.want(resource("a"), token(8), None).unwrap();
    let cell = second.store.ledger().enter(&resource("a"));
    let mut number = 0;
    eventually("8 opens although the store is never idle", || {
        number += 1;
        second.store.want(resource("b"), token(number), None).unwrap();
        cell.look(token(8)).is_ok()
    });
}

#[test]
fn old_entries_of_the_run_once_ledger_go_and_the_others_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (mut file, _) = File::open(folder.path(), NO_DELAY).unwrap();
    let place = |key: usize| Place { resource: resource("a"), key: key.to_string() };
    let entry = |at: u64| OnceEntry {
        completed: true,
        holder: "me".to_owned(),
        token: token(7),
        at: SystemTime::UNIX_EPOCH + Duration::from_millis(at),
    };
    let everything = Wanted { resource: None, after: None, limit: 1000 };
    let keys = |file: &File| -> Vec<_> {
        file.list_once(&everything).unwrap().into_iter().map(|(place, _)| place.key).collect()
    };
    for key in 0..200 {
        file.put_once(&place(key), &entry(1000), Duration::MAX).unwrap();
    }
    file.put_once(&place(0), &entry(2000), Duration::MAX).unwrap();
    assert_eq!(keys(&file).len(), 200);
    // One step forgets many, but not all: it must not hold up the fence.
    file.put_once(&place(500), &entry(2500), Duration::from_millis(1000)).unwrap();
    assert_eq!(keys(&file).len(), 201 - 64);
    for _ in 0..3 {
        file.put_once(&place(500), &entry(2500), Duration::from_millis(1000)).unwrap();
    }
    assert_eq!(keys(&file), ["0", "500"], "what was written again is young");
    drop(file);
    (file, _) = File::open(folder.path(), NO_DELAY).unwrap();
    assert_eq!(keys(&file), ["0", "500"]);
    assert_eq!(file.reset_once(&place(0)).unwrap(), Some(entry(2000)));
    assert_eq!(file.reset_once(&place(0)).unwrap(), None);
    assert_eq!(file.once(&place(500)).unwrap(), Some(entry(2500)));
}
