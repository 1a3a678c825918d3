//! From a request to its endpoint: by which method it is asked, and what a browser may not be tricked into. Who may
//! ask is in `access`.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, HOST, ORIGIN};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::access::Shown;
use super::answer::{Answer, Problem, answer as plain, harden, line};
use super::{
    Admin, Peer, Port, Server, access, elections, history, once, operator, page, replicas, resources, stream,
};
use crate::metrics::Action;

const MAX_BODY: usize = 64 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// What Prometheus expects of the text form.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Copy)]
pub(super) enum Endpoint {
    Health,
    Ready,
    Metrics,
    Page,
    Resources,
    Resource,
    Replicas,
    Events,
    Operator(Action),
    Election,
    WatchElection,
    Campaign,
    Renew,
    Resign,
    Once { complete: bool },
    OnceLedger,
    History,
}

/// Every path of both ports. A test holds it against a table of who may ask what.
pub(super) const ENDPOINTS: &[(&str, Endpoint)] = &[
    ("/healthz", Endpoint::Health),
    ("/readyz", Endpoint::Ready),
    ("/metrics", Endpoint::Metrics),
    ("/", Endpoint::Page),
    ("/v1/resources", Endpoint::Resources),
    ("/v1/resource", Endpoint::Resource),
    ("/v1/replicas", Endpoint::Replicas),
    ("/v1/events", Endpoint::Events),
    ("/v1/history", Endpoint::History),
    ("/v1/operator/raise", Endpoint::Operator(Action::Raise)),
    ("/v1/operator/freeze", Endpoint::Operator(Action::Freeze)),
    ("/v1/operator/thaw", Endpoint::Operator(Action::Thaw)),
    ("/v1/operator/evict", Endpoint::Operator(Action::Evict)),
    ("/v1/operator/era-bump", Endpoint::Operator(Action::BumpEra)),
    ("/v1/operator/retire", Endpoint::Operator(Action::Retire)),
    ("/v1/elections", Endpoint::Election),
    ("/v1/elections/watch", Endpoint::WatchElection),
    ("/v1/elections/campaign", Endpoint::Campaign),
    ("/v1/elections/renew", Endpoint::Renew),
    ("/v1/elections/resign", Endpoint::Resign),
    ("/v1/operator/once-reset", Endpoint::Operator(Action::ResetOnce)),
    ("/v1/once", Endpoint::OnceLedger),
    ("/v1/once/begin", Endpoint::Once { complete: false }),
    ("/v1/once/complete", Endpoint::Once { complete: true }),
];

impl Endpoint {
    fn of(path: &str) -> Option<Self> {
        ENDPOINTS.iter().find(|(known, _)| *known == path).map(|(_, endpoint)| *endpoint)
    }

    fn allows(self) -> &'static str {
        if self.gives_orders() { "POST" } else { "GET, HEAD" }
    }

    /// Whether it changes something.
    pub(super) fn gives_orders(self) -> bool {
        matches!(self, Self::Operator(_) | Self::Campaign | Self::Renew | Self::Resign | Self::Once { .. })
    }
}

pub(super) async fn answer(
    server: &Server,
    peer: &Peer,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let mut answer = handle(server, peer, request).await.unwrap_or_else(Answer::from);
    harden(answer.headers_mut());
    Ok(answer)
}

async fn handle(server: &Server, peer: &Peer, request: Request<Incoming>) -> Result<Answer, Problem> {
    let (endpoint, shown) = (Endpoint::of(request.uri().path()), Shown::of(server, peer, request.headers()));
    let answer = serve(server, &shown, endpoint, request).await;
    if let (Some(Endpoint::Operator(action)), Err(problem), Port::Admin) = (endpoint, &answer, &server.port) {
        server.refusals.note(&shown, action, problem);
    }
    answer
}

async fn serve(
    server: &Server,
    shown: &Shown,
    endpoint: Option<Endpoint>,
    request: Request<Incoming>,
) -> Result<Answer, Problem> {
    let admin = &*server.admin;
    let (head, body) = request.into_parts();
    let (endpoint, caller) = access::admit(server, shown, head.uri.path(), endpoint)?;
    check_method(endpoint, &head.method)?;
    if endpoint.gives_orders() {
        check_origin(&head.headers)?;
    }
    let query = head.uri.query();
    match endpoint {
        Endpoint::Health => Ok(line(StatusCode::OK, "alive")),
        Endpoint::Ready => Ok(ready(admin)),
        Endpoint::Metrics => Ok(plain(StatusCode::OK, METRICS, metrics(admin))),
        Endpoint::Page => Ok(page::show()),
        Endpoint::Resources => resources::list(admin, &caller, query).await,
        Endpoint::Resource => resources::show(admin, &caller, query).await,
        Endpoint::Replicas => Ok(replicas::show(admin)),
        Endpoint::Events => stream::open(server, caller, query),
        Endpoint::Operator(action) => operator::order(admin, caller, action, &read(body).await?).await,
        Endpoint::Election => elections::show(admin, &caller, query).await,
        Endpoint::WatchElection => elections::watch(server, caller, query).await,
        Endpoint::Campaign => elections::campaign(server, &caller, &read(body).await?).await,
        Endpoint::Renew => elections::renew(admin, &caller, &read(body).await?).await,
        Endpoint::Resign => elections::resign(admin, &caller, &read(body).await?).await,
        Endpoint::Once { complete } => once::step(admin, &caller, &read(body).await?, complete).await,
        Endpoint::OnceLedger => once::list(admin, &caller, query).await,
        Endpoint::History => history::show(server, &caller, query).await,
    }
}

fn metrics(admin: &Admin) -> String {
    admin.metrics.render(admin.store.ledger(), &admin.store.overview())
}

fn ready(admin: &Admin) -> Answer {
    match admin.unready() {
        None => line(StatusCode::OK, "ready"),
        Some(why) => line(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

fn check_method(endpoint: Endpoint, method: &Method) -> Result<(), Problem> {
    let allowed = endpoint.allows();
    if allowed.split(", ").any(|allowed| method == allowed) {
        return Ok(());
    }
    let detail = format!("{method} does not work here, only {allowed}");
    Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail).with(ALLOW, allowed))
}

/// A browser names the page that sends a request. One from elsewhere has no business to give orders here, and
/// on a loopback port nothing else would stop it. A name that somebody made to resolve to this address would
/// pass as the same origin, so a browser has to use the address itself.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = Uri::try_from(origin.as_bytes()).ok();
    let page = origin.as_ref().and_then(Uri::authority);
    let here = headers.get(HOST).map(|host| host.as_bytes());
    match (page, here) {
        (Some(page), Some(here))
            if page.as_str().as_bytes().eq_ignore_ascii_case(here) && is_address(page.host()) =>
        {
            Ok(())
        }
        _ => Err(Problem::new(StatusCode::FORBIDDEN, "a page of another origin may not give orders")),
    }
}

fn is_address(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

async fn read(body: Incoming) -> Result<Bytes, Problem> {
    let too_slow = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
    let collected = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await.map_err(too_slow)?;
    collected.map(|body| body.to_bytes()).map_err(|error| {
        if error.is::<LengthLimitError>() {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has at most {MAX_BODY} bytes"))
        } else {
            Problem::new(StatusCode::BAD_REQUEST, "the body broke off")
        }
    })
}
