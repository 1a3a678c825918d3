//! What goes when room or time runs out, and what stays.

use super::super::files::{self, Files, Part, path};
use super::super::shares::Shares;
use super::*;

const DAY: Duration = Duration::from_secs(86_400);

fn open(folder: &Path, max_size: u64) -> Journal {
    Journal::open(folder, limits(max_size), Writer::Caller).unwrap()
}

/// A term of every number, each of which ends when the next begins.
fn flap(journal: &Journal, name: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        journal.note(&elected(name, "job", number));
        journal.note(&ended(name, "job", number, Ended::Expired));
    }
}

fn names(folder: &Path) -> Vec<u64> {
    files::listing(&folder.join(FOLDER)).unwrap().into_iter().map(|(number, _)| number).collect()
}

#[test]
fn one_noisy_resource_pushes_out_nobody_elses_past() {
    const LIMIT: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), LIMIT);
    let quiet: Vec<String> = (0..40).map(|number| format!("quiet/{number}")).collect();
    for name in &quiet {
        flap(&journal, name, 1..6);
    }
    flap(&journal, "noisy", 1..10_000);
    for name in &quiet {
        flap(&journal, name, 6..8);
    }
    for end in [10_000, 20_000] {
        flap(&journal, "noisy", end..end + 10_000);
        let size = size_on_disk(folder.path());
        assert!((LIMIT * 3 / 4..=LIMIT).contains(&size), "{size}: it keeps what there is room for");
        assert_eq!(journal.size(), size);
        let after = open(folder.path(), LIMIT);
        for (journal, name) in
            [&journal, &after].into_iter().flat_map(|it| quiet.iter().map(move |name| (it, name)))
        {
            assert_eq!(tokens(journal, name, 1000), [1, 2, 3, 4, 5, 6, 7], "{name}");
        }
        let kept = tokens(&after, "noisy", 10_000);
        let newest: Vec<u64> = (kept[0]..end + 10_000).collect();
        assert_eq!(kept, newest, "of the noisy one the newest stay, without a gap");
    }
    assert_eq!(journal.lost(), 0);
}

#[test]
fn a_journal_of_many_small_pasts_has_few_files() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), 1 << 20);
    for round in 0..200 {
        flap(&journal, &format!("quiet/{round}"), 1..3);
        flap(&journal, "noisy", round * 200 + 1..round * 200 + 200);
    }
    let files = names(folder.path());
    assert!(files.len() < 40, "{files:?}");
    for round in 0..200 {
        assert_eq!(tokens(&journal, &format!("quiet/{round}"), 10), [1, 2], "{round}");
    }
}

#[test]
fn resources_beyond_number_share_the_room_and_stay_within_it() {
    const LIMIT: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), LIMIT);
    // More leaders than the journal has room for, of which none ever ends.
    for number in 0..30_000 {
        journal.note(&elected(&format!("r/{number}"), "job", 1));
    }
    let size = size_on_disk(folder.path());
    assert!(size <= LIMIT, "{size}");
    assert_eq!(journal.lost(), 0);
    assert_eq!(told(&journal, "r/0"), [(1, "job".to_owned(), None)], "who leads is known without the disk");
}

#[test]
fn a_crash_while_room_is_made_leaves_the_same_history() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), 1 << 20);
    flap(&journal, "quiet", 1..20);
    flap(&journal, "noisy", 1..9000);
    let expected = tokens(&journal, "noisy", 10_000);
    drop(journal);
    // What a file had is in the one before already, and in a file that never took its place.
    let files = names(folder.path());
    let whole = |number| path(&folder.path().join(FOLDER), number);
    let both = [std::fs::read(whole(files[1])).unwrap(), std::fs::read(whole(files[2])).unwrap()].concat();
    std::fs::write(whole(files[1]), &both).unwrap();
    std::fs::write(folder.path().join(FOLDER).join("sieved.tmp"), &both[..both.len() / 2]).unwrap();
    let journal = open(folder.path(), 1 << 20);
    assert_eq!(tokens(&journal, "noisy", 10_000), expected);
    flap(&journal, "noisy", 9000..18_000);
    assert_eq!(tokens(&journal, "quiet", 100), (1..20).collect::<Vec<u64>>());
    let kept = tokens(&journal, "noisy", 10_000);
    assert_eq!(kept, (kept[0]..18_000).collect::<Vec<u64>>());
    assert!(size_on_disk(folder.path()) <= 1 << 20);
}

