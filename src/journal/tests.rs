//! The journal as a whole; what it does when room or time runs out is in `room.rs`.

mod room;

use super::*;

fn limits(max_size: u64) -> Limits {
    Limits { keep: Duration::from_secs(86_400), max_size }
}

fn resource(name: &str) -> Resource {
    Resource::parse(name).unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn elected(name: &str, holder: &str, number: u64) -> Event {
    Event::Elected { resource: resource(name), holder: holder.to_owned(), token: token(number) }
}

fn ended(name: &str, holder: &str, number: u64, why: Ended) -> Event {
    Event::Ended { resource: resource(name), holder: holder.to_owned(), token: token(number), why }
}

fn standing(name: &str, holder: &str, number: u64) -> Standing {
    Standing { resource: resource(name), leader: Some((holder.to_owned(), token(number))), waiting: 0 }
}

fn all(limit: usize) -> Wanted {
    Wanted { since: SystemTime::UNIX_EPOCH, before: None, limit }
}

/// Token, holder and end of every term.
fn told(journal: &Journal, name: &str) -> Vec<(u64, String, Option<&'static str>)> {
    let history = journal.history(&resource(name), all(1000)).unwrap();
    let term = |term: Term| (term.reign.token, term.reign.holder, term.ended_by.map(EndedBy::as_str));
    history.terms.into_iter().map(term).collect()
}

/// The tokens of a whole history, read in parts.
fn tokens(journal: &Journal, name: &str, limit: usize) -> Vec<u64> {
    let mut tokens = Vec::new();
    let mut before = None;
    loop {
        let history = journal.history(&resource(name), Wanted { before, ..all(limit) }).unwrap();
        assert!(history.terms.len() + history.raises.len() <= limit);
        tokens.extend(history.terms.iter().rev().map(|term| term.reign.token));
        before = history.next;
        if before.is_none() {
            return tokens.into_iter().rev().collect();
        }
    }
}

/// Until the clock has moved on by what the journal can tell apart.
fn next_moment() -> SystemTime {
    let began = SystemTime::now();
    while SystemTime::now() < began + Duration::from_millis(2) {
        thread::yield_now();
    }
    SystemTime::now()
}

fn size_on_disk(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder.join(FOLDER)).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn what_was_noted_is_told_with_its_end_and_by_the_process_after() {
    let folder = tempfile::tempdir().unwrap();
    let expected = [
        (1, "a".to_owned(), Some("expired")),
        (2, "b".to_owned(), Some("resigned")),
        (4, "c".to_owned(), Some("evicted")),
        (5, "d".to_owned(), Some("superseded")),
        (7, "e".to_owned(), None),
    ];
    let journal = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    let ends = [(1, "a", Ended::Expired), (2, "b", Ended::Resigned), (4, "c", Ended::Evicted)];
    for (number, holder, why) in ends.into_iter().chain([(5, "d", Ended::Overtaken)]) {
        journal.note(&elected("ledger", holder, number));
        journal.note(&elected("other", holder, number));
        journal.note(&ended("ledger", holder, number, why));
    }
    journal.note_raise(&replica::Event::Raised { resource: resource("ledger"), from: 5, to: 6 });
    journal.note_raise(&replica::Event::Raised { resource: resource("ledger"), from: 6, to: 7 });
    journal.note(&elected("ledger", "e", 7));
    assert_eq!(told(&journal, "ledger"), expected);
    // Nothing was closed or flushed: so `kill -9` leaves it.
    let after = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    assert_eq!(told(&after, "ledger"), expected);
    let history = after.history(&resource("ledger"), all(1000)).unwrap();
    let raises: Vec<_> = history.raises.iter().map(|raise| (raise.from, raise.to)).collect();
    assert_eq!(raises, [(5, 6)], "the raise for an election is part of its term");
    assert!(told(&after, "nobody").is_empty());
}

#[test]
fn a_time_selects_what_reaches_into_it_and_a_limit_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    journal.note(&elected("ledger", "a", 1));
    journal.note(&ended("ledger", "a", 1, Ended::Expired));
    let between = next_moment();
    next_moment();
    journal.note(&elected("ledger", "b", 2));
    journal.note(&ended("ledger", "b", 2, Ended::Expired));
    journal.note(&elected("ledger", "c", 3));
    let from = |since, limit| {
        let wanted = Wanted { since, before: None, limit };
        let history = journal.history(&resource("ledger"), wanted).unwrap();
        (history.terms.iter().map(|term| term.reign.token).collect::<Vec<_>>(), history.next.is_some())
    };
    assert_eq!(from(SystemTime::UNIX_EPOCH, 10), (vec![1, 2, 3], false));
    assert_eq!(from(between, 10), (vec![2, 3], false));
    assert_eq!(from(SystemTime::now() + Duration::from_secs(9), 10), (vec![3], false), "it leads still");
    assert_eq!(from(SystemTime::UNIX_EPOCH, 1), (vec![3], true));
}

