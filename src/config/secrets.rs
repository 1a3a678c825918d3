//! Secrets that callers show, and what they prove: [`Secret`] of one port, [`Secrets`] of many names.
//!
//! A secret is kept as its SHA-256 digest only, so that nothing that prints or copies a config can give it away, and
//! what is shown is compared digest by digest in constant time. The time that takes tells neither how much of a guess is
//! right nor how long the secret is. Digests need no salt here: secrets are random, and the file beside them has them in
//! plain text.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest::SHA256;
use subtle::ConstantTimeEq;

use super::error::Report;
use super::raw::{RawAuth, RawSecrets, Section};
use super::scope::Scope;
use crate::tls::Identity;

/// Names that the secrets of the ports have already.
const TAKEN: [&str; 2] = [ADMIN, ELECTIONS];
const ADMIN: &str = "admin";
const ELECTIONS: &str = "elections";
/// Read, write or search by others than the owner.
const OTHERS: u32 = 0o077;

/// What the requests to a port have to show. It never prints itself.
#[derive(Clone)]
pub struct Secret {
    digest: Digest,
    identity: Identity,
    file: PathBuf,
}

/// The secrets of `[secrets]`, by the names of who has them. Cheap to clone.
#[derive(Clone, Default, PartialEq)]
pub struct Secrets {
    file: Option<Arc<SecretsFile>>,
}

#[derive(PartialEq)]
struct SecretsFile {
    path: PathBuf,
    /// A name may have two, so that one can take the other's place while both are in use.
    entries: Vec<(Digest, Identity)>,
    /// Others than the owner can read the file.
    exposed: bool,
    fingerprint: Fingerprint,
}

/// What a file of secrets holds, without the secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

#[derive(Clone)]
struct Digest([u8; 32]);

impl Secret {
    /// Where it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Who shows it.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether a presented bearer token is the secret, in a time that does not tell how much of it is right.
    pub fn accepts(&self, presented: &[u8]) -> bool {
        self.digest == Digest::of(presented)
    }
}

impl Secrets {
    /// Who shows this, if anybody. All secrets are looked at, whichever it is.
    pub fn identify(&self, presented: &[u8]) -> Option<&Identity> {
        let file = self.file.as_ref()?;
        let shown = Digest::of(presented);
        file.entries.iter().fold(
            None,
            |found, (digest, identity)| {
                if *digest == shown { Some(identity) } else { found }
            },
        )
    }

    /// Where they were read from.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    /// Whether others than the owner can read the file.
    pub fn are_exposed(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.exposed)
    }

    /// What the file held when it was read.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.file.as_ref().map(|file| file.fingerprint.clone())
    }

    /// Everybody who has one.
    pub fn identities(&self) -> impl Iterator<Item = &Identity> {
        self.file.iter().flat_map(|file| file.entries.iter().map(|(_, identity)| identity))
    }
}

/// The secret of a port, from the file that its `auth` table names.
pub(super) fn auth(
    table: &'static str,
    raw: Option<Section<RawAuth>>,
    report: &mut Report<'_>,
) -> Option<Secret> {
    let raw = raw?;
    let span = raw.span.clone();
    let read = |file: String| read_bearer(Path::new(&file), table);
    Scope::new(report, format!("{table}.auth")).require(
        "bearer_file",
        &span,
        raw.into_table().bearer_file,
        read,
    )
}

fn read_bearer(file: &Path, table: &str) -> Result<Secret, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let bearer = text.strip_suffix('\n').unwrap_or(&text);
    let bearer = bearer.strip_suffix('\r').unwrap_or(bearer);
    if !is_secret(bearer) {
        return Err(format!("{} does not hold a bearer token", file.display()));
    }
    let identity = Identity::bearer(table);
    Ok(Secret { digest: Digest::of(bearer.as_bytes()), identity, file: file.to_owned() })
}

/// The table `[secrets]`; `ports` are the secrets that nobody else may have.
pub(super) fn build(
    raw: Option<Section<RawSecrets>>,
    ports: [Option<&Secret>; 2],
    report: &mut Report<'_>,
) -> Secrets {
    let Some(raw) = raw else { return Secrets::default() };
    let span = raw.span.clone();
    let read = |file: String| read_file(PathBuf::from(file), ports);
    let file = Scope::new(report, "secrets").require("file", &span, raw.into_table().file, read);
    Secrets { file: file.map(Arc::new) }
}

/// Problems name the line, and never what is on it.
fn read_file(path: PathBuf, ports: [Option<&Secret>; 2]) -> Result<SecretsFile, String> {
    let unreadable = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(unreadable)?;
    let fingerprint = Fingerprint::new(text.as_bytes());
    let exposed = std::fs::metadata(&path).map_err(unreadable)?.permissions().mode() & OTHERS != 0;
    let mut entries: Vec<(Digest, Identity)> = Vec::new();
    let mut lines = HashMap::new();
    for (line, entry) in text.lines().enumerate().map(|(at, entry)| (at + 1, entry.trim())) {
        if entry.is_empty() || entry.starts_with('#') {
            continue;
        }
        let at = |what: String| format!("{}:{line}: {what}", path.display());
        let (name, digest) = parse(entry).map_err(at)?;
        if let Some(port) = ports.into_iter().flatten().find(|port| port.digest == digest) {
            return Err(at(format!("it is the secret of {}, which is another identity", port.identity)));
        }
        if let Some(first) = lines.insert(digest.0, line) {
            return Err(at(format!("the secret is that of line {first}: whose is it?")));
        }
        entries.push((digest, Identity::bearer(name)));
    }
    Ok(SecretsFile { path, entries, exposed, fingerprint })
}

fn parse(entry: &str) -> Result<(&str, Digest), String> {
    let (name, secret) = entry
        .split_once(char::is_whitespace)
        .map(|(name, secret)| (name, secret.trim_start()))
        .ok_or_else(|| "a line is a name and a secret with a space between".to_owned())?;
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if !plain {
        return Err("a name is letters, digits, `-`, `_` and `.`".to_owned());
    }
    if TAKEN.contains(&name) {
        return Err(format!("the name {name} is that of the secret in {name}.auth"));
    }
    if !is_secret(secret) {
        return Err(format!("the secret of {name} has characters that are not visible ASCII"));
    }
    Ok((name, Digest::of(secret.as_bytes())))
}

fn is_secret(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Fingerprint {
    /// Of a file that is about to be read; none if it cannot be.
    pub fn of(file: &Path) -> Option<Self> {
        std::fs::read(file).ok().map(|bytes| Self::new(&bytes))
    }

    fn new(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }
}

impl Digest {
    fn of(secret: &[u8]) -> Self {
        Self(sha256(secret))
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&SHA256, bytes).as_ref());
    digest
}

/// In constant time.
impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Two files with one secret are one secret.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

#[cfg(test)]
mod tests;
