//! What this replica remembers of etcd: which cluster it is, and how far its log had come.
//!
//! An etcd that was restored from a backup, or set up anew, has lost what it had committed, and a mark with it.
//! It shows: the revision of an answer is lower than one that was seen before the question was asked, a renewal
//! that it had confirmed is not there, it counts fewer changes of marks than it did (its revisions may have caught up,
//! or have been bumped by the restore), its era is gone, or the cluster is another one. Then nothing passes until an
//! operator has bumped the era. Kept in a small file, so that a restart does not forget it.
//!
//! What must stay true: an answer is judged by the generation in which it was asked. A generation ends when an
//! operator's new era is accepted; what was asked before that says nothing of the etcd that there is now.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use highgate_etcd::Header;
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
    /// The highest version of `seq`, which counts the changes of marks, members and eras.
    changes: u64,
    era: u64,
    /// The longest that any member or tombstone had to be waited for, when that was last known.
    longest_wait: Duration,
    /// Counts the restores that were accepted, in this process only.
    generation: u64,
    /// It was caught at having lost something: from which revision, to which. That it catches up does not bring
    /// back what it has lost.
    lost: Option<Lost>,
}

/// What was known when a question was sent: its answer is judged by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    generation: u64,
    pub(super) revision: Revision,
    changes: u64,
}

/// What etcd was caught at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lost {
    what: What,
    before: u64,
    now: u64,
}

/// What of etcd went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Revision,
    Mark,
    Changes,
    Era,
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
        "etcd had counted {before} changes of marks and members and has now {now}: it was restored from a backup and \
         has lost what it had committed since. Stop the old etcd for good, then run `highgate era bump`"
    )]
    Changes { before: u64, now: u64 },
    #[error(
        "etcd was in era {before} and is now in era {now}, or has none: it was restored from a backup, or its era was \
         deleted. Stop the old etcd for good, then run `highgate era bump`"
    )]
    Era { before: u64, now: u64 },
    #[error(
        "this is another etcd cluster ({now:x}) than before ({before:x}). If it replaces that one, stop the old one \
         for good and run `highgate era bump`; if it was given by mistake, correct the endpoints; if this replica \
         moves to another cluster for good, remove {}", file.display()
    )]
    Cluster { before: u64, now: u64, file: PathBuf },
}