#[test]
fn a_million_events_stay_within_the_limit_and_the_leader_of_long_ago_is_known() {
    const LIMIT: u64 = 4 << 20;
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), limits(LIMIT), Writer::Caller).unwrap();
    journal.note(&elected("steady", "since the beginning", 1));
    let from = journal.history(&resource("steady"), all(1)).unwrap().terms;
    for number in 2..500_002 {
        journal.note(&elected("flapping", "job", number));
        journal.note(&ended("flapping", "job", number, Ended::Expired));
        if number % 10_000 == 0 {
            let size = size_on_disk(folder.path());
            assert!(size <= LIMIT, "{size} bytes after {number} terms");
        }
    }
    let size = size_on_disk(folder.path());
    assert!((LIMIT * 3 / 4..=LIMIT).contains(&size), "{size}: it keeps what there is room for");
    assert_eq!(journal.size(), size);
    assert_eq!(journal.lost(), 0);
    assert_eq!(told(&journal, "flapping").len(), 1000);
    let after = Journal::open(folder.path(), limits(LIMIT), Writer::Caller).unwrap();
    let history = after.history(&resource("steady"), all(1)).unwrap();
    assert_eq!(history.terms, from, "its first file has gone, its term has not");
    assert_eq!(after.shared.leads.lock().len(), 1);
}

#[test]
fn a_history_that_is_longer_than_an_answer_is_read_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), limits(8 << 20), Writer::Caller).unwrap();
    let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_271_000);
    for number in 1..=12_345 {
        journal.note_at(&elected("ledger", "a", 2 * number), began + Duration::from_secs(number));
        // Of every third the end was lost, as it is by a crash.
        if number % 3 > 0 {
            let until = began + Duration::from_secs(number + 1);
            journal.note_at(&ended("ledger", "a", 2 * number, Ended::Expired), until);
        }
    }
    let expected: Vec<u64> = (1..=12_345).map(|number| 2 * number).collect();
    for limit in [1000, 10_000, 12_345, 50_000] {
        assert_eq!(tokens(&journal, "ledger", limit), expected, "{limit} at once");
    }
    // A term whose end was lost was over when the next began, also if that is in another part.
    let lost = Wanted { before: Some(2 * 10_000), ..all(1) };
    let history = journal.history(&resource("ledger"), lost).unwrap();
    assert_eq!(history.terms[0].reign.token, 2 * 9_999);
    let next = Wanted { before: Some(2 * 10_000 + 1), ..all(1) };
    let next = journal.history(&resource("ledger"), next).unwrap();
    assert_eq!(history.terms[0].until, Some(next.terms[0].reign.from));
    // What is older than what was asked for is no more of it.
    let late = Wanted { since: began + Duration::from_secs(12_300), ..all(1000) };
    let history = journal.history(&resource("ledger"), late).unwrap();
    assert_eq!((history.terms.first().unwrap().reign.token, history.next), (2 * 12_299, None));
}

#[test]
fn a_raise_for_a_term_takes_no_place_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    for number in 1..=4 {
        let (resource, to) = (resource("ledger"), number);
        journal.note_raise(&replica::Event::Raised { resource, from: number - 1, to });
        if number % 2 == 0 {
            journal.note(&elected("ledger", "a", number));
        }
    }
    let history = journal.history(&resource("ledger"), all(3)).unwrap();
    let raised: Vec<u64> = history.raises.iter().map(|raise| raise.to).collect();
    assert_eq!((raised, history.next), (vec![3], Some(2)));
    let history = journal.history(&resource("ledger"), Wanted { before: Some(2), ..all(3) }).unwrap();
    assert_eq!((history.raises[0].to, history.terms.len(), history.next), (1, 0, None));
}

