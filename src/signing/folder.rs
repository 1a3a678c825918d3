//! A folder of keys as gateways read it.
//!
//! Files that are no keys by their names do not count, so Kubernetes may keep its own beside them. What must stay true: a
//! file that cannot be used keeps the key as it was and nothing else, so that a key that was retired beside it is retired
//! all the same; and no key signs whose private half is in no file any more, whatever is wrong with its public one.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Keys;
use super::key::{BadKey, Key, KeyId};

/// Read, write or search by others than the owner.
const OTHERS: u32 = 0o077;
/// No file of a key is nearly as long.
const LARGEST: u64 = 16 * 1024;

/// Where the keys are when nothing says otherwise, in the data folder.
pub fn default_folder(data: &Path) -> PathBuf {
    data.join("keys")
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

    /// What each of the files of a key says, or what is wrong with it.
    pub(super) fn of(&self, id: KeyId) -> Vec<Result<Key, String>> {
        self.0.get(&id).into_iter().flatten().map(|file| parse(id, file)).collect()
    }

    /// The keys, and what is wrong with files: of those the key stays as it was before, and signs no more if no file that
    /// can be read has its private half.
    pub(super) fn keys(&self, before: &Keys) -> (Keys, Vec<String>) {
        let (mut keys, mut problems) = (Keys::default(), Vec::new());
        for (id, files) in &self.0 {
            match key(*id, files) {
                Ok(key) => drop(keys.by_id.insert(*id, Arc::new(key))),
                Err(problem) => {
                    problems.push(problem);
                    let has_private = self.of(*id).iter().flatten().any(Key::can_sign);
                    let stays =
                        |key: &Arc<Key>| if has_private { Arc::clone(key) } else { key.public_half().into() };
                    keys.by_id.extend(before.by_id.get(id).map(|key| (*id, stays(key))));
                }
            }
        }
        (keys, problems)
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let (file, bad) = (fs::metadata(path)?, |why| Err(io::Error::new(io::ErrorKind::InvalidData, why)));
    if !file.is_file() {
        // A pipe would have nothing to read until somebody writes.
        return bad("it is not a regular file");
    }
    if file.len() > LARGEST {
        return bad("it is too long for a key");
    }
    fs::read(path)
}

/// The id in the name of a key's file.
fn id_of(path: &Path) -> Option<KeyId> {
    let is_key = matches!(path.extension()?.to_str()?, "key" | "pub");
    KeyId::parse(path.file_stem()?.to_str()?).filter(|_| is_key)
}

/// What one file says, or what is wrong with it.
fn parse(id: KeyId, (path, held): &Held) -> Result<Key, String> {
    let bytes = held.as_ref().map_err(|why| format!("{} cannot be read: {why}", path.display()))?;
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    Key::parse(text, id).map_err(|why| no_key(path, why))
}

fn no_key(path: &Path, why: BadKey) -> String {
    format!("{} is no key: {why}", path.display())
}

/// The key of its files, or what is wrong with one of them. One that says that it was retired is believed alone.
fn key(id: KeyId, files: &[Held]) -> Result<Key, String> {
    let mut whole: Option<Key> = None;
    let mut wrong = None;
    for file in files {
        match parse(id, file) {
            Ok(key) => {
                let joined = match whole.take() {
                    None => Ok(key),
                    Some(first) => first.and(key).map_err(|why| no_key(&file.0, why)),
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
