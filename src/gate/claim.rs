//! What a request claims: its route, the resource it writes to and the token it shows.
//!
//! The first room of the gate after `accept`: pure, a function of the request's head and the routes. `fence`
//! judges what comes out. What must stay true: a request has one reading here, or is refused. Headers that
//! could be read as ours by another name, and paths and hosts with a second spelling, are refused on every
//! request, fenced or not, because the unfenced spelling of a fenced request would be a way around the fence.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use highgate_elector::{Resource, ResourceError, Token, TokenError, headers};
use http::header::{CONNECTION, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Version};

use crate::config::{
    CanonicalPath, Captures, HostError, MissingToken, PathError, ResourceRule, Route, Routes, canonical_host,
};

/// Headers by which frameworks let a request stand for another method or path than its first line says.
const OVERRIDES: [&str; 5] =
    ["x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url"];

/// A request that may go on to the fence.
#[derive(Debug, Clone)]
pub struct Claim {
    pub route: Arc<Route>,
    pub stand: Stand,
}

/// How a request stands to the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stand {
    /// Its method needs no token on this route.
    Unfenced,
    /// It should have a token and has none, and the route lets it pass.
    Unchecked {
        resource: Resource,
        waiver: Waiver,
    },
    Fenced {
        resource: Resource,
        token: Token,
    },
}

/// Why a request without a token passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiver {
    /// `missing_token = "allow"`
    Allowed,
    /// `missing_token = "audit"`: it is to be logged and counted.
    Audited,
}

/// A request that is refused before the fence, with what was known of it by then.
#[derive(Debug, Clone)]
pub struct Unclaimed {
    pub route: Option<Arc<Route>>,
    pub resource: Option<Resource>,
    pub why: ClaimError,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("no route matches this request")]
    NoRoute,
    #[error("this request needs a fencing token")]
    Missing,
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// What about a request has no reading, or more than one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("there is more than one token header")]
    DuplicateToken,
    #[error("the header `{0}` is an alias of a fencing header")]
    Alias(HeaderName),
    #[error("the header `{0}` would make another request of this one behind the fence")]
    Override(HeaderName),
    #[error("the Connection header names a fencing header")]
    HopByHop,
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Resource(#[from] ResourceError),
    #[error("there is more than one resource header")]
    DuplicateResource,
    #[error("this request has to name its resource in `{}`", headers::RESOURCE)]
    MissingResource,
}

/// Reads a request's head.
pub fn claim(head: &Parts, routes: &Routes, token_header: &HeaderName) -> Result<Claim, Unclaimed> {
    check_fencing_headers(&head.headers, token_header)?;
    let host = host(head)?;
    if head.method == Method::CONNECT || head.uri.path() == "*" {
        return Err(ClaimError::NoRoute.into());
    }
    let path = CanonicalPath::parse(head.uri.path()).map_err(Malformed::from)?;
    let (route, captures) = routes.find(&head.method, &host, &path).ok_or(ClaimError::NoRoute)?;
    if !route.fenced.contains(&head.method) {
        return Ok(Claim { route: Arc::clone(route), stand: Stand::Unfenced });
    }
    let unclaimed = |resource, why| Unclaimed { route: Some(Arc::clone(route)), resource, why };
    let resource = resource(&route.resource, &captures, &host, &head.headers)
        .map_err(|why| unclaimed(None, why.into()))?;
    match stand(&resource, route.missing_token, &head.headers, token_header) {
        Ok(stand) => Ok(Claim { route: Arc::clone(route), stand }),
        Err(why) => Err(unclaimed(Some(resource), why)),
    }
}

