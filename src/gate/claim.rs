//! What a request claims: its route, the resource it writes to and the token it shows.
//!
//! The first room of the gate after `accept`: pure, a function of the request's head and the routes. `fence`
//! judges what comes out. What must stay true: a request has one reading here, or is refused. Headers that
//! could be read as ours by another name, and methods, paths and hosts with a second spelling, are refused on every
//! request, fenced or not, because the unfenced spelling of a fenced request would be a way around the fence.

mod grammar;
#[cfg(test)]
mod tests;
mod upgrade;

use std::sync::Arc;

use highgate_elector::{Resource, ResourceError, Token, TokenError, headers};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};
pub(in crate::gate) use upgrade::is_for_this_connection;

use crate::config::{
    CanonicalPath, Captures, HostError, MissingToken, Naming, PathError, Protocol, ResourceRule, Route,
    Tokens,
};
use crate::gate::table::RouteTable;
use crate::signing::{self, NotSigned, Signed};

/// A request that may go on to the fence.
#[derive(Debug, Clone)]
pub struct Claim {
    pub route: Arc<Route>,
    pub stand: Stand,
    /// What it asks to go on with in HTTP's place.
    pub upgrade: Option<Protocol>,
    /// Other names of the resource under which the request is fenced as well, while a change of names is under way.
    pub aliases: Vec<Resource>,
    /// What follows the number of the token, on a route that wants signed ones.
    pub signature: Option<Signature>,
    /// The lowest token that may pass, because the resource had another name before; 0: any.
    pub floor: u64,
}

/// A signature that nobody has verified yet, or why what follows the number is none. It counts only if the token is not
/// stale: whoever was deposed is to hear of that first.
pub type Signature = Result<Box<Signed>, NotSigned>;

/// How a request stands to the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stand {
    /// It needs no token on this route: its method needs none, and it asks for no other protocol.
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
    #[error("the request body is larger than `max_body` of the route, {0} bytes; nothing was forwarded")]
    TooLarge(u64),
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
    #[error(transparent)]
    Signature(#[from] NotSigned),
    #[error("the header `{0}` is an alias of a fencing header")]
    Alias(HeaderName),
    #[error(
        "the method `{0}` has lower-case letters: to some upstreams it is another one, with another fence"
    )]
    LowerCase(Method),
    #[error("the header `{0}` would make another request of this one behind the fence")]
    Override(HeaderName),
    #[error("the Connection header names a fencing header")]
    HopByHop,
    #[error("the scheme of the target is not http or https")]
    Scheme,
    #[error("the target has characters outside ASCII; percent-encode them")]
    NotAscii,
    #[error("the header `{0}` has a name that servers read in different ways")]
    Name(HeaderName),
    #[error("the header `{0}` is an alias of one that says where the request ends")]
    FramingAlias(HeaderName),
    #[error("there is more than one Content-Length, or it is not a number below 2^63")]
    Length,
    #[error(
        "a {0} has no body here: an upstream that does not read it would take it for the next request; `read_bodies = true` \
         of the route lets it pass"
    )]
    Content(Method),
    #[error("the request offers more than one protocol in `Upgrade`")]
    Upgrades,
    #[error("there is more than one Sec-WebSocket-Key")]
    WebSocketKeys,
    #[error("a request that asks for another protocol has neither a body nor a length")]
    UpgradeWithBody,
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(
        "the path is `{0}` but for upper and lower case, and another route would take it; spell it like that"
    )]
    OtherCase(String),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Resource(#[from] ResourceError),
    #[error("there is more than one credential header")]
    DuplicateCredential,
    #[error("there is more than one resource header")]
    DuplicateResource,
    #[error("this request has to name its resource in `{}`", headers::RESOURCE)]
    MissingResource,
}

