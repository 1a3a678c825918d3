//! Routes as the gate uses them: immutable, shared, replaced as a whole by a reload.
//!
//! `gate::claim` asks [`Routes::find`]; the first route in file order whose host, path and method match wins.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::bodies::Bodies;
use super::path::CanonicalPath;
use super::pattern::{Captures, HostPattern, PathPattern};
use super::resource::ResourceRule;
use super::statuses::UnknownStatuses;
use super::upgrades::Upgrades;
use super::upstream::Upstream;
use super::words::{MissingToken, OnUnknown, Tokens, UpstreamProtocol};

/// All routes, in file order. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct Routes(Arc<[Arc<Route>]>);

/// One `[[routes]]` table.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    pub name: Arc<str>,
    pub matcher: Matcher,
    pub upstream: Upstream,
    pub upstream_protocol: UpstreamProtocol,
    pub resource: ResourceRule,
    pub fenced: FencedMethods,
    pub bodies: Bodies,
    pub tokens: Tokens,
    /// Only who has won the election may use its token.
    pub bind_holder: bool,
    pub missing_token: MissingToken,
    /// What a connection may go on with in HTTP's place. Whoever asks for that needs a token, whatever the method.
    pub upgrades: Upgrades,
    /// How long requests of a lower token may go on once a higher one came.
    pub drain_timeout: Duration,
    /// How long a request waits for a raise.
    pub hold_timeout: Duration,
    /// How long an effect may come after its request's end, where that end left it unknown.
    pub lock_delay: Duration,
    pub on_unknown: OnUnknown,
    /// Complete answers of the upstream that leave the outcome unknown.
    pub unknown_statuses: UnknownStatuses,
    pub connect_timeout: Duration,
    /// From the request's last byte to the response's head.
    pub response_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    pub total_timeout: Option<Duration>,
}

/// Which requests a route takes; what is absent matches everything.
#[derive(Debug, Clone, PartialEq)]
pub struct Matcher {
    pub host: Option<HostPattern>,
    pub path: PathPattern,
    pub methods: Option<Vec<Method>>,
}

/// Which methods need a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FencedMethods {
    /// All but GET, HEAD, OPTIONS and TRACE: a method nobody has heard of may write.
    AllButSafe,
    Only(Vec<Method>),
}

/// Whether a method asks for something and changes nothing, by its definition.
pub fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

impl Routes {
    pub(super) fn new(routes: impl IntoIterator<Item = Route>) -> Self {
        Self(routes.into_iter().map(Arc::new).collect())
    }

    /// The route of a request, with what its path pattern captured. `host` is canonical, or empty.
    pub fn find<'p>(
        &self,
        method: &Method,
        host: &str,
        path: &CanonicalPath<'p>,
    ) -> Option<(&Arc<Route>, Captures<'p>)> {
        let route = self.0.iter().find(|route| route.matcher.matches(method, host, path))?;
        Some((route, route.matcher.path.captures(path)))
    }

    /// A route before `found` that would be this request's but for the case of letters in its path. To an upstream that
    /// does not tell them apart it is that route's, with another fence.
    pub fn in_another_case(
        &self,
        found: &Arc<Route>,
        method: &Method,
        host: &str,
        path: &CanonicalPath<'_>,
    ) -> Option<&Arc<Route>> {
        let mut earlier = self.0.iter().take_while(|route| !Arc::ptr_eq(route, found));
        earlier
            .find(|route| route.matcher.takes(method, host) && route.matcher.path.matches_in_any_case(path))
    }

    /// Whether the host decides about any route or resource.
    pub fn go_by_host(&self) -> bool {
        self.iter().any(|route| {
            let named = matches!(&route.resource, ResourceRule::Template(template) if template.uses_host());
            named || route.matcher.host.is_some()
        })
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Arc<Route>> {
        self.0.iter()
    }

    /// How long after an unclean start nothing may be sealed.
    pub fn longest_lock_delay(&self) -> Duration {
        self.iter().map(|route| route.lock_delay).max().unwrap_or_default()
    }

    /// After how long a superseded request is cut at the latest.
    pub fn longest_drain_timeout(&self) -> Duration {
        self.iter().map(|route| route.drain_timeout).max().unwrap_or_default()
    }
}

