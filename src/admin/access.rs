//! Who may ask what on which port.
//!
//! Without grants, operators ask on the admin port and jobs on the elections port, each with a secret of its own that is
//! worth nothing on the other. The admin port serves the jobs as well, but only while it is on loopback and has no
//! secret: else every job would have to know the operators' secret, and could raise and freeze what it pleased. With
//! grants, each port asks who it is and what that identity was granted; the secret of a port keeps its rights there.
//! What must stay true: [`admit`] is the only way from a path to what answers it, and what answers goes no further than
//! its [`Caller`] may.

use std::net::SocketAddr;

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};

use super::answer::Problem;
use super::caller::{Caller, Reach};
use super::dispatch::Endpoint;
use super::{Jobs, Peer, Port, Server};
use crate::config::Right;
use crate::metrics::Action;
use crate::tls::Identity;

/// For whom an endpoint is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Probes, on both ports and without a secret: what they read names no holder and no resource.
    Anybody,
    /// Scrapers, on the admin port and, without grants, without a secret: what they read names resources and who leads
    /// them, but nothing that is a right, and it moves nothing.
    Scrapers,
    Operators,
    Jobs,
}

/// What a request shows of who sends it, beside the address that it came from.
pub(super) struct Shown {
    pub(super) address: SocketAddr,
    certificate: Option<Identity>,
    secret: ShownSecret,
}

enum ShownSecret {
    Nothing,
    /// Something that proves nothing.
    Wrong,
    /// That of the port that it came to.
    OfPort(Identity),
    Of(Identity),
}

/// The endpoint, if whoever asks may ask for it on this port, and how far it may go there.
pub(super) fn admit(
    server: &Server,
    shown: &Shown,
    path: &str,
    endpoint: Option<Endpoint>,
) -> Result<(Endpoint, Caller), Problem> {
    let audience = endpoint.map(audience);
    let is_open = server.admin.access.load().is_open();
    if audience != Some(Audience::Anybody) {
        if is_open { judge_by_port(server, audience, shown)? } else { judge_by_proof(shown)? }
    }
    // After the secret was judged: a stranger does not learn which paths there are.
    let served = endpoint.filter(|_| serves(&server.port, audience));
    let endpoint = served.ok_or_else(|| nothing_at(path, &server.port))?;
    let (right, of_everything) = needs(endpoint);
    let reach = match shown.secret {
        ShownSecret::OfPort(_) if is_for_port(&server.port, audience) => Reach::Everything,
        _ if audience == Some(Audience::Anybody) => Reach::Everything,
        _ => Reach::Granted(server.admin.access.clone()),
    };
    let caller = Caller { address: shown.address, identity: shown.identity(), right, reach };
    let may = if of_everything { caller.check_everything() } else { caller.check_anything() };
    may?;
    Ok((endpoint, caller))
}

fn audience(endpoint: Endpoint) -> Audience {
    match endpoint {
        Endpoint::Health | Endpoint::Ready => Audience::Anybody,
        Endpoint::Metrics => Audience::Scrapers,
        Endpoint::Page
        | Endpoint::Resources
        | Endpoint::Resource
        | Endpoint::Replicas
        | Endpoint::Events
        | Endpoint::OnceLedger
        | Endpoint::History
        | Endpoint::Operator(_) => Audience::Operators,
        Endpoint::Election
        | Endpoint::WatchElection
        | Endpoint::Campaign
        | Endpoint::Renew
        | Endpoint::Resign
        | Endpoint::Once { .. } => Audience::Jobs,
    }
}

/// By which right an endpoint is used, and whether that has to be of everything: the others ask for each resource that
/// they are about.
fn needs(endpoint: Endpoint) -> (Right, bool) {
    match endpoint {
        Endpoint::Metrics | Endpoint::Replicas => (Right::Observe, true),
        Endpoint::Health
        | Endpoint::Ready
        | Endpoint::Page
        | Endpoint::Resources
        | Endpoint::Resource
        | Endpoint::Events
        | Endpoint::OnceLedger
        | Endpoint::History
        | Endpoint::Election
        | Endpoint::WatchElection => (Right::Observe, false),
        Endpoint::Operator(action) => (Right::Operate, matches!(action, Action::BumpEra | Action::Retire)),
        Endpoint::Campaign | Endpoint::Renew | Endpoint::Resign | Endpoint::Once { .. } => {
            (Right::Campaign, false)
        }
    }
}

fn serves(port: &Port, audience: Option<Audience>) -> bool {
    match port {
        Port::Admin => true,
        Port::Elections { .. } => matches!(audience, Some(Audience::Anybody | Audience::Jobs)),
    }
}

/// Whether the secret of the port is for this.
fn is_for_port(port: &Port, audience: Option<Audience>) -> bool {
    match port {
        Port::Admin => audience != Some(Audience::Jobs),
        Port::Elections { .. } => true,
    }
}

