//! Whether the signature of a token is good, on routes that want signed tokens.
//!
//! `fence` asks by way of `claimant`, after it has looked for a stale number and before it asks anything of a store: a number above the mark
//! raises it only if it was signed. Nothing here asks anybody else. What must stay true: a signature is judged anew after
//! every wait, so that nothing passes by a key that was retired, or after a token's end, because it has waited.

use std::sync::Arc;
use std::time::SystemTime;

use highgate_elector::{Resource, Token};
use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::claim::{ClaimError, Malformed, Signature};
use super::respond::Refusal;
use crate::signing::{Holder, Keys, Signed, Signing, Unverified};

/// A signature that was good when it was last looked at; none where the route wants none.
#[derive(Default)]
pub(super) struct Proof(Option<Checked>);

struct Checked {
    signed: Box<Signed>,
    /// By which it was found good.
    keys: Arc<Keys>,
    /// For which it was found good.
    name: Resource,
}

impl Proof {
    /// Judges what a request shows; `names` are those of its resource, of which one has had the election.
    pub(super) fn check<'n>(
        signature: Signature,
        signing: &Signing,
        token: Token,
        names: impl IntoIterator<Item = &'n Resource>,
    ) -> Result<Self, Refusal> {
        let signed = signature.map_err(|why| Refusal::Unclaimed(ClaimError::from(Malformed::from(why))))?;
        let keys = signing.keys();
        let name = verify(&keys, &signed, token, names, SystemTime::now())?;
        Ok(Self(Some(Checked { signed, keys: Arc::clone(&keys), name })))
    }

    /// The same request after a wait.
    pub(super) fn still<'n>(
        &mut self,
        signing: &Signing,
        token: Token,
        names: impl IntoIterator<Item = &'n Resource> + Clone,
    ) -> Result<(), Refusal> {
        let Some(Checked { signed, keys, name }) = &mut self.0 else { return Ok(()) };
        let (current, now) = (signing.keys(), SystemTime::now());
        let is_named_so = names.clone().into_iter().any(|of_now| of_now == name);
        if Arc::ptr_eq(keys, &current) && is_named_so {
            return Ok(signed.check_end(now)?);
        }
        *name = verify(&current, signed, token, names, now)?;
        *keys = Arc::clone(&current);
        Ok(())
    }

    /// Whom the token was issued to, by the word of who signed it.
    pub(super) fn holder(&self) -> Option<&Holder> {
        self.0.as_ref().map(|checked| checked.signed.holder())
    }
}

/// Leaves the number of a token. Who has the rest can use it until its end, so it is nobody's but the gateway's; and an
/// upstream that checks tokens itself compares numbers.
pub(super) fn drop_signature(headers: &mut HeaderMap, token_header: &HeaderName) {
    let Entry::Occupied(mut tokens) = headers.entry(token_header) else { return };
    for value in tokens.iter_mut() {
        let number = value.as_bytes().split(|byte| *byte == b'.').next().unwrap_or_default();
        if number.len() < value.len() {
            *value = HeaderValue::from_bytes(number).expect("a part of a header's value is one");
        }
    }
}

/// Good under one of the names is good: while a change of names is under way, an election was held under either.
fn verify<'n>(
    keys: &Keys,
    signed: &Signed,
    token: Token,
    names: impl IntoIterator<Item = &'n Resource>,
    now: SystemTime,
) -> Result<Resource, Unverified> {
    for name in names {
        match keys.verify(signed, token, name, now) {
            Ok(()) => return Ok(name.clone()),
            Err(Unverified::OtherResource) => {}
            Err(why) => return Err(why),
        }
    }
    Err(Unverified::OtherResource)
}
