//! One key: its id, what it signs and verifies, and the two files that it lives in.
//!
//! `<id>.key` has the private half and is its owner's alone; `<id>.pub` has the public half and is all that a gateway
//! needs to verify. Both are lines of `name = "value"`. What must stay true: the id is made of the public half, so a file
//! cannot give a key another's name; and nothing here prints what a private half is made of, errors included, which
//! therefore quote nothing of a file.

use std::fmt;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use highgate_elector::timestamp;
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

/// Bytes of an Ed25519 signature.
pub(super) const SIGNATURE: usize = 64;
const HALF: usize = 32;
const DOMAIN: &[u8] = b"highgate signing key v1\0";

/// The beginning of a digest of the public half, in hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 8]);

/// A key. It never prints itself.
pub struct Key {
    pub(super) id: KeyId,
    pub(super) created: SystemTime,
    /// Before, it signs only if there is no other.
    pub(super) signs_from: SystemTime,
    public: [u8; HALF],
    retired: Option<SystemTime>,
    pair: Option<Ed25519KeyPair>,
}

/// A key as it is made, with its private half still in hand.
pub(super) struct Fresh {
    pub(super) key: Key,
    seed: [u8; HALF],
}

/// Why a file is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("a line of it is not like `name = \"value\"`, or is there twice")]
    Line,
    #[error("it has no usable `{0}`")]
    Missing(&'static str),
    #[error("its `id` is not that of its public half, or not its file's name")]
    OtherId,
    #[error("its private half is not the one of its public half")]
    OtherHalf,
}

impl Key {
    pub fn id(&self) -> KeyId {
        self.id
    }

    pub fn created(&self) -> SystemTime {
        self.created
    }

    pub fn signs_from(&self) -> SystemTime {
        self.signs_from
    }

    /// When it was retired: from then on nothing is good by it.
    pub fn retired(&self) -> Option<SystemTime> {
        self.retired
    }

    pub fn can_sign(&self) -> bool {
        self.pair.is_some() && self.retired.is_none()
    }

    pub(super) fn sign(&self, payload: &[u8]) -> Option<[u8; SIGNATURE]> {
        self.pair.as_ref()?.sign(payload).as_ref().try_into().ok()
    }

    pub(super) fn verifies(&self, payload: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.public).verify(payload, signature).is_ok()
    }

    /// The same key without its private half: it verifies and does not sign.
    pub(super) fn public_half(&self) -> Self {
        let Self { id, created, signs_from, public, retired, .. } = *self;
        Self { id, created, signs_from, public, retired, pair: None }
    }

    /// The same key without its private half, which nothing is good by any more.
    pub(super) fn into_retired(self, at: SystemTime) -> Self {
        Self { pair: None, retired: Some(self.retired.unwrap_or(at)), ..self }
    }

    /// What both of its files say, of which either may be missing its private half or its end.
    pub(super) fn and(self, other: Self) -> Result<Self, BadKey> {
        if self.id != other.id || self.public != other.public {
            return Err(BadKey::OtherId);
        }
        let (pair, retired) = (self.pair.or(other.pair), self.retired.or(other.retired));
        Ok(Self { pair, retired, ..other })
    }

    /// Reads a file of either kind.
    pub fn parse(text: &str, id: KeyId) -> Result<Self, BadKey> {
        let fields = Fields::read(text)?;
        let public = fields.bytes("public").ok_or(BadKey::Missing("public"))?;
        let named = fields.get("id").and_then(KeyId::parse).ok_or(BadKey::Missing("id"))?;
        if named != KeyId::of(&public) || named != id {
            return Err(BadKey::OtherId);
        }
        let pair = match fields.get("private") {
            None => None,
            Some(_) => {
                let seed = fields.bytes("private").ok_or(BadKey::Missing("private"))?;
                let pair = Ed25519KeyPair::from_seed_and_public_key(&seed, &public);
                Some(pair.map_err(|_| BadKey::OtherHalf)?)
            }
        };
        let retired = match fields.get("retired") {
            None => None,
            Some(at) => Some(timestamp::parse(at).ok_or(BadKey::Missing("retired"))?),
        };
        let (created, signs_from) = (fields.time("created")?, fields.time("signs_from")?);
        Ok(Self { id, created, signs_from, public, retired, pair })
    }

    /// The text of its public file.
    pub(super) fn public_text(&self) -> String {
        let retired = self.retired.map(|at| format!("retired = \"{}\"\n", timestamp::format(at)));
        format!(
            "id = \"{}\"\ncreated = \"{}\"\nsigns_from = \"{}\"\npublic = \"{}\"\n{}",
            self.id,
            timestamp::format(self.created),
            timestamp::format(self.signs_from),
            URL_SAFE_NO_PAD.encode(self.public),
            retired.unwrap_or_default()
        )
    }
}

impl Fresh {
    /// None if the system has no random numbers.
    pub(super) fn new(created: SystemTime, signs_from: SystemTime) -> Option<Self> {
        let mut seed = [0; HALF];
        SystemRandom::new().fill(&mut seed).ok()?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
        let public = pair.public_key().as_ref().try_into().ok()?;
        let id = KeyId::of(&public);
        let key = Key { id, created, signs_from, public, retired: None, pair: Some(pair) };
        Some(Self { key, seed })
    }

    /// The text of its private file.
    pub(super) fn private_text(&self) -> String {
        let private = URL_SAFE_NO_PAD.encode(self.seed);
        format!(
            "# Whoever can read this file can issue tokens.\n{}private = \"{private}\"\n",
            self.key.public_text()
        )
    }
}

/// The lines of a file.
struct Fields<'t>(Vec<(&'t str, &'t str)>);

impl<'t> Fields<'t> {
    fn read(text: &'t str) -> Result<Self, BadKey> {
        let mut fields = Self(Vec::new());
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) = line.split_once('=').ok_or(BadKey::Line)?;
            let (name, value) = (name.trim_end(), value.trim_start());
            let value =
                value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).ok_or(BadKey::Line)?;
            if fields.get(name).is_some() {
                return Err(BadKey::Line);
            }
            fields.0.push((name, value));
        }
        Ok(fields)
    }

    fn get(&self, name: &str) -> Option<&'t str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn time(&self, name: &'static str) -> Result<SystemTime, BadKey> {
        self.get(name).and_then(timestamp::parse).ok_or(BadKey::Missing(name))
    }

    fn bytes(&self, name: &str) -> Option<[u8; HALF]> {
        URL_SAFE_NO_PAD.decode(self.get(name)?).ok()?.try_into().ok()
    }
}

impl KeyId {
    pub(super) fn new(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    fn of(public: &[u8; HALF]) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(DOMAIN);
        context.update(public);
        Self(context.finish().as_ref().first_chunk().copied().unwrap_or_default())
    }

    pub(super) fn bytes(&self) -> &[u8; 8] {
        &self.0
    }

    /// Reads 16 digits of lower-case hex.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let number = u64::from_str_radix(text, 16).ok();
        number.filter(|_| is_plain && text.len() == 16).map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

impl std::str::FromStr for KeyId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| "the id of a key is 16 digits of lower-case hex".to_owned())
    }
}

/// Two keys with one public half are one key.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let rest = |key: &Self| (key.public, key.created, key.signs_from, key.retired, key.pair.is_some());
        rest(self) == rest(other)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}