impl Route {
    /// What the route promises, in the words of the docs; anything but `gated` with all reasons.
    pub fn grade(&self) -> String {
        let unfenced = matches!(&self.fenced, FencedMethods::Only(methods) if methods.is_empty());
        let unfenced = unfenced.then(|| "fenced_methods = []".to_owned());
        let missing = (self.missing_token != MissingToken::Refuse)
            .then(|| format!("missing_token = {}", self.missing_token));
        let unknown = (self.on_unknown == OnUnknown::Proceed).then(|| "on_unknown = proceed".to_owned());
        let ends: Vec<_> = self.unknown_statuses.missing().map(|status| status.to_string()).collect();
        let ends = (!ends.is_empty()).then(|| format!("unknown_statuses without {}", ends.join(", ")));
        let grade = if unfenced.is_some() { "not fenced" } else { "not gated" };
        let reasons: Vec<_> = [unfenced, missing, unknown, ends].into_iter().flatten().collect();
        if reasons.is_empty() { "gated".to_owned() } else { format!("{grade} ({})", reasons.join(", ")) }
    }
}

impl Matcher {
    pub(super) fn matches(&self, method: &Method, host: &str, path: &CanonicalPath<'_>) -> bool {
        self.takes(method, host) && self.path.matches(path)
    }

    /// Whether it matches but for the path.
    fn takes(&self, method: &Method, host: &str) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(method))
            && self.host.as_ref().is_none_or(|pattern| pattern.matches(host))
    }

    /// Whether `other` takes requests that differ from those of `self` in the case of letters in their path only.
    pub(super) fn meets_in_another_case(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (Some(own), Some(their)) => own.covers(their) || their.covers(own),
            _ => true,
        };
        let methods = match (&self.methods, &other.methods) {
            (Some(own), Some(their)) => own.iter().any(|method| their.contains(method)),
            _ => true,
        };
        host && methods && self.path.meets_in_another_case(&other.path)
    }

    /// Whether every request that `other` matches is matched by `self`.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.covers_but_for_path(other) && self.path.covers(&other.path)
    }

    /// The same, where the case of letters in a path counts.
    pub(super) fn covers_exactly(&self, other: &Self) -> bool {
        self.covers_but_for_path(other) && self.path.covers_exactly(&other.path)
    }

    fn covers_but_for_path(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (None, _) => true,
            (Some(own), Some(their)) => own.covers(their),
            (Some(_), None) => false,
        };
        let methods = match (&self.methods, &other.methods) {
            (None, _) => true,
            (Some(own), Some(their)) => their.iter().all(|method| own.contains(method)),
            (Some(_), None) => false,
        };
        host && methods
    }

    /// The one host that it matches, if there is only one.
    pub(super) fn exact_host(&self) -> Option<&str> {
        match &self.host {
            Some(HostPattern::Exact(host)) => Some(host),
            _ => None,
        }
    }

    /// What both match, if there is anything.
    pub(super) fn meet(&self, other: &Self) -> Option<Self> {
        let host = match (&self.host, &other.host) {
            (Some(own), Some(their)) => Some(own.meet(their)?),
            (own, their) => own.clone().or_else(|| their.clone()),
        };
        let methods = match (&self.methods, &other.methods) {
            (Some(own), Some(their)) => {
                Some(own.iter().filter(|method| their.contains(method)).cloned().collect::<Vec<_>>())
            }
            (own, their) => own.clone().or_else(|| their.clone()),
        };
        if methods.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        Some(Self { host, path: self.path.meet(&other.path)?, methods })
    }
}

impl FencedMethods {
    pub fn contains(&self, method: &Method) -> bool {
        match self {
            Self::AllButSafe => !is_safe(method),
            Self::Only(methods) => methods.contains(method),
        }
    }

    /// Whether whatever needs a token by `other` needs one by `self`.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AllButSafe, Self::AllButSafe) => true,
            (Self::Only(_), Self::AllButSafe) => false,
            (own, Self::Only(methods)) => methods.iter().all(|method| own.contains(method)),
        }
    }

    /// Whether a request can need a token by both, if it has one of these methods (none: any).
    pub(super) fn meets(&self, other: &Self, methods: Option<&[Method]>) -> bool {
        match (methods, self, other) {
            (Some(methods), ..) => {
                methods.iter().any(|method| self.contains(method) && other.contains(method))
            }
            (None, Self::AllButSafe, Self::AllButSafe) => true,
            (None, Self::Only(methods), other) | (None, other, Self::Only(methods)) => {
                methods.iter().any(|method| other.contains(method))
            }
        }
    }

    /// Whether no method at all needs a token.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Only(methods) if methods.is_empty())
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(methods) = &self.methods {
            let methods: Vec<_> = methods.iter().map(Method::as_str).collect();
            write!(f, "{} ", methods.join(","))?;
        }
        if let Some(host) = &self.host {
            host.fmt(f)?;
        }
        self.path.fmt(f)
    }
}