/// Refuses what other software might take for a fencing header, or take one away for; and what would make
/// another request of this one behind the fence's back.
fn check_fencing_headers(headers: &HeaderMap, token_header: &HeaderName) -> Result<(), Malformed> {
    let ours = [token_header.as_str(), headers::RESOURCE];
    for name in headers.keys() {
        let bytes = name.as_str().as_bytes();
        if ours.iter().any(|our| name.as_str() != *our && reads_as(bytes, our)) {
            return Err(Malformed::Alias(name.clone()));
        }
        if bytes[0] == b'x' && OVERRIDES.iter().any(|other| reads_as(bytes, other)) {
            return Err(Malformed::Override(name.clone()));
        }
    }
    let names_ours = |option: &[u8]| ours.iter().any(|our| reads_as(option.trim_ascii(), our));
    let mut options =
        headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    if options.any(names_ours) { Err(Malformed::HopByHop) } else { Ok(()) }
}

/// Whether `name` is `our` header to software that knows neither case nor the difference of `_` and `-`.
fn reads_as(name: &[u8], our: &str) -> bool {
    let fold = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == our.len() && name.iter().zip(our.bytes()).all(|(own, our)| fold(*own) == fold(our))
}

/// The request's host in canonical form. Empty only for HTTP/1.0, which need not have one.
fn host(head: &Parts) -> Result<Cow<'_, str>, HostError> {
    let mut values = head.headers.get_all(HOST).iter();
    let declared = values.next();
    if values.next().is_some() {
        return Err(HostError::Duplicate);
    }
    let declared = declared
        .map(|value| value.to_str().map_err(|_| HostError::Invalid).and_then(canonical_host))
        .transpose()?;
    match (head.uri.authority(), declared) {
        (Some(authority), _) => canonical_host(authority.as_str()),
        (None, Some(host)) => Ok(host),
        (None, None) if head.version < Version::HTTP_11 => Ok(Cow::Borrowed("")),
        (None, None) => Err(HostError::Missing),
    }
}

fn resource(
    rule: &ResourceRule,
    captures: &Captures<'_>,
    host: &str,
    headers: &HeaderMap,
) -> Result<Resource, Malformed> {
    match rule {
        ResourceRule::Fixed(resource) => Ok(resource.clone()),
        ResourceRule::Template(template) if template.uses_host() && host.is_empty() => {
            Err(HostError::Missing.into())
        }
        ResourceRule::Template(template) => Ok(template.fill(captures, host)?),
        ResourceRule::Client { default } => {
            let mut values = headers.get_all(headers::RESOURCE).iter();
            match (values.next(), values.next()) {
                (None, _) => default.clone().ok_or(Malformed::MissingResource),
                (Some(_), Some(_)) => Err(Malformed::DuplicateResource),
                (Some(value), None) => {
                    let name =
                        std::str::from_utf8(value.as_bytes()).map_err(|_| ResourceError::BadCharacter)?;
                    Ok(Resource::parse(name)?)
                }
            }
        }
    }
}

fn stand(
    resource: &Resource,
    missing_token: MissingToken,
    headers: &HeaderMap,
    token_header: &HeaderName,
) -> Result<Stand, ClaimError> {
    let resource = resource.clone();
    let mut values = headers.get_all(token_header).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => {
            let token = Token::parse(value.as_bytes()).map_err(Malformed::from)?;
            Ok(Stand::Fenced { resource, token })
        }
        (Some(_), Some(_)) => Err(Malformed::DuplicateToken.into()),
        (None, _) => match missing_token {
            MissingToken::Refuse => Err(ClaimError::Missing),
            MissingToken::Allow => Ok(Stand::Unchecked { resource, waiver: Waiver::Allowed }),
            MissingToken::Audit => Ok(Stand::Unchecked { resource, waiver: Waiver::Audited }),
        },
    }
}

impl ClaimError {
    /// Whether the connection cannot be trusted with another request.
    pub fn closes_connection(&self) -> bool {
        matches!(self, Self::Malformed(Malformed::HopByHop))
    }
}

impl From<ClaimError> for Unclaimed {
    fn from(why: ClaimError) -> Self {
        Self { route: None, resource: None, why }
    }
}

impl From<Malformed> for Unclaimed {
    fn from(why: Malformed) -> Self {
        ClaimError::Malformed(why).into()
    }
}

impl From<HostError> for Unclaimed {
    fn from(why: HostError) -> Self {
        Malformed::Host(why).into()
    }
}
