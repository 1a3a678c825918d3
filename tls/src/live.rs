//! Something that is made of files and made again when they change; what it was before stays until the new one is good.
//!
//! Files are looked at every second rather than watched: that also sees a symlink swapped three folders away (Kubernetes), a
//! network file system, and a folder that is not there yet; and to read a few kilobytes costs nothing. What must stay
//! true: a certificate and its key are written one after the other, so what does not fit together is only
//! worth a word when it still does not a second later.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::files::{Contents, TlsError};

pub struct Live<T> {
    current: ArcSwap<T>,
    seen: Mutex<Seen>,
}

struct Seen {
    /// Of what `current` was made of.
    fingerprint: u64,
    /// How often in a row the files could not be used.
    failures: u32,
    /// Why, once that was told.
    told: Option<String>,
}

/// What a look at the files has brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Nothing new to tell.
    Unchanged,
    Renewed,
    /// The new files cannot be used, and the old ones stay in force. Told once.
    Refused(String),
}

/// The first failure may be a change that is half done.
const TELL_AFTER: u32 = 2;

impl<T> Live<T> {
    pub fn new<'p>(
        files: impl IntoIterator<Item = &'p Path>,
        make: impl FnOnce(&Contents) -> Result<T, TlsError>,
    ) -> Result<Self, TlsError> {
        let contents = Contents::read(files)?;
        let current = ArcSwap::from_pointee(make(&contents)?);
        let seen = Seen { fingerprint: contents.fingerprint(), failures: 0, told: None };
        Ok(Self { current, seen: Mutex::new(seen) })
    }

    pub fn current(&self) -> arc_swap::Guard<Arc<T>> {
        self.current.load()
    }

    /// Why the files, as they are now, are not in force.
    pub fn trouble(&self) -> Option<String> {
        self.seen.lock().told.clone()
    }

    /// Looks at the files. `make` gets what they hold now and what is in force.
    pub fn refresh<'p>(
        &self,
        files: impl IntoIterator<Item = &'p Path>,
        make: impl FnOnce(&Contents, &T) -> Result<T, TlsError>,
    ) -> Refresh {
        let mut seen = self.seen.lock();
        let made = Contents::read(files).and_then(|contents| {
            let fingerprint = contents.fingerprint();
            if fingerprint == seen.fingerprint {
                return Ok(None);
            }
            make(&contents, &self.current()).map(|made| Some((made, fingerprint)))
        });
        match made {
            Err(error) => seen.failed(error.to_string()),
            Ok(None) => {
                (seen.failures, seen.told) = (0, None);
                Refresh::Unchanged
            }
            Ok(Some((made, fingerprint))) => {
                self.current.store(Arc::new(made));
                *seen = Seen { fingerprint, failures: 0, told: None };
                Refresh::Renewed
            }
        }
    }
}

impl Seen {
    fn failed(&mut self, why: String) -> Refresh {
        self.failures += 1;
        if self.failures < TELL_AFTER || self.told.as_ref() == Some(&why) {
            return Refresh::Unchanged;
        }
        self.told = Some(why.clone());
        Refresh::Refused(why)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::TlsProblem;

    /// Made of a file that must not be called "bad".
    fn make(file: &Path) -> impl Fn(&Contents) -> Result<String, TlsError> {
        move |contents| match contents.of(file) {
            b"bad" => Err(TlsProblem::NoCertificate.of(file)),
            text => Ok(String::from_utf8_lossy(text).into_owned()),
        }
    }

    #[test]
    fn a_bad_file_keeps_the_old_one_and_is_told_when_it_stays_bad() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "one").unwrap();
        let live = Live::new([file.as_path()], make(&file)).unwrap();
        let refresh = || live.refresh([file.as_path()], |contents, _| make(&file)(contents));
        assert_eq!(refresh(), Refresh::Unchanged);
        fs::write(&file, "bad").unwrap();
        assert_eq!(refresh(), Refresh::Unchanged, "it may be half written");
        assert_eq!(live.trouble(), None);
        let why = format!("{} holds no certificate in PEM", file.display());
        assert_eq!(refresh(), Refresh::Refused(why.clone()));
        assert_eq!(refresh(), Refresh::Unchanged, "told once");
        assert_eq!((live.current().as_str(), live.trouble()), ("one", Some(why)));
        fs::remove_file(&file).unwrap();
        assert!(matches!(refresh(), Refresh::Refused(_)), "another trouble is told as well");
        fs::write(&file, "two").unwrap();
        assert_eq!(refresh(), Refresh::Renewed);
        assert_eq!((live.current().as_str(), live.trouble()), ("two", None));
    }

    #[test]
    fn a_file_that_is_put_back_ends_the_trouble() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "one").unwrap();
        let live = Live::new([file.as_path()], make(&file)).unwrap();
        let refresh = || live.refresh([file.as_path()], |contents, _| make(&file)(contents));
        fs::write(&file, "bad").unwrap();
        refresh();
        refresh();
        assert!(live.trouble().is_some());
        fs::write(&file, "one").unwrap();
        assert_eq!((refresh(), live.trouble()), (Refresh::Unchanged, None));
    }
}
