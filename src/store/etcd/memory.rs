//! What this replica remembers of etcd: which cluster it is, and how far its log had come.
//!
//! An etcd that was restored from a backup, or set up anew, has lost what it had committed, and a mark with it.
//! It shows: the revision of an answer is lower than one that was seen before the question was asked, a renewal
//! that it had confirmed is not there, or the cluster is another one. Then nothing passes until an operator has bumped the era. Kept in a small file, so
//! that a restart does not forget it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use highgate_elector::backend::etcd::wire::ResponseHeader;
use serde_json::{Value, json};

use super::values::revision;
use crate::replica::Revision;

const FILE_NAME: &str = "etcd.json";

/// Shared by everything that asks etcd.
pub(super) struct Memory {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    /// 0 before the first answer.
    cluster: u64,
    revision: Revision,
    era: u64,
    /// It was caught at having lost something: from which revision, to which. That it catches up does not bring
    /// back what it has lost.
    lost: Option<Lost>,
}

/// What etcd was caught at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lost {
    before: u64,
    now: u64,
    /// It is a mark that went back, not a revision.
    mark: bool,
}

/// etcd is not, or not any more, what it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WentBack {
    #[error(
        "etcd was at revision {before} and is now at {now}: it was restored from a backup and has lost what it had \
         committed since. Stop the old etcd for good, then run `highgate era bump`"
    )]
    Revision { before: Revision, now: Revision },
    #[error(
        "a mark in etcd was {before} and is now {now}: etcd was restored from a backup and has lost what it had \
         committed since. Stop the old etcd for good, then run `highgate era bump`"
    )]
    Mark { before: u64, now: u64 },
    #[error(
        "this is another etcd cluster ({now:x}) than before ({before:x}). If it replaces that one, stop the old one \
         for good and run `highgate era bump`; if it was given by mistake, correct the endpoints; if this replica \
         moves to another cluster for good, remove {}", file.display()
    )]
    Cluster { before: u64, now: u64, file: PathBuf },
}

/// The file is not usable.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("cannot make the folder {}", folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{} does not hold what this program writes there; restore it or remove it", path.display())]
    Nonsense { path: PathBuf },
}

impl Memory {
    /// Reads what an earlier process left in this folder, which is made if it is not there.
    pub(super) fn open(folder: &Path) -> Result<Self, MemoryError> {
        fs::create_dir_all(folder)
            .map_err(|source| MemoryError::Folder { folder: folder.to_owned(), source })?;
        let path = folder.join(FILE_NAME);
        let known = match fs::read(&path) {
            Ok(text) => parse(&text).ok_or_else(|| MemoryError::Nonsense { path: path.clone() })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Known::default(),
            Err(source) => return Err(MemoryError::Read { path, source }),
        };
        let memory = Self { path, known: Mutex::new(known) };
        // A folder that cannot be written is found out now, not after the first restore.
        memory.save()?;
        Ok(memory)
    }

    /// The highest revision seen so far: to be asked before a question is sent.
    pub(super) fn revision(&self) -> Revision {
        self.known().revision
    }

    /// The era that was current when etcd was last what it is known to be.
    pub(super) fn era(&self) -> u64 {
        self.known().era
    }

    /// Judges an answer to a question that was sent when `before` was the highest revision seen.
    pub(super) fn judge(&self, header: Option<&ResponseHeader>, before: Revision) -> Result<(), WentBack> {
        let Some(header) = header else { return Ok(()) };
        let mut known = self.known();
        let now = revision(header.revision);
        if known.cluster != 0 && known.cluster != header.cluster_id {
            let file = self.path.clone();
            return Err(WentBack::Cluster { before: known.cluster, now: header.cluster_id, file });
        }
        if now < before {
            known.lost.get_or_insert(Lost { before, now, mark: false });
        }
        if let Some(lost) = known.lost {
            return Err(lost.into());
        }
        known.cluster = header.cluster_id;
        known.revision = known.revision.max(now);
        Ok(())
    }

    /// etcd has a change of `now` where it had confirmed one of `before`.
    pub(super) fn lost(&self, before: Revision, now: Revision) -> WentBack {
        (*self.known().lost.get_or_insert(Lost { before, now, mark: false })).into()
    }

    /// etcd has a mark of `now` where it had one of `before`.
    pub(super) fn lost_mark(&self, before: u64, now: u64) -> WentBack {
        (*self.known().lost.get_or_insert(Lost { before, now, mark: true })).into()
    }

    /// Whether etcd was caught, and no operator has said yet that it is what it is.
    pub(super) fn is_suspect(&self) -> bool {
        self.known().lost.is_some()
    }

