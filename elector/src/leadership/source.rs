//! The token of a leadership for those who send it, and what they hear of it in answers.
//!
//! Clients get one from [`Leadership::source`](crate::Leadership::source). What must stay true: it never gives the token
//! of a leadership that is over, and it ends one only for an answer that says that its own token is stale.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;

use super::Lost;
use super::term::Term;
use crate::backend::SignedToken;
use crate::token::headers;
use crate::{Resource, Token};

/// How a gateway calls a refusal because of a later leader.
const STALE: &str = "stale";

/// The token of one leadership, for as long as it is valid. Cheap to clone, and it keeps nobody leading.
#[derive(Clone)]
pub struct TokenSource(pub(super) Arc<Term>);

impl TokenSource {
    /// The token, if the leadership is valid now.
    pub fn token(&self) -> Result<Token, Lost> {
        self.0.check()
    }

    /// The token with the signature of who issued it, where the gateway's elections sign. Every renewal brings another, so it
    /// is to be asked for before each request. None: they do not sign.
    pub fn signed_token(&self) -> Result<Option<SignedToken>, Lost> {
        self.0.signed_token()
    }

    /// What to send as the token: signed where the gateway's elections sign, else the number.
    pub fn shown(&self) -> Result<String, Lost> {
        let token = self.token()?;
        Ok(self.signed_token()?.map_or_else(|| token.to_string(), |signed| signed.as_str().to_owned()))
    }

    /// The headers to send with a request, for clients that have no tower layers: `.header(name, value)` for each. A
    /// route that knows its resource by itself ignores the second; any other has to be told.
    pub fn headers(&self) -> Result<[(&'static str, String); 2], Lost> {
        Ok([(headers::TOKEN, self.shown()?), (headers::RESOURCE, self.resource().to_string())])
    }

    /// Reads the headers of an answer, for clients that have no tower layers. An answer that refused the token as stale
    /// ends the leadership, whatever the backend says: a later leader writes already, so there is nothing left to do.
    /// An answer about another resource is somebody else's, and one without a reason is not a gateway's refusal.
    pub fn heed(&self, answer: &HeaderMap) -> Result<(), Lost> {
        let says = |name: &str| answer.get(name).and_then(|value| value.to_str().ok());
        let is_own = says(headers::RESOURCE).is_none_or(|name| name == self.resource().as_str());
        if says(headers::REASON) == Some(STALE) && is_own {
            self.0.end(Lost::Stale);
            return Err(Lost::Stale);
        }
        Ok(())
    }

    pub fn resource(&self) -> &Resource {
        &self.0.grant.resource
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenSource").field(&self.token()).finish()
    }
}
