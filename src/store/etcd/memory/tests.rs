use super::*;

fn header(cluster: u64, revision: i64) -> Header {
    Header { cluster, revision, ..Header::default() }
}

fn went_back<T>(what: WentBack) -> Result<T, Verdict> {
    Err(Verdict::WentBack(what))
}

/// A memory that has seen an etcd at this revision.
fn at(folder: &Path, revision: i64) -> Memory {
    let memory = Memory::open(folder).unwrap();
    memory.judge(header(7, revision), memory.asking()).unwrap();
    memory
}

#[test]
fn an_answer_from_before_what_was_known_is_a_restored_etcd() {
    let folder = tempfile::tempdir().unwrap();
    let memory = at(folder.path(), 90);
    let asked_early = memory.asking();
    assert_eq!(memory.judge(header(7, 100), memory.asking()), Ok(()));
    // An answer that was overtaken by a later one is none: the question was asked before that.
    assert_eq!(memory.judge(header(7, 99), asked_early), Ok(()));
    assert_eq!(memory.revision(), 100);
    let lower = WentBack::Revision { before: 100, now: 60 };
    assert_eq!(memory.judge(header(7, 60), memory.asking()), went_back(lower.clone()));
    let caught_up = memory.judge(header(7, 200), memory.asking());
    assert_eq!(caught_up, went_back(lower.clone()), "catching up mends nothing");
    memory.save().unwrap();
    let memory = Memory::open(folder.path()).unwrap();
    assert!(memory.is_suspect());
    let later = memory.judge(header(7, 300), memory.asking());
    assert_eq!(later, went_back(lower), "nor does a restart");
    assert!(memory.accept(header(7, 300), (1, 0), memory.asking()));
    assert_eq!(memory.judge(header(7, 301), memory.asking()), Ok(()));
}

#[test]
fn an_answer_that_was_asked_before_an_era_was_accepted_neither_undoes_it_nor_counts() {
    let folder = tempfile::tempdir().unwrap();
    let memory = at(folder.path(), 100);
    memory.judge_changes(40, memory.asking()).unwrap();
    let asked = memory.asking();
    assert!(memory.judge(header(7, 60), asked).is_err());
    assert!(memory.accept(header(7, 61), (1, 20), asked));
    // Of the etcd that there was, and of the one that there is: both were asked before.
    for revision in [101, 62] {
        assert_eq!(memory.judge(header(7, revision), asked), Err(Verdict::Outdated));
    }
    assert_eq!(memory.judge_changes(12, asked), Err(Verdict::Outdated));
    assert_eq!(memory.judge_era(Some(0), asked), Err(Verdict::Outdated));
    assert!(!memory.accept(header(7, 62), (2, 21), asked), "it is accepted once");
    assert_eq!((memory.revision(), memory.era(), memory.is_suspect()), (61, 1, false));
    assert_eq!(memory.judge(header(7, 63), memory.asking()), Ok(()));
    assert_eq!(memory.judge_changes(21, memory.asking()), Ok(()));
}

#[test]
fn an_etcd_that_has_caught_up_in_revisions_is_known_by_its_changes_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let memory = at(folder.path(), 100);
    memory.counted(41);
    memory.save().unwrap();
    let memory = Memory::open(folder.path()).unwrap();
    assert_eq!(memory.judge(header(7, 5000), memory.asking()), Ok(()), "its revision says nothing");
    assert_eq!(memory.judge_changes(41, memory.asking()), Ok(()));
    let fewer = WentBack::Changes { before: 41, now: 40 };
    assert_eq!(memory.judge_changes(40, memory.asking()), went_back(fewer.clone()));
    memory.save().unwrap();
    let memory = Memory::open(folder.path()).unwrap();
    assert_eq!(memory.judge_changes(50, memory.asking()), went_back(fewer), "catching up mends nothing");
}

#[test]
fn an_era_that_is_gone_or_lower_than_a_remembered_one_is_a_loss() {
    for era in [None, Some(1)] {
        let folder = tempfile::tempdir().unwrap();
        let memory = at(folder.path(), 100);
        memory.joined(2);
        assert_eq!(memory.judge_era(Some(2), memory.asking()), Ok(()));
        let lower = WentBack::Era { before: 2, now: era.unwrap_or(0) };
        assert_eq!(memory.judge_era(era, memory.asking()), went_back(lower));
        assert!(memory.is_suspect());
    }
    let memory = Memory::open(tempfile::tempdir().unwrap().path()).unwrap();
    assert_eq!(memory.judge_era(None, memory.asking()), Ok(()), "a prefix that nobody has used");
}

#[test]
fn it_is_remembered_over_a_restart_until_an_era_begins() {
    let folder = tempfile::tempdir().unwrap();
    let memory = at(folder.path(), 100);
    memory.joined(2);
    memory.waits(Duration::from_secs(90));
    memory.save().unwrap();
    let memory = Memory::open(folder.path()).unwrap();
    assert_eq!((memory.revision(), memory.era()), (100, 2));
    assert_eq!(memory.longest_wait(), Duration::from_secs(90));
    let other = memory.judge(header(8, 200), memory.asking());
    assert!(matches!(other, Err(Verdict::WentBack(WentBack::Cluster { .. }))));
    assert!(memory.accept(header(8, 50), (3, 0), memory.asking()));
    assert_eq!(memory.judge(header(8, 51), memory.asking()), Ok(()));
    assert_eq!((memory.revision(), memory.era()), (51, 3));
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1, "nothing is left of writing");
}

#[test]
fn a_file_of_an_earlier_version_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let old = r#"{"cluster":7,"revision":9,"era":1,"lost":{"before":9,"now":4,"mark":true}}"#;
    fs::write(folder.path().join(FILE_NAME), old).unwrap();
    let memory = Memory::open(folder.path()).unwrap();
    assert_eq!((memory.revision(), memory.era()), (9, 1));
    let lost = memory.judge(header(7, 10), memory.asking());
    assert_eq!(lost, went_back(WentBack::Mark { before: 9, now: 4 }));
}

#[test]
fn a_file_that_is_not_ours_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(FILE_NAME), "{}").unwrap();
    let error = Memory::open(folder.path()).err().unwrap().to_string();
    assert!(error.contains("etcd.json"), "{error}");
}