#[test]
fn what_was_missed_is_found_when_everything_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    journal.note(&elected("a", "steady", 1));
    journal.note(&elected("b", "old", 2));
    journal.note(&elected("c", "gone", 3));
    drop(journal);
    let after = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    let now = [standing("a", "steady", 1), standing("b", "new", 5), standing("d", "fresh", 6)];
    let missed = after.catch_up(&now);
    assert_eq!(missed.len(), 4, "{missed:?}");
    assert!(missed.contains(&ended("c", "gone", 3, Ended::Gone)) && missed.contains(&elected("b", "new", 5)));
    assert_eq!(told(&after, "a"), [(1, "steady".to_owned(), None)]);
    assert_eq!(told(&after, "b"), [(2, "old".to_owned(), Some("unknown")), (5, "new".to_owned(), None)]);
    assert_eq!(told(&after, "c"), [(3, "gone".to_owned(), Some("unknown"))]);
    let history = after.history(&resource("d"), all(9)).unwrap();
    assert!(history.terms[0].reign.found, "when it began nobody here knows");
    assert_eq!(after.catch_up(&now), [], "everything is known now");
}

#[test]
fn an_end_that_was_never_written_does_not_last_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    journal.note(&elected("ledger", "a", 1));
    journal.note(&elected("ledger", "b", 2));
    let history = journal.history(&resource("ledger"), all(9)).unwrap();
    assert_eq!(history.terms[0].ended_by, Some(EndedBy::Unknown));
    assert_eq!(history.terms[0].until, Some(history.terms[1].reign.from));
    assert_eq!(history.terms[1].ended_by, None);
}

#[test]
fn a_torn_line_is_passed_over_and_the_next_one_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    journal.note(&elected("ledger", "a", 1));
    drop(journal);
    let file = std::fs::read_dir(folder.path().join(FOLDER)).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.extend(b"\0\0\xff\n17722710\twon\tledg");
    std::fs::write(&file, bytes).unwrap();
    let journal = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    journal.note(&ended("ledger", "a", 1, Ended::Resigned));
    let after = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    assert_eq!(told(&after, "ledger"), [(1, "a".to_owned(), Some("resigned"))]);
}

#[test]
fn a_disk_that_does_not_take_it_is_counted_and_forgiven() {
    let folder = tempfile::tempdir().unwrap();
    // A file where the folder should be: nothing can be made in it.
    std::fs::write(folder.path().join(FOLDER), "in the way").unwrap();
    let journal = Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap();
    journal.note(&elected("ledger", "a", 1));
    journal.note(&ended("ledger", "a", 1, Ended::Resigned));
    journal.note(&elected("ledger", "b", 2));
    assert_eq!(journal.lost(), 3);
    std::fs::remove_file(folder.path().join(FOLDER)).unwrap();
    assert_eq!(told(&journal, "ledger"), [(2, "b".to_owned(), None)], "who leads is known without a disk");
    journal.note(&ended("ledger", "b", 2, Ended::Expired));
    assert_eq!(journal.lost(), 3);
    assert_eq!(told(&journal, "ledger"), [(2, "b".to_owned(), Some("expired"))]);
}

#[test]
fn what_the_thread_writes_is_there_after_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), limits(1 << 20), Writer::Thread).unwrap();
    for number in 1..1000 {
        journal.note(&elected("ledger", "a", number));
        journal.note(&ended("ledger", "a", number, Ended::Resigned));
    }
    journal.close();
    let after = Journal::open(folder.path(), limits(1 << 20), Writer::Thread).unwrap();
    assert_eq!(told(&after, "ledger").len(), 999);
    assert_eq!(journal.lost(), 0);
}

#[test]
fn opening_the_journal_of_another_process_touches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    drop(Journal::open(folder.path(), limits(1 << 20), Writer::Caller).unwrap());
    assert!(!folder.path().join(FOLDER).exists());
}