/// Reads a request's head.
pub fn claim(head: &Parts, table: &RouteTable, token_header: &HeaderName) -> Result<Claim, Unclaimed> {
    let routes = &table.routes;
    grammar::check(head, token_header)?;
    let content = grammar::content(head)?;
    let host = grammar::host(head, routes)?;
    if head.method == Method::CONNECT || head.uri.path() == "*" {
        return Err(ClaimError::NoRoute.into());
    }
    let path = CanonicalPath::parse(head.uri.path()).map_err(Malformed::from)?;
    let (route, captures) = routes.find(&head.method, &host, &path).ok_or(ClaimError::NoRoute)?;
    if let Some(other) = routes.in_another_case(route, &head.method, &host, &path) {
        return Err(Malformed::OtherCase(other.matcher.path.to_string()).into());
    }
    let unclaimed = |resource, why| Unclaimed { route: Some(Arc::clone(route)), resource, why };
    if content.is_announced() && !route.bodies.allow(&head.method) {
        return Err(unclaimed(None, Malformed::Content(head.method.clone()).into()));
    }
    if let Some(limit) = route.bodies.max.filter(|limit| content.is_larger_than(*limit)) {
        return Err(unclaimed(None, ClaimError::TooLarge(limit)));
    }
    let upgrade = upgrade::asked(head, &route.upgrades).map_err(|why| unclaimed(None, why.into()))?;
    // Whatever the method: what is sent on such a connection later may write.
    if !route.fenced.contains(&head.method) && upgrade.is_none() {
        let (route, stand) = (Arc::clone(route), Stand::Unfenced);
        return Ok(Claim { route, stand, upgrade, aliases: Vec::new(), signature: None, floor: 0 });
    }
    let resource = resource(&route.resource, &captures, &host, &head.headers)
        .map_err(|why| unclaimed(None, why.into()))?;
    let aliases = aliases(&table.aliases, &resource, (head, upgrade.is_some()), &host, &path);
    let floor = floor(table, &resource, &aliases);
    match stand(&resource, route, &head.headers, token_header) {
        Ok((stand, signature)) => {
            Ok(Claim { route: Arc::clone(route), stand, upgrade, aliases, signature, floor })
        }
        Err(why) => Err(unclaimed(Some(resource), why)),
    }
}

/// What a request that was claimed by an earlier table has to pass by this one: its other names, and the lowest token.
/// `upgrades`: it asks for another protocol.
pub fn claim_again(
    (head, upgrades): (&Parts, bool),
    table: &RouteTable,
    resource: &Resource,
) -> Result<(Vec<Resource>, u64), Malformed> {
    let host = grammar::host(head, &table.routes)?;
    let path = CanonicalPath::parse(head.uri.path())?;
    let namings = std::iter::once(&table.naming).chain(&table.aliases);
    let aliases = aliases(namings, resource, (head, upgrades), &host, &path);
    let floor = floor(table, resource, &aliases);
    Ok((aliases, floor))
}

/// The names that the request has by other namings. One that could not be named before could not pass, either.
fn aliases<'n>(
    namings: impl IntoIterator<Item = &'n Naming>,
    own: &Resource,
    (head, upgrades): (&Parts, bool),
    host: &str,
    path: &CanonicalPath<'_>,
) -> Vec<Resource> {
    let mut names = Vec::new();
    for naming in namings {
        let Some((rule, captures)) = naming.find((&head.method, upgrades), host, path) else { continue };
        if let Ok(name) = resource(rule, &captures, host, &head.headers)
            && name != *own
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

/// The lowest token that may pass. A name that starts from the mark of another may not have been used since, so this is
/// asked of every name that the request has.
fn floor(table: &RouteTable, resource: &Resource, aliases: &[Resource]) -> u64 {
    std::iter::once(resource).chain(aliases).map(|name| table.floors.of(name.as_str())).max().unwrap_or(0)
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

/// Whether a request says itself which resource it means, if its route lets it.
pub fn names_resource(headers: &HeaderMap) -> bool {
    headers.contains_key(headers::RESOURCE)
}

fn stand(
    resource: &Resource,
    route: &Route,
    headers: &HeaderMap,
    token_header: &HeaderName,
) -> Result<(Stand, Option<Signature>), ClaimError> {
    let resource = resource.clone();
    let mut values = headers.get_all(token_header).iter();
    let waiver = match (values.next(), values.next()) {
        (Some(value), None) => {
            let (token, signature) = token(route.tokens, value.as_bytes())?;
            return Ok((Stand::Fenced { resource, token }, signature));
        }
        (Some(_), Some(_)) => return Err(Malformed::DuplicateToken.into()),
        (None, _) => match route.missing_token {
            MissingToken::Refuse => return Err(ClaimError::Missing),
            MissingToken::Allow => Waiver::Allowed,
            MissingToken::Audit => Waiver::Audited,
        },
    };
    Ok((Stand::Unchecked { resource, waiver }, None))
}

fn token(wanted: Tokens, value: &[u8]) -> Result<(Token, Option<Signature>), Malformed> {
    Ok(match wanted {
        Tokens::Issued | Tokens::Trusted => match (Token::parse(value), signing::read(value)) {
            // Its number counts, as that alone would: so jobs can show signed tokens before their route wants them.
            (Err(_), Ok((token, Ok(_)))) => (token, None),
            (number, _) => (number?, None),
        },
        Tokens::Signed => {
            let (token, signature) = signing::read(value)?;
            (token, Some(signature))
        }
    })
}

impl ClaimError {
    /// Whether the connection cannot be trusted with another request.
    pub fn closes_connection(&self) -> bool {
        matches!(
            self,
            Self::Malformed(Malformed::HopByHop | Malformed::FramingAlias(_) | Malformed::UpgradeWithBody)
                | Self::TooLarge(_)
        )
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
