//! Routes as the gate uses them: immutable, shared, replaced as a whole by a reload.
//!
//! `gate::claim` asks [`Routes::find`]; the first route in file order whose host, path and method match wins.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::path::CanonicalPath;
use super::pattern::{Captures, HostPattern, PathPattern};
use super::resource::ResourceRule;
use super::upstream::Upstream;
use super::words::{MissingToken, OnUnknown, Tokens};

/// All routes, in file order. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct Routes(Arc<[Arc<Route>]>);

/// One `[[routes]]` table.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    pub name: Arc<str>,
    pub matcher: Matcher,
    pub upstream: Upstream,
    pub resource: ResourceRule,
    pub fenced: FencedMethods,
    pub tokens: Tokens,
    pub missing_token: MissingToken,
    /// How long requests of a lower token may go on once a higher one came.
    pub drain_timeout: Duration,
    /// How long a request waits for a raise.
    pub hold_timeout: Duration,
    /// How long an effect may come after its request's end, where that end left it unknown.
    pub lock_delay: Duration,
    pub on_unknown: OnUnknown,
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
    /// What the route promises, in the words of the docs; anything but `gated` with its reason.
    pub fn grade(&self) -> &'static str {
        match self {
            Self { fenced: FencedMethods::Only(methods), .. } if methods.is_empty() => {
                "not fenced (fenced_methods = [])"
            }
            Self { on_unknown: OnUnknown::Proceed, .. } => "not gated (on_unknown = proceed)",
            Self { missing_token: MissingToken::Allow, .. } => "not gated (missing_token = allow)",
            Self { missing_token: MissingToken::Audit, .. } => "not gated (missing_token = audit)",
            _ => "gated",
        }
    }
}

impl Matcher {
    fn matches(&self, method: &Method, host: &str, path: &CanonicalPath<'_>) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(method))
            && self.host.as_ref().is_none_or(|pattern| pattern.matches(host))
            && self.path.matches(path)
    }

    /// Whether every request that `other` matches is matched by `self`.
    pub(super) fn covers(&self, other: &Self) -> bool {
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
        host && methods && self.path.covers(&other.path)
    }
}

impl FencedMethods {
    pub fn contains(&self, method: &Method) -> bool {
        match self {
            Self::AllButSafe => {
                !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
            }
            Self::Only(methods) => methods.contains(method),
        }
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
