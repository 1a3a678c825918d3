//! The keys in force: those of a folder, which is looked at every second and taken in place.
//!
//! A thread of its own calls [`Signing::refresh`]. What must stay true: a key that was retired is out of force with the next
//! look, whatever else is wrong in the folder; with a folder that is gone nothing signs, and what was good stays good; and
//! one that is there and cannot be read changes nothing.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::Keys;
use super::folder::{self, Contents};

/// Keys with their folder; by default none of no folder.
#[derive(Default)]
pub struct Signing {
    folder: PathBuf,
    keys: ArcSwap<Keys>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    fingerprint: Option<u64>,
    /// What was wrong at the last look: it may be a change that is half done, and is told when it is still so at the next.
    problems: Vec<String>,
    told: bool,
}

/// What a look at the folder has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Other keys are in force.
    Changed,
    /// These files cannot be used; told once.
    Refused(Vec<String>),
}

impl Signing {
    /// The keys of a folder, and what is wrong with it. A folder that is not there has no keys.
    pub fn open(folder: PathBuf) -> (Self, Vec<String>) {
        let signing = Self { folder, keys: ArcSwap::default(), seen: Mutex::default() };
        let problems = signing.look().1;
        // Whoever opens it hears of them here.
        let mut seen = signing.seen.lock();
        (seen.problems, seen.told) = (problems.clone(), true);
        drop(seen);
        (signing, problems)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn keys(&self) -> Guard<Arc<Keys>> {
        self.keys.load()
    }

    /// Private files that others than their owner can read.
    pub fn exposed(&self) -> Vec<PathBuf> {
        folder::exposed(&self.folder)
    }

    /// Looks at the folder, takes what is new, and says what is worth a word.
    pub fn refresh(&self) -> Vec<News> {
        let (changed, problems) = self.look();
        let mut news = Vec::new();
        if changed {
            news.push(News::Changed);
        }
        let mut seen = self.seen.lock();
        if seen.problems != problems {
            (seen.problems, seen.told) = (problems, false);
        } else if !problems.is_empty() && !seen.told {
            seen.told = true;
            news.push(News::Refused(problems));
        }
        news
    }

    /// Takes what the folder holds now. Whether that is other than before, and what cannot be used of it.
    fn look(&self) -> (bool, Vec<String>) {
        let contents = match Contents::read(&self.folder) {
            Ok(contents) => contents,
            Err(error) => return self.miss(&error),
        };
        let (fingerprint, before) = (Some(contents.fingerprint()), self.keys.load_full());
        let mut seen = self.seen.lock();
        if seen.fingerprint == fingerprint {
            return (false, seen.problems.clone());
        }
        let (keys, problems) = contents.keys(&before);
        seen.fingerprint = fingerprint;
        (self.take(keys), problems)
    }

    /// Goes on without the folder. If it is gone, so are the private halves: nothing signs until they are back.
    fn miss(&self, error: &io::Error) -> (bool, Vec<String>) {
        let (before, is_gone) =
            (self.keys.load_full(), matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory));
        if is_gone && before.is_empty() {
            // Nobody uses keys. If it is the data folder that is none, its store says so.
            return (false, Vec::new());
        }
        self.seen.lock().fingerprint = None;
        let changed = is_gone && self.take(before.public_halves());
        (changed, vec![format!("{} cannot be read: {error}", self.folder.display())])
    }

    /// Has these keys be in force. Whether that is other than before.
    fn take(&self, keys: Keys) -> bool {
        let changed = keys != **self.keys.load();
        if changed {
            self.keys.store(Arc::new(keys));
        }
        changed
    }
}

/// The same folder is the same: what it holds is taken in place.
impl PartialEq for Signing {
    fn eq(&self, other: &Self) -> bool {
        self.folder == other.folder
    }
}

impl std::fmt::Debug for Signing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signing").field("folder", &self.folder).field("keys", &**self.keys.load()).finish()
    }
}