    /// An operator has said that etcd is what it is: an era has begun that was not known.
    pub(super) fn accept(&self, header: Option<&ResponseHeader>, era: u64) {
        let Some(header) = header else { return };
        let revision = revision(header.revision);
        *self.known() = Known { cluster: header.cluster_id, revision, era, lost: None };
    }

    /// This replica serves in this era.
    pub(super) fn joined(&self, era: u64) {
        self.known().era = era;
    }

    /// Writes the file whole or not at all.
    pub(super) fn save(&self) -> Result<(), MemoryError> {
        let known = *self.known();
        let mut line = json!({"cluster": known.cluster, "revision": known.revision, "era": known.era});
        if let Some(Lost { before, now, mark }) = known.lost {
            line["lost"] = json!({"before": before, "now": now, "mark": mark});
        }
        let line = line.to_string();
        let write = || {
            let folder = self.path.parent().unwrap_or(Path::new("."));
            let mut file = tempfile_in(folder)?;
            file.1.write_all(line.as_bytes())?;
            file.1.write_all(b"\n")?;
            file.1.sync_all()?;
            fs::rename(&file.0, &self.path)?;
            fs::File::open(folder)?.sync_all()
        };
        write().map_err(|source| MemoryError::Write { path: self.path.clone(), source })
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("nothing panics while it holds this lock")
    }
}

impl From<Lost> for WentBack {
    fn from(Lost { before, now, mark }: Lost) -> Self {
        if mark { Self::Mark { before, now } } else { Self::Revision { before, now } }
    }
}

/// Named so that two replicas that share a folder do not write into each other's.
fn tempfile_in(folder: &Path) -> std::io::Result<(PathBuf, fs::File)> {
    let path = folder.join(format!(".{FILE_NAME}.{}", uuid::Uuid::new_v4().simple()));
    let file = fs::File::create_new(&path)?;
    Ok((path, file))
}

fn parse(text: &[u8]) -> Option<Known> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let number = |value: &Value, name: &str| value.get(name)?.as_u64();
    let lost = match value.get("lost") {
        Some(lost) => Some(Lost {
            before: number(lost, "before")?,
            now: number(lost, "now")?,
            mark: lost.get("mark")?.as_bool()?,
        }),
        None => None,
    };
    Some(Known {
        cluster: number(&value, "cluster")?,
        revision: number(&value, "revision")?,
        era: number(&value, "era")?,
        lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(cluster_id: u64, revision: i64) -> ResponseHeader {
        ResponseHeader { cluster_id, revision, ..ResponseHeader::default() }
    }

    #[test]
    fn an_answer_from_before_what_was_known_is_a_restored_etcd() {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::open(folder.path()).unwrap();
        assert_eq!(memory.judge(Some(&header(7, 100)), memory.revision()), Ok(()));
        // An answer that was overtaken by a later one is none: the question was asked before that.
        assert_eq!(memory.judge(Some(&header(7, 99)), 90), Ok(()));
        assert_eq!(memory.revision(), 100);
        let before = memory.revision();
        let went_back = Err(WentBack::Revision { before: 100, now: 60 });
        assert_eq!(memory.judge(Some(&header(7, 60)), before), went_back);
        assert_eq!(memory.judge(Some(&header(7, 200)), before), went_back, "catching up mends nothing");
        memory.save().unwrap();
        let memory = Memory::open(folder.path()).unwrap();
        assert!(memory.is_suspect());
        assert_eq!(memory.judge(Some(&header(7, 300)), memory.revision()), went_back, "nor does a restart");
        memory.accept(Some(&header(7, 300)), 1);
        assert_eq!(memory.judge(Some(&header(7, 301)), memory.revision()), Ok(()));
    }

    #[test]
    fn it_is_remembered_over_a_restart_until_an_era_begins() {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::open(folder.path()).unwrap();
        memory.judge(Some(&header(7, 100)), 0).unwrap();
        memory.joined(2);
        memory.save().unwrap();
        let memory = Memory::open(folder.path()).unwrap();
        assert_eq!((memory.revision(), memory.era()), (100, 2));
        assert!(matches!(memory.judge(Some(&header(8, 200)), 100), Err(WentBack::Cluster { .. })));
        memory.accept(Some(&header(8, 50)), 3);
        assert_eq!(memory.judge(Some(&header(8, 51)), memory.revision()), Ok(()));
        assert_eq!((memory.revision(), memory.era()), (51, 3));
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1, "nothing is left of writing");
    }

    #[test]
    fn a_file_that_is_not_ours_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE_NAME), "{}").unwrap();
        let error = Memory::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("etcd.json"), "{error}");
    }
}