/// Without grants: whether the port is for this, and has been shown its secret.
fn judge_by_port(server: &Server, audience: Option<Audience>, shown: &Shown) -> Result<(), Problem> {
    match (&server.port, audience, server.admin.jobs) {
        (Port::Admin, Some(Audience::Scrapers), _) => Ok(()),
        // Whatever secret it has: a job that asks at the wrong door needs to hear which is the right one.
        (Port::Admin, Some(Audience::Jobs), Jobs::At(_) | Jobs::Nowhere) => Err(elsewhere(server.admin.jobs)),
        (Port::Admin, ..) => authorize(server.admin.auth.is_some(), shown, &OPERATORS),
        (Port::Elections { auth }, ..) => authorize(auth.is_some(), shown, &JOBS),
    }
}

/// With grants: whether it has proved to be anybody.
fn judge_by_proof(shown: &Shown) -> Result<(), Problem> {
    let how = "send Authorization: Bearer with the secret that you have in the gateway's secrets.file (highgate's own \
               commands take it from --token-file, HIGHGATE_ADMIN_TOKEN or HIGHGATE_ELECTIONS_TOKEN)";
    match shown.secret {
        _ if shown.certificate.is_some() => Ok(()),
        ShownSecret::OfPort(_) | ShownSecret::Of(_) => Ok(()),
        ShownSecret::Nothing => Err(unauthorized(format!("nobody is known to ask: {how}"))),
        ShownSecret::Wrong => {
            Err(unauthorized(format!("wrong secret: what Authorization carries is nobody's; {how}")))
        }
    }
}

/// How a secret is called, and where its owner has it.
struct Named {
    whose: &'static str,
    variable: &'static str,
    key: &'static str,
}

const OPERATORS: Named = Named { whose: "operators'", variable: "HIGHGATE_ADMIN_TOKEN", key: "admin.auth" };
const JOBS: Named = Named { whose: "jobs'", variable: "HIGHGATE_ELECTIONS_TOKEN", key: "elections.auth" };

fn authorize(wanted: bool, shown: &Shown, named: &Named) -> Result<(), Problem> {
    let Named { whose, variable, key } = named;
    let detail = match shown.secret {
        _ if !wanted => return Ok(()),
        ShownSecret::OfPort(_) => return Ok(()),
        ShownSecret::Wrong | ShownSecret::Of(_) => format!(
            "wrong secret: what Authorization carries is not the {whose} secret, which is in the file of {key} \
             (highgate's own commands take it from --token-file or {variable})"
        ),
        ShownSecret::Nothing => format!(
            "no secret: set {variable} for highgate's own commands, or send Authorization: Bearer with the {whose} \
             secret, which is in the file of {key}"
        ),
    };
    Err(unauthorized(detail))
}

fn unauthorized(detail: String) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail).with(WWW_AUTHENTICATE, "Bearer")
}

impl Shown {
    pub(super) fn of(server: &Server, peer: &Peer, headers: &HeaderMap) -> Self {
        let secret = ShownSecret::of(server, headers);
        Self { address: peer.address, certificate: peer.identity.clone(), secret }
    }

    /// Who sends it, by all that it has proved.
    pub(super) fn identity(&self) -> Option<Identity> {
        let secret = match &self.secret {
            ShownSecret::OfPort(identity) | ShownSecret::Of(identity) => Some(identity),
            ShownSecret::Nothing | ShownSecret::Wrong => None,
        };
        match (&self.certificate, secret) {
            (Some(certificate), Some(secret)) => Some(certificate.and(secret)),
            (certificate, secret) => certificate.as_ref().or(secret).cloned(),
        }
    }
}

impl ShownSecret {
    fn of(server: &Server, headers: &HeaderMap) -> Self {
        let shown = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        // A client without a secret may send the scheme alone.
        let Some(shown) = shown.filter(|shown| !shown.trim_ascii().eq_ignore_ascii_case(b"Bearer")) else {
            return Self::Nothing;
        };
        let Some(secret) = bearer(shown) else { return Self::Wrong };
        let auth = match &server.port {
            Port::Admin => server.admin.auth.as_ref(),
            Port::Elections { auth } => auth.as_ref(),
        };
        if let Some(auth) = auth.filter(|auth| auth.accepts(secret)) {
            return Self::OfPort(auth.identity().clone());
        }
        let access = server.admin.access.load();
        access.secrets.identify(secret).cloned().map_or(Self::Wrong, Self::Of)
    }
}

/// The secret of an `Authorization` header, whose scheme is written in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, secret) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(secret)
}

fn elsewhere(jobs: Jobs) -> Problem {
    let why = "the admin port has a secret or is not on loopback, so it holds no elections";
    let detail = match jobs {
        Jobs::At(address) => format!("{why}: jobs use the elections port, {address}"),
        _ => format!("{why}: give jobs a port of their own, the table [elections] of the config"),
    };
    Problem::new(StatusCode::FORBIDDEN, detail)
}

fn nothing_at(path: &str, port: &Port) -> Problem {
    let detail = match port {
        Port::Admin => format!("there is nothing at {path}"),
        Port::Elections { .. } => {
            format!("there is nothing at {path} on the elections port; operators use the admin port")
        }
    };
    Problem::new(StatusCode::NOT_FOUND, detail)
}
