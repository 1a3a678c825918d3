//! A folder of keys: read by gateways, changed by `highgate keys`.
//!
//! Files that are no keys by their names do not count, so Kubernetes may keep its own beside them. What must stay true: a
//! file that cannot be used keeps the key as it was and nothing else, so that a key that was retired beside it is retired
//! all the same; a new file is whole when it is there; and a private file is its owner's alone from its first moment.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Keys;
use super::key::{BadKey, Fresh, Key, KeyId};

/// Read, write or search by others than the owner.
const OTHERS: u32 = 0o077;
/// No file of a key is nearly as long.
const LARGEST: u64 = 16 * 1024;

/// Where the keys are when nothing says otherwise, in the data folder.
pub fn default_folder(data: &Path) -> PathBuf {
    data.join("keys")
}

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

/// What the files of keys held when they were read.
pub(super) struct Contents(BTreeMap<KeyId, Vec<Held>>);

/// A file and what it held, or why it could not be read.
type Held = (PathBuf, Result<Vec<u8>, String>);

impl Contents {
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut files: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if let Some(id) = id_of(&path) {
                let held = read_file(&path).map_err(|error| error.to_string());
                files.entry(id).or_default().push((path, held));
            }
        }
        // Whatever order the folder has them in.
        files.values_mut().for_each(|files| files.sort_by(|one, other| one.0.cmp(&other.0)));
        Ok(Self(files))
    }

    /// Differs, for all that matters, if any of the files does.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    /// The keys, and what is wrong with files: of those the key stays as it was before.
    pub(super) fn keys(&self, before: &Keys) -> (Keys, Vec<String>) {
        let (mut keys, mut problems) = (Keys::default(), Vec::new());
        for (id, files) in &self.0 {
            match key(*id, files) {
                Ok(key) => drop(keys.by_id.insert(*id, Arc::new(key))),
                Err(problem) => {
                    problems.push(problem);
                    keys.by_id.extend(before.by_id.get(id).map(|key| (*id, Arc::clone(key))));
                }
            }
        }
        (keys, problems)
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long for a key"));
    }
    fs::read(path)
}

/// The id in the name of a key's file.
fn id_of(path: &Path) -> Option<KeyId> {
    let is_key = matches!(path.extension()?.to_str()?, "key" | "pub");
    KeyId::parse(path.file_stem()?.to_str()?).filter(|_| is_key)
}

/// The key of its files, or what is wrong with one of them. One that says that it was retired is believed alone.
fn key(id: KeyId, files: &[Held]) -> Result<Key, String> {
    let mut whole: Option<Key> = None;
    let mut wrong = None;
    for (path, held) in files {
        let bad = |why: BadKey| format!("{} is no key: {why}", path.display());
        let text = held.as_ref().map_err(|why| format!("{} cannot be read: {why}", path.display()));
        let text = text.map(|bytes| std::str::from_utf8(bytes).unwrap_or_default());
        match text.and_then(|text| Key::parse(text, id).map_err(bad)) {
            Ok(key) => {
                let joined = match whole.take() {
                    None => Ok(key),
                    Some(first) => first.and(key).map_err(bad),
                };
                whole = Some(joined?);
            }
            Err(problem) => wrong = wrong.or(Some(problem)),
        }
    }
    match (whole, wrong) {
        (Some(key), None) => Ok(key),
        (Some(key), Some(_)) if key.retired().is_some() => Ok(key),
        (_, Some(problem)) => Err(problem),
        (None, None) => Err(format!("the key {id} has no file")),
    }
}

/// Makes a key, which signs after this time; its files are in the folder when this returns.
pub fn create(folder: &Path, now: SystemTime, signs_after: Duration) -> Result<KeyId, FolderError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| FolderError::Io { path: folder.to_owned(), source })?;
    let fresh = Fresh::new(now, now + signs_after).ok_or(FolderError::NoRandom)?;
    let id = fresh.key.id;
    // The public half first: a private one alone would be whole as well, and this way there is never a stray secret.
    write(&file(folder, id, "pub"), 0o644, &fresh.key.public_text())?;
    write(&file(folder, id, "key"), 0o600, &fresh.private_text())?;
    Ok(id)
}

/// Has nothing be good by this key any more: its private half goes, and its public half says so. None of what was told
/// of other keys is looked at.
pub fn retire(folder: &Path, id: KeyId, now: SystemTime) -> Result<(), FolderError> {
    let io = |source| FolderError::Io { path: folder.to_owned(), source };
    let (keys, problems) = Contents::read(folder).map_err(io)?.keys(&Keys::default());
    let no_such_key = || FolderError::NoSuchKey { id, folder: folder.to_owned() };
    let of_this = |problem: &String| problem.contains(&id.to_string());
    if problems.iter().any(of_this) {
        return Err(FolderError::Bad(problems.into_iter().filter(of_this).collect()));
    }
    let key = keys.by_id.into_iter().find(|(known, _)| *known == id).map(|(_, key)| key);
    let key = key.and_then(Arc::into_inner).ok_or_else(no_such_key)?;
    write(&file(folder, id, "pub"), 0o644, &key.into_retired(now).public_text())?;
    let private = file(folder, id, "key");
    match fs::remove_file(&private) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(FolderError::Io { path: private, source })
        }
        _ => Ok(()),
    }
}

fn file(folder: &Path, id: KeyId, kind: &str) -> PathBuf {
    folder.join(format!("{id}.{kind}"))
}

/// Puts a whole file there by a rename.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), FolderError> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let written = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    written().map_err(|source| {
        // It may not be there.
        let _ = fs::remove_file(&new);
        FolderError::Io { path: path.to_owned(), source }
    })
}

/// The private files that others than their owner can read.
pub(super) fn exposed(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| id_of(path).is_some());
    let is_open = |path: &PathBuf| {
        let mode = fs::metadata(path).map_or(0, |file| file.permissions().mode());
        path.extension().is_some_and(|kind| kind == "key") && mode & OTHERS != 0
    };
    let mut exposed: Vec<_> = paths.filter(is_open).collect();
    exposed.sort();
    exposed
}