/// Why an answer does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    WentBack(WentBack),
    /// It was asked before a restored etcd was accepted, so it says nothing of the etcd that there is now.
    Outdated,
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

    /// The highest revision seen so far.
    pub(super) fn revision(&self) -> Revision {
        self.known().revision
    }

    /// What is known now: to be taken before a question is sent.
    pub(super) fn asking(&self) -> Asked {
        let Known { generation, revision, changes, .. } = *self.known();
        Asked { generation, revision, changes }
    }

    /// The era that was current when etcd was last what it is known to be.
    pub(super) fn era(&self) -> u64 {
        self.known().era
    }

    /// The longest that any member or tombstone had to be waited for, when that was last known.
    pub(super) fn longest_wait(&self) -> Duration {
        self.known().longest_wait
    }

    /// Judges an answer to a question that was asked when `asked` was known.
    pub(super) fn judge(&self, header: Header, asked: Asked) -> Result<(), Verdict> {
        let mut known = self.known();
        if known.generation != asked.generation {
            return Err(Verdict::Outdated);
        }
        let now = revision(header.revision);
        if known.cluster != 0 && known.cluster != header.cluster {
            let file = self.path.clone();
            let cluster = WentBack::Cluster { before: known.cluster, now: header.cluster, file };
            return Err(Verdict::WentBack(cluster));
        }
        if now < asked.revision {
            known.catch(What::Revision, asked.revision, now);
        }
        known.stands()?;
        known.cluster = header.cluster;
        known.revision = known.revision.max(now);
        Ok(())
    }

    /// Judges the version of `seq` that was in such an answer.
    pub(super) fn judge_changes(&self, version: u64, asked: Asked) -> Result<(), Verdict> {
        let mut known = self.known();
        if known.generation != asked.generation {
            return Err(Verdict::Outdated);
        }
        if version < asked.changes {
            known.catch(What::Changes, asked.changes, version);
        }
        known.stands()?;
        known.changes = known.changes.max(version);
        Ok(())
    }

    /// Judges the era that was in such an answer; none: etcd has no era.
    pub(super) fn judge_era(&self, era: Option<u64>, asked: Asked) -> Result<(), Verdict> {
        let mut known = self.known();
        if known.generation != asked.generation {
            return Err(Verdict::Outdated);
        }
        if era.unwrap_or(0) < known.era {
            let before = known.era;
            known.catch(What::Era, before, era.unwrap_or(0));
        }
        known.stands()
    }

    /// The watch has told of so many changes.
    pub(super) fn counted(&self, version: u64) {
        let mut known = self.known();
        known.changes = known.changes.max(version);
    }

    /// This is the longest that any member or tombstone has to be waited for now.
    pub(super) fn waits(&self, longest: Duration) {
        self.known().longest_wait = longest;
    }

    /// etcd has a change of `now` where it had confirmed one of `before`.
    pub(super) fn lost(&self, before: Revision, now: Revision) -> WentBack {
        self.known().catch(What::Revision, before, now)
    }

    /// etcd has a mark of `now` where it had one of `before`.
    pub(super) fn lost_mark(&self, before: u64, now: u64) -> WentBack {
        self.known().catch(What::Mark, before, now)
    }

    /// Whether etcd was caught, and no operator has said yet that it is what it is.
    pub(super) fn is_suspect(&self) -> bool {
        self.known().lost.is_some()
    }

    /// An operator has said that etcd is what it is: an era has begun that was not known. What is asked from now on
    /// is of another generation. False if that has happened already since this was asked.
    pub(super) fn accept(&self, header: Header, (era, changes): (u64, u64), asked: Asked) -> bool {
        let mut known = self.known();
        if known.generation != asked.generation {
            return false;
        }
        *known = Known {
            cluster: header.cluster,
            revision: revision(header.revision),
            changes,
            era,
            longest_wait: known.longest_wait,
            generation: known.generation + 1,
            lost: None,
        };
        true
    }

    /// This replica serves in this era.
    pub(super) fn joined(&self, era: u64) {
        self.known().era = era;
    }

    /// Writes the file whole or not at all.
    pub(super) fn save(&self) -> Result<(), MemoryError> {
        let line = format(&self.known());
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

impl Known {
    /// What etcd was caught at first stays: that it catches up does not bring back what it has lost.
    fn catch(&mut self, what: What, before: u64, now: u64) -> WentBack {
        (*self.lost.get_or_insert(Lost { what, before, now })).into()
    }

    fn stands(&self) -> Result<(), Verdict> {
        self.lost.map_or(Ok(()), |lost| Err(Verdict::WentBack(lost.into())))
    }
}

impl From<Lost> for WentBack {
    fn from(Lost { what, before, now }: Lost) -> Self {
        match what {
            What::Revision => Self::Revision { before, now },
            What::Mark => Self::Mark { before, now },
            What::Changes => Self::Changes { before, now },
            What::Era => Self::Era { before, now },
        }
    }
}

impl What {
    const ALL: [(Self, &str); 4] =
        [(Self::Revision, "revision"), (Self::Mark, "mark"), (Self::Changes, "changes"), (Self::Era, "era")];

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(what, _)| *what == self).map_or("revision", |(_, name)| name)
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(what, _)| what)
    }
}

/// Named so that two replicas that share a folder do not write into each other's.
fn tempfile_in(folder: &Path) -> std::io::Result<(PathBuf, fs::File)> {
    let path = folder.join(format!(".{FILE_NAME}.{}", uuid::Uuid::new_v4().simple()));
    let file = fs::File::create_new(&path)?;
    Ok((path, file))
}

fn format(known: &Known) -> String {
    let mut line = json!({
        "cluster": known.cluster,
        "revision": known.revision,
        "changes": known.changes,
        "era": known.era,
        "longest_wait_ms": u64::try_from(known.longest_wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX),
    });
    if let Some(Lost { what, before, now }) = known.lost {
        line["lost"] = json!({"what": what.name(), "before": before, "now": now});
    }
    line.to_string()
}

/// None of what this program does not write. A file of an earlier version has counted nothing.
fn parse(text: &[u8]) -> Option<Known> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let number = |value: &Value, name: &str| value.get(name)?.as_u64();
    let lost = match value.get("lost") {
        Some(lost) => {
            let what = match lost.get("what") {
                Some(what) => What::named(what.as_str()?)?,
                None if lost.get("mark")?.as_bool()? => What::Mark,
                None => What::Revision,
            };
            Some(Lost { what, before: number(lost, "before")?, now: number(lost, "now")? })
        }
        None => None,
    };
    Some(Known {
        cluster: number(&value, "cluster")?,
        revision: number(&value, "revision")?,
        changes: number(&value, "changes").unwrap_or(0),
        era: number(&value, "era")?,
        longest_wait: Duration::from_millis(number(&value, "longest_wait_ms").unwrap_or(0)),
        generation: 0,
        lost,
    })
}

#[cfg(test)]
mod tests;
