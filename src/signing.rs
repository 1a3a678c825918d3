//! Signed tokens: a number with the signature of who issued it, for networks where a bare number is not enough.
//!
//! `codec` has the bytes, of what is signed and of what a header carries; `key` one key and its files, `folder` what is in
//! a folder of keys, `change` what makes and retires them there, `live` the keys in force, which change with their folder. Elections sign ([`Keys::sign`]), the gate
//! verifies ([`Keys::verify`]): a pure function of header, resource, keys and time. What must stay true: the key signs
//! nothing but tokens; a token has one encoding; and a signature says who issued a number, never that its holder leads
//! now, which is what the mark is for.

mod change;
mod codec;
mod folder;
mod key;
mod live;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use highgate_elector::{Resource, Token, timestamp};

pub use change::{FolderError, create, retire};
pub use codec::{Holder, MAX_HOLDER, MAX_LENGTH, NotSigned, Signed, read};
use codec::{Statement, Tag};
pub use folder::default_folder;
pub use key::{BadKey, Key, KeyId};
pub use live::{News, Signing};

/// The keys of one moment. Cheap to clone.
#[derive(Clone, Default, PartialEq)]
pub struct Keys {
    by_id: BTreeMap<KeyId, Arc<Key>>,
}

/// Why a signed token is not one that was issued for this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    #[error("it was signed with the key {0}, which is not among those of this gateway")]
    UnknownKey(KeyId),
    #[error("it was signed with the key {0}, which was retired")]
    Retired(KeyId),
    #[error("it was issued for another resource")]
    OtherResource,
    #[error("its signature is not over this number, this resource and this holder: something was changed")]
    Signature,
    #[error("it was good until {}; renew the lease for a fresh one", timestamp::format(*.0))]
    Expired(SystemTime),
}

/// What is to be signed.
#[derive(Clone, Copy, Debug)]
pub struct Issue<'i> {
    pub resource: &'i Resource,
    pub token: Token,
    pub holder: &'i Holder,
    /// How long it is good from now on; to the next whole second.
    pub ttl: Duration,
}

impl Keys {
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.by_id.values().map(|key| &**key)
    }

    pub fn get(&self, id: KeyId) -> Option<&Key> {
        self.by_id.get(&id).map(|key| &**key)
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The same keys without their private halves.
    fn public_halves(&self) -> Self {
        Self { by_id: self.iter().map(|key| (key.id, Arc::new(key.public_half()))).collect() }
    }

    /// Whether there is a key by which a token could be good.
    pub fn can_verify(&self) -> bool {
        self.iter().any(|key| key.retired().is_none())
    }

    /// The key that signs: of those whose time has come the newest, or else the one whose time comes first. A new key that
    /// waits gives all gateways the time to learn of it.
    pub fn signer(&self, now: SystemTime) -> Option<&Key> {
        let able = || self.iter().filter(|key| key.can_sign());
        let due = able().filter(|key| key.signs_from <= now).max_by_key(|key| (key.signs_from, key.id));
        due.or_else(|| able().min_by_key(|key| (key.signs_from, key.id)))
    }

    /// The header value of a token; none without a key that signs, or for a holder that is too long.
    pub fn sign(&self, issue: Issue<'_>, now: SystemTime) -> Option<String> {
        let key = self.signer(now)?;
        let not_after =
            seconds(now).checked_add(issue.ttl.as_secs() + u64::from(issue.ttl.subsec_nanos() > 0))?;
        let Issue { resource, token, holder, .. } = issue;
        let statement = Statement { resource, token, holder, not_after, key: key.id };
        let signature = key.sign(&statement.payload()?)?;
        let holder = holder.clone();
        let signed = Signed { key: key.id, not_after, holder, resource: Tag::of(resource), signature };
        Some(signed.encode(token))
    }

    /// Whether this was signed, with a key that is in force, as this number for this resource, and is good now.
    pub fn verify(
        &self,
        signed: &Signed,
        token: Token,
        resource: &Resource,
        now: SystemTime,
    ) -> Result<(), Unverified> {
        let key = self.get(signed.key).ok_or(Unverified::UnknownKey(signed.key))?;
        if key.retired().is_some() {
            return Err(Unverified::Retired(signed.key));
        }
        if signed.resource != Tag::of(resource) {
            return Err(Unverified::OtherResource);
        }
        let (holder, not_after) = (&signed.holder, signed.not_after);
        let statement = Statement { resource, token, holder, not_after, key: key.id };
        let payload = statement.payload().ok_or(Unverified::Signature)?;
        if !key.verifies(&payload, &signed.signature) {
            return Err(Unverified::Signature);
        }
        // Last, so that what is told of its end is what was signed.
        signed.check_end(now)
    }
}

/// Whole seconds since 1970.
fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_id.keys()).finish()
    }
}
