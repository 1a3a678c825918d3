//! Changes of a folder of keys: `highgate keys new` and `highgate keys retire`.
//!
//! What must stay true: a new file is whole when it is there; a private file is its owner's alone from its first moment,
//! and a public one can be read by the gateways of every user, whatever the umask is: a gateway that cannot read that a
//! key was retired would go on with it.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::folder::Contents;
use super::key::{Fresh, Key, KeyId};

const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Why a folder of keys was not changed.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{} cannot be used", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the system has no random numbers")]
    NoRandom,
    #[error("there is no key {id} in {}", .folder.display())]
    NoSuchKey { id: KeyId, folder: PathBuf },
    #[error("{}", .0.join("\n"))]
    Bad(Vec<String>),
}

/// Makes a key, which signs after this time; its files are in the folder when this returns.
pub fn create(folder: &Path, now: SystemTime, signs_after: Duration) -> Result<KeyId, FolderError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(io_at(folder))?;
    let fresh = Fresh::new(now, now + signs_after).ok_or(FolderError::NoRandom)?;
    let id = fresh.key.id;
    // The private half first. If this is killed half way, what it leaves is either a whole key or a file that nobody
    // reads, of a key that no gateway knows.
    let private = file(folder, id, "key");
    write(&private, PRIVATE, &fresh.private_text())?;
    write(&file(folder, id, "pub"), PUBLIC, &fresh.key.public_text()).inspect_err(|_| {
        // Whoever hears that no key was made is to find none. What cannot be removed is still listed.
        let _ = fs::remove_file(&private);
    })?;
    Ok(id)
}

/// Has nothing be good by this key any more: its private half goes, and its public half says so. One file of it that can
/// be read is enough; nothing of other keys is looked at. What is worth a word, but holds up nothing, is returned.
pub fn retire(folder: &Path, id: KeyId, now: SystemTime) -> Result<Vec<String>, FolderError> {
    let files = Contents::read(folder).map_err(io_at(folder))?.of(id);
    if files.is_empty() {
        return Err(FolderError::NoSuchKey { id, folder: folder.to_owned() });
    }
    let (mut read, mut unread): (Vec<Key>, _) = (Vec::new(), Vec::new());
    files.into_iter().for_each(|file| match file {
        Ok(key) => read.push(key),
        Err(problem) => unread.push(problem),
    });
    // A key that was retired before keeps its date.
    let Some(key) = read.into_iter().max_by_key(|key| key.retired().is_some()) else {
        return Err(FolderError::Bad(unread));
    };
    let warning = write(&file(folder, id, "pub"), PUBLIC, &key.into_retired(now).public_text())?;
    remove(&file(folder, id, "key"))?;
    remove_leftovers(folder, id)?;
    sync(folder).map_err(io_at(folder))?;
    Ok(unread.into_iter().chain(warning).collect())
}

fn file(folder: &Path, id: KeyId, kind: &str) -> PathBuf {
    folder.join(format!("{id}.{kind}"))
}

fn io_at(path: &Path) -> impl Fn(io::Error) -> FolderError + '_ {
    |source| FolderError::Io { path: path.to_owned(), source }
}

/// Puts a whole file there by a rename, with this mode and with the owner of the file that it replaces. If the owner
/// is another now, that is returned as a warning.
fn write(path: &Path, mode: u32, text: &str) -> Result<Option<String>, FolderError> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let written = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        // The umask has had its say.
        file.set_permissions(Permissions::from_mode(mode))?;
        let warning = keep_owner(path, &file).err();
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync(path.parent().unwrap_or(Path::new(".")))?;
        Ok(warning)
    };
    written().map_err(|source| {
        // It may not be there.
        let _ = fs::remove_file(&new);
        io_at(path)(source)
    })
}

/// Gives a new file the owner and the group of the one that it replaces.
fn keep_owner(replaced: &Path, new: &File) -> Result<(), String> {
    let Ok(before) = fs::metadata(replaced) else { return Ok(()) };
    let now = new.metadata().map_err(|error| error.to_string())?;
    let (owner, group) = (before.uid(), before.gid());
    if (now.uid(), now.gid()) == (owner, group) {
        return Ok(());
    }
    fchown(new, Some(owner), Some(group)).map_err(|error| {
        let path = replaced.display();
        format!("{path} was the user {owner}'s and the group {group}'s, and could not be given back to them: {error}")
    })
}