#[test]
fn a_wall_clock_that_is_set_ahead_prunes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { keep: 30 * DAY, max_size: 1 << 20 };
    let journal = Journal::open(folder.path(), limits, Writer::Caller).unwrap();
    // Now it is set ahead by 60 days: what was written a moment ago is dated two months back, files included.
    let before = SystemTime::now() - 60 * DAY;
    for number in 1..3000 {
        journal.note_at(&elected("ledger", "a", number), before);
    }
    for number in names(folder.path()) {
        let file =
            std::fs::File::options().append(true).open(path(&folder.path().join(FOLDER), number)).unwrap();
        file.set_modified(before).unwrap();
    }
    journal.note(&elected("ledger", "b", 3000));
    journal.shared.look_after();
    let after = Journal::open(folder.path(), limits, Writer::Caller).unwrap();
    after.note(&elected("ledger", "c", 3001));
    after.shared.look_after();
    // Somebody corrects it.
    after.note_at(&elected("ledger", "d", 3002), before);
    let expected: Vec<u64> = (1..=3002).collect();
    assert_eq!(tokens(&journal, "ledger", 10_000), expected);
    assert_eq!(tokens(&after, "ledger", 10_000), expected);
}

#[test]
fn lines_go_when_a_gateway_has_run_for_so_long() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let limits = Limits { keep: 32 * DAY, max_size: 1 << 20 };
    let mut files = Files::new(folder, limits, Vec::new(), Shares::default());
    let line = |name: &str, number: u64| {
        let reign = Reign::beginning("job", number, SystemTime::now(), false);
        Entry::Won { resource: resource(name), reign }.line()
    };
    // A term a day for a hundred days, and one that began on the first and lasts.
    let lasts = |line: &str| line.contains("steady");
    files.append(&line("steady", 1), Duration::ZERO, &lasts).unwrap();
    for day in 0..100 {
        files.append(&line("daily", day + 1), DAY * day as u32, &lasts).unwrap();
    }
    let kept = |folder: &Path| {
        let mut kept = Vec::new();
        files::read(folder, |_, line| kept.extend(Entry::parse(line))).unwrap();
        let is = |entry: &Entry, name: &str| Entry::subject(&entry.line()) == Some(name);
        let daily: Vec<u64> = kept.iter().filter(|entry| is(entry, "daily")).map(Entry::token).collect();
        (daily, kept.iter().filter(|entry| is(entry, "steady")).count())
    };
    let (daily, steady) = kept(folder);
    assert_eq!(daily, (daily[0]..=100).collect::<Vec<u64>>());
    assert!((63..=68).contains(&daily[0]), "32 days and a file's worth stay: {daily:?}");
    assert_eq!(steady, 1, "it lasts");
    assert!(files.old.len() < 20, "{}", files.old.len());
    // Without any event they go as well.
    files.remove_old(DAY * 150, &lasts).unwrap();
    assert_eq!(kept(folder), (Vec::new(), 1));
    assert_eq!(files.shares.first_above(0), Some(files.old[0].number));
}

#[test]
fn the_clock_of_the_journal_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { keep: 16 * DAY, max_size: 1 << 20 };
    let history = folder.path().join(FOLDER);
    std::fs::create_dir(&history).unwrap();
    // Two files that an earlier process has left.
    let of = |number, begun: Duration| {
        let line =
            Entry::Raised { resource: resource("a"), from: 0, to: number, at: SystemTime::now() }.line();
        std::fs::write(path(&history, number), [clock::line(begun), line].concat()).unwrap();
    };
    of(1, DAY);
    of(2, DAY * 20);
    let journal = Journal::open(folder.path(), limits, Writer::Caller).unwrap();
    assert!(journal.shared.clock.now() >= DAY * 20);
    let begun = |part: &Part| part.begun;
    assert_eq!(journal.shared.files.lock().old.iter().map(begun).collect::<Vec<_>>(), [DAY]);
    journal.note(&elected("a", "job", 7));
    journal.close();
    assert_eq!(names(folder.path()), [1, 2], "the first is as old as the second is");
    of(2, DAY * 40);
    let journal = Journal::open(folder.path(), limits, Writer::Caller).unwrap();
    journal.shared.look_after();
    assert_eq!(names(folder.path()), [1, 2]);
    of(3, DAY * 60);
    let journal = Journal::open(folder.path(), limits, Writer::Caller).unwrap();
    journal.shared.look_after();
    assert_eq!(names(folder.path()), [2, 3], "more than 16 days have passed since the second was begun");
}
