//! The bytes of a signed token: what is signed, and what a header carries of it. Pure.
//!
//! ```text
//! header   <number> "." base64url( version 1 | key 8 | not-after 8 | resource tag 8 | kind 1 | length 2 | holder | signature 64 )
//! signed   "highgate signed token v1\0" | key 8 | number 8 | not-after 8 | kind 1 | length 2 | holder | length 2 | resource
//! ```
//!
//! Numbers are big-endian, times whole seconds since 1970. What is signed begins with words of its own, and every part of
//! it has a fixed length or its length before it: no two statements have the same bytes, and nothing that is signed for
//! another purpose, or in another version, reads as a token. The header leaves out what the verifier knows, which is the
//! resource; a tag of it is there to say in the answer what is wrong. What must stay true: one token has one encoding.
//! The base64 is unpadded and decoded strictly, bits behind its end included, the body has one length, and the number has
//! one spelling.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use highgate_elector::{Resource, Token, TokenError};
use ring::digest::{SHA256, digest};

use super::key::{KeyId, SIGNATURE};
use super::{Unverified, seconds};

const DOMAIN: &[u8] = b"highgate signed token v1\0";
const VERSION: u8 = 1;
/// The longest name of a holder, in bytes: that of a SPIFFE ID.
pub const MAX_HOLDER: usize = 2048;
/// What a body has beside its holder.
const FIXED: usize = 1 + 8 + 8 + 8 + 1 + 2 + SIGNATURE;
/// The longest header value: a number, a dot, and the base64 of the longest body.
pub const MAX_LENGTH: usize = 19 + 1 + ((FIXED + MAX_HOLDER) * 4).div_ceil(3);

/// What a header carries beside the number. Nothing of it counts before it was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    pub(super) key: KeyId,
    /// The last second in which it is good.
    pub(super) not_after: u64,
    pub(super) holder: Holder,
    pub(super) resource: Tag,
    pub(super) signature: [u8; SIGNATURE],
}

/// Whom a token was issued to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// By the name that the candidate gave itself: anybody can have that.
    Named(Box<str>),
    /// By the identity that it proved.
    Identity(Box<str>),
}

/// The beginning of a digest of a resource's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag([u8; 8]);

/// Why a value with a number carries no signature that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSigned {
    #[error(
        "this route wants a signed token, and this is a number alone: send the whole `signed_token` that the election \
         answered"
    )]
    Bare,
    #[error("this is longer than a signed token can be, {MAX_LENGTH} characters")]
    TooLong,
    #[error("what follows the number is not base64url without padding, so it is no signed token")]
    NotBase64,
    #[error("what follows the number does not have the form of a signed token")]
    BadForm,
}

/// What a key signs.
pub(super) struct Statement<'s> {
    pub(super) resource: &'s Resource,
    pub(super) token: Token,
    pub(super) holder: &'s Holder,
    pub(super) not_after: u64,
    pub(super) key: KeyId,
}

/// Reads a header value: its number, which counts for the mark whatever follows, and the signature.
pub fn read(value: &[u8]) -> Result<(Token, Result<Box<Signed>, NotSigned>), TokenError> {
    let dot = value.iter().position(|byte| *byte == b'.');
    let (number, signature) = value.split_at(dot.unwrap_or(value.len()));
    let token = Token::parse(number)?;
    let signed = match signature {
        [] => Err(NotSigned::Bare),
        _ if value.len() > MAX_LENGTH => Err(NotSigned::TooLong),
        [_dot, text @ ..] => decode(text).map(Box::new),
    };
    Ok((token, signed))
}

fn decode(text: &[u8]) -> Result<Signed, NotSigned> {
    let body = URL_SAFE_NO_PAD.decode(text).map_err(|_| NotSigned::NotBase64)?;
    Signed::parse(&body).ok_or(NotSigned::BadForm)
}

impl Signed {
    /// The header value of a token.
    pub fn encode(&self, token: Token) -> String {
        let mut body = vec![VERSION];
        body.extend_from_slice(self.key.bytes());
        body.extend_from_slice(&self.not_after.to_be_bytes());
        body.extend_from_slice(&self.resource.0);
        body.push(self.holder.kind());
        // A holder that is too long was not signed.
        body.extend_from_slice(&length(self.holder.name()).unwrap_or_default());
        body.extend_from_slice(self.holder.name().as_bytes());
        body.extend_from_slice(&self.signature);
        format!("{token}.{}", URL_SAFE_NO_PAD.encode(body))
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let (&[VERSION], rest) = body.split_first_chunk::<1>()? else { return None };
        let (key, rest) = rest.split_first_chunk::<8>()?;
        let (not_after, rest) = rest.split_first_chunk::<8>()?;
        let (tag, rest) = rest.split_first_chunk::<8>()?;
        let (&[kind], rest) = rest.split_first_chunk::<1>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (name, signature) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        Some(Self {
            key: KeyId::new(*key),
            not_after: u64::from_be_bytes(*not_after),
            holder: Holder::of(kind, name)?,
            resource: Tag(*tag),
            signature: signature.try_into().ok()?,
        })
    }

    /// Whom it says that it was issued to.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Whether its time is over.
    pub fn check_end(&self, now: SystemTime) -> Result<(), Unverified> {
        if seconds(now) <= self.not_after { Ok(()) } else { Err(Unverified::Expired(self.not_after())) }
    }

    /// The last second in which it says that it is good.
    pub fn not_after(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.not_after)).unwrap_or(UNIX_EPOCH)
    }
}

impl Statement<'_> {
    /// The bytes that are signed; none if one of the names is too long.
    pub(super) fn payload(&self) -> Option<Vec<u8>> {
        let (holder, resource) = (self.holder.name(), self.resource.as_str());
        let mut payload = DOMAIN.to_vec();
        payload.extend_from_slice(self.key.bytes());
        payload.extend_from_slice(&self.token.get().to_be_bytes());
        payload.extend_from_slice(&self.not_after.to_be_bytes());
        payload.push(self.holder.kind());
        payload.extend_from_slice(&length(holder)?);
        payload.extend_from_slice(holder.as_bytes());
        payload.extend_from_slice(&length(resource)?);
        payload.extend_from_slice(resource.as_bytes());
        Some(payload)
    }
}

/// The length of a name as two bytes; none if it is too long to be signed.
fn length(name: &str) -> Option<[u8; 2]> {
    let length = u16::try_from(name.len()).ok().filter(|length| usize::from(*length) <= MAX_HOLDER);
    length.map(u16::to_be_bytes)
}

impl Holder {
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) | Self::Identity(name) => name,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Named(_) => 0,
            Self::Identity(_) => 1,
        }
    }

    fn of(kind: u8, name: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= MAX_HOLDER)?;
        match kind {
            0 => Some(Self::Named(name.into())),
            1 => Some(Self::Identity(name.into())),
            _ => None,
        }
    }
}

impl Tag {
    pub(super) fn of(resource: &Resource) -> Self {
        let digest = digest(&SHA256, resource.as_str().as_bytes());
        Self(digest.as_ref().first_chunk().copied().unwrap_or_default())
    }
}