/// Removes what writers that were killed have left of a key: it may hold its private half.
fn remove_leftovers(folder: &Path, id: KeyId) -> Result<(), FolderError> {
    let beginning = format!("{id}.new-");
    for entry in fs::read_dir(folder).map_err(io_at(folder))? {
        let path = entry.map_err(io_at(folder))?.path();
        let name = path.file_name().and_then(OsStr::to_str);
        if name.is_some_and(|name| name.starts_with(&beginning)) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Removes a file, which may be gone already.
fn remove(path: &Path) -> Result<(), FolderError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_at(path)(error)),
        _ => Ok(()),
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::signing::Signing;

    fn folder() -> (tempfile::TempDir, KeyId) {
        let folder = tempfile::tempdir().unwrap();
        let id = create(folder.path(), SystemTime::now(), Duration::ZERO).unwrap();
        (folder, id)
    }

    fn is_retired(folder: &Path, id: KeyId) -> bool {
        let (signing, problems) = Signing::open(folder.to_owned());
        assert_eq!(problems, Vec::<String>::new());
        signing.keys().get(id).unwrap().retired().is_some()
    }

    #[test]
    fn a_key_is_retired_though_its_private_file_is_bad() {
        let (folder, id) = folder();
        let path = file(folder.path(), id, "key");
        fs::write(&path, "half").unwrap();
        let warnings = retire(folder.path(), id, SystemTime::now()).unwrap();
        assert!(warnings.len() == 1 && warnings[0].contains(".key is no key"), "{warnings:?}");
        assert!(!path.exists() && is_retired(folder.path(), id));
    }

    #[test]
    fn a_key_whose_files_are_all_bad_is_not_said_to_be_retired() {
        let (folder, id) = folder();
        for kind in ["key", "pub"] {
            fs::write(file(folder.path(), id, kind), "half").unwrap();
        }
        let error = retire(folder.path(), id, SystemTime::now()).unwrap_err();
        assert!(matches!(&error, FolderError::Bad(why) if why.len() == 2), "{error}");
    }

    #[test]
    fn what_a_killed_writer_left_of_a_key_goes_with_it() {
        let (folder, id) = folder();
        let other = create(folder.path(), SystemTime::now(), Duration::ZERO).unwrap();
        let left = |id: KeyId| file(folder.path(), id, "new-4711");
        for id in [id, other] {
            fs::write(left(id), "private").unwrap();
        }
        retire(folder.path(), id, SystemTime::now()).unwrap();
        assert!(!left(id).exists() && left(other).exists());
    }

    #[test]
    fn there_is_no_moment_with_a_public_half_alone() {
        let (folder, _) = folder();
        let (path, done) = (folder.path(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..50 {
                    create(path, SystemTime::now(), Duration::ZERO).unwrap();
                }
                done.store(true, Ordering::Relaxed);
            });
            let mut seen = BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                for entry in fs::read_dir(path).unwrap() {
                    let found = entry.unwrap().path();
                    if found.extension() == Some(OsStr::new("pub")) && seen.insert(found.clone()) {
                        assert!(found.with_extension("key").exists(), "{}", found.display());
                    }
                }
            }
        });
    }

    #[test]
    fn a_public_file_keeps_its_owner() {
        let (folder, id) = folder();
        let path = file(folder.path(), id, "pub");
        let mine = fs::metadata(&path).unwrap();
        let other = mine.uid() + 1;
        if std::os::unix::fs::chown(&path, Some(other), None).is_err() {
            // Only root can give files away.
            return;
        }
        assert_eq!(retire(folder.path(), id, SystemTime::now()).unwrap(), Vec::<String>::new());
        let now = fs::metadata(&path).unwrap();
        assert_eq!((now.uid(), now.gid()), (other, mine.gid()));
    }
}
