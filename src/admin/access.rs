//! Who may ask what on which port.
//!
//! Operators ask on the admin port, jobs on the elections port, each with a secret of its own that is worth nothing on
//! the other. The admin port serves the jobs as well, but only while it is on loopback and has no secret: else every
//! job would have to know the operators' secret, and could raise and freeze what it pleased. What must stay true:
//! [`admit`] is the only way from a path to what answers it.

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};

use super::answer::Problem;
use super::dispatch::Endpoint;
use super::{Jobs, Port, Server};
use crate::config::Secret;

/// For whom an endpoint is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Probes, on both ports and without a secret: what they read names no holder and no resource.
    Anybody,
    /// Scrapers, on the admin port and without a secret: what they read names no token's holder and moves nothing.
    Scrapers,
    Operators,
    Jobs,
}

/// The endpoint, if whoever asks with these headers may ask for it on this port.
pub(super) fn admit(
    server: &Server,
    path: &str,
    endpoint: Option<Endpoint>,
    headers: &HeaderMap,
) -> Result<Endpoint, Problem> {
    let audience = endpoint.map(audience);
    let served = match &server.port {
        Port::Admin => admin_serves(server, audience, headers)?,
        Port::Elections { auth } => elections_serve(auth.as_ref(), audience, headers)?,
    };
    // After the secret was judged: a stranger does not learn which paths there are.
    endpoint.filter(|_| served).ok_or_else(|| nothing_at(path, &server.port))
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
        | Endpoint::Operator(_) => Audience::Operators,
        Endpoint::Election
        | Endpoint::WatchElection
        | Endpoint::Campaign
        | Endpoint::Renew
        | Endpoint::Resign
        | Endpoint::Once { .. } => Audience::Jobs,
    }
}

fn admin_serves(server: &Server, audience: Option<Audience>, headers: &HeaderMap) -> Result<bool, Problem> {
    match (audience, server.admin.jobs) {
        (Some(Audience::Anybody | Audience::Scrapers), _) => Ok(true),
        // Whatever secret it has: a job that asks at the wrong door needs to hear which is the right one.
        (Some(Audience::Jobs), Jobs::At(_) | Jobs::Nowhere) => Err(elsewhere(server.admin.jobs)),
        _ => {
            authorize(server.admin.auth.as_ref(), headers, &OPERATORS)?;
            Ok(audience.is_some())
        }
    }
}

fn elections_serve(
    auth: Option<&Secret>,
    audience: Option<Audience>,
    headers: &HeaderMap,
) -> Result<bool, Problem> {
    if audience == Some(Audience::Anybody) {
        return Ok(true);
    }
    authorize(auth, headers, &JOBS)?;
    Ok(audience == Some(Audience::Jobs))
}

/// How a secret is called, and where its owner has it.
struct Named {
    whose: &'static str,
    variable: &'static str,
    key: &'static str,
}

const OPERATORS: Named = Named { whose: "operators'", variable: "HIGHGATE_ADMIN_TOKEN", key: "admin.auth" };
const JOBS: Named = Named { whose: "jobs'", variable: "HIGHGATE_ELECTIONS_TOKEN", key: "elections.auth" };

fn authorize(auth: Option<&Secret>, headers: &HeaderMap, named: &Named) -> Result<(), Problem> {
    let Some(auth) = auth else { return Ok(()) };
    let Named { whose, variable, key } = named;
    // A client without a secret may send the scheme alone.
    let shown = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let detail = match shown.filter(|shown| !shown.trim_ascii().eq_ignore_ascii_case(b"Bearer")) {
        Some(shown) if bearer(shown).is_some_and(|secret| auth.accepts(secret)) => return Ok(()),
        Some(_) => format!(
            "wrong secret: what Authorization carries is not the {whose} secret, which is in the file of {key} \
             (highgate's own commands take it from {variable})"
        ),
        None => format!(
            "no secret: set {variable} for highgate's own commands, or send Authorization: Bearer with the {whose} \
             secret, which is in the file of {key}"
        ),
    };
    Err(Problem::new(StatusCode::UNAUTHORIZED, detail).with(WWW_AUTHENTICATE, "Bearer"))
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
