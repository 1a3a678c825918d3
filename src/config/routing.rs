//! From `[[routes]]`, or `--upstream` in their place, to [`Routes`].
//!
//! Apart from each route's own values this finds what only shows between routes: a name or a match that is
//! there twice, and a route that an earlier one leaves nothing to.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use highgate_elector::Resource;
use http::Method;
use toml::Spanned;

use super::bodies::{Bodies, RawBodies};
use super::error::Report;
use super::pattern::{HostPattern, PathPattern};
use super::raw::{RawClient, RawMatch, RawResource, RawRoute, Section, Text};
use super::resource::ResourceRule;
use super::route::{FencedMethods, Matcher, Route, Routes};
use super::scope::{Scope, positive_duration};
use super::signing::check_tokens;
use super::statuses::UnknownStatuses;
use super::upgrades::Upgrades;
use super::upstream::{Upstream, Url};
use super::words::{MissingToken, OnUnknown, Tokens, UpstreamProtocol};
use super::{Overrides, keys, upstream_tls};
use crate::signing::Signing;
use crate::tls::SystemRoots;

const CATCH_ALL: &str = "default";

pub(super) fn build(
    raw: Vec<Section<RawRoute>>,
    overrides: &Overrides,
    signing: &Signing,
    report: &mut Report<'_>,
) -> Routes {
    match (&overrides.upstream, raw.is_empty()) {
        (Some(url), true) => Routes::new(catch_all(url, overrides, signing, report)),
        (None, true) => {
            report_no_routes(report);
            Routes::new([])
        }
        (Some(_), false) => {
            let what = "the config file has [[routes]], which say where requests go";
            report.add_flag(
                "--upstream",
                what,
                "--upstream (or HIGHGATE_UPSTREAM) without [[routes]], or [[routes]] without it",
            );
            Routes::new([])
        }
        (None, false) => Routes::new(all(raw, overrides, signing, report)),
    }
}

fn report_no_routes(report: &mut Report<'_>) {
    if report.has_file() {
        report.add(0..0, "routes".to_owned(), "the file has no routes");
    } else {
        let allowed = "--upstream http://host:port for one route, or --config FILE with [[routes]]";
        report.add_flag(
            "--upstream",
            "there is nothing to serve: neither a config file nor an upstream is given",
            allowed,
        );
    }
}

/// The one route of a gateway that was only told its upstream. Without a file it is a trial: any token raises.
fn catch_all(url: &str, overrides: &Overrides, signing: &Signing, report: &mut Report<'_>) -> Option<Route> {
    let read = Url::parse(url).map_err(|error| error.to_string()).and_then(|url| {
        let tls = upstream_tls::plain(&url, &SystemRoots::default())
            .map_err(|error| upstream_tls::unnamed(&error))?;
        Ok(url.with(tls))
    });
    let upstream = read.map_err(|what| report.add_flag("--upstream", what, keys::UPSTREAM)).ok()?;
    let tokens = if report.has_file() { Tokens::Issued } else { Tokens::Trusted };
    let default = Resource::parse(CATCH_ALL).expect("a plain word is a resource name");
    let path = PathPattern::parse("/").expect("a slash is a pattern");
    let base = Base {
        name: CATCH_ALL.into(),
        upstream,
        matcher: Matcher { host: None, path, methods: None },
        resource: ResourceRule::Client { default: Some(default) },
    };
    let route = route(RawRoute::default(), Some(base), signing, &mut Scope::new(report, "routes"))?;
    Some(Route { tokens: overrides.tokens.unwrap_or(tokens), ..route })
}

/// The routes that are right by themselves, then compared with each other.
fn all(
    raw: Vec<Section<RawRoute>>,
    overrides: &Overrides,
    signing: &Signing,
    report: &mut Report<'_>,
) -> Vec<Route> {
    let mut built: Vec<(usize, Route)> = Vec::new();
    let mut names = HashMap::new();
    let system = SystemRoots::default();
    for (index, raw) in raw.into_iter().enumerate() {
        let span = raw.span.clone();
        let mut scope = Scope::new(report, format!("routes[{index}]"));
        check_name_is_new(&mut names, index, &raw.name, &mut scope);
        let mut raw = raw.into_table();
        let base = base(&mut raw, &span, &system, &mut scope);
        let Some(mut route) = route(raw, base, signing, &mut scope) else { continue };
        route.tokens = overrides.tokens.unwrap_or(route.tokens);
        check_reachable(&built, &route, &span, &mut scope);
        built.push((index, route));
    }
    built.into_iter().map(|(_, route)| route).collect()
}

fn check_name_is_new(
    names: &mut HashMap<String, usize>,
    index: usize,
    name: &Text,
    scope: &mut Scope<'_, '_>,
) {
    let Some(name) = name else { return };
    if let Some(first) = names.get(name.get_ref()) {
        scope.problem(name.span(), "name", format!("{:?} is the name of routes[{first}]", name.get_ref()));
    } else {
        names.insert(name.get_ref().clone(), index);
    }
}

fn check_reachable(
    earlier: &[(usize, Route)],
    route: &Route,
    span: &Range<usize>,
    scope: &mut Scope<'_, '_>,
) {
    let Some((index, first)) = earlier.iter().find(|(_, other)| other.matcher.covers(&route.matcher)) else {
        return;
    };
    let what = if route.matcher.covers(&first.matcher) {
        format!("routes[{index}] ({}) has the same match", first.name)
    } else {
        format!("can never match: routes[{index}] ({}) takes all of it", first.name)
    };
    scope.problem(span.clone(), "match", what);
}

/// The parts of a route that have no default.
struct Base {
    name: Arc<str>,
    upstream: Upstream,
    matcher: Matcher,
    resource: ResourceRule,
}

/// Nothing, with a problem reported, if one of the parts is missing or bad.
fn base(
    raw: &mut RawRoute,
    span: &Range<usize>,
    system: &SystemRoots,
    scope: &mut Scope<'_, '_>,
) -> Option<Base> {
    let name = scope.require("name", span, raw.name.take(), check_name);
    let place = raw.upstream.as_ref().map_or(span.clone(), |url| url.span());
    let url = scope.require("upstream", span, raw.upstream.take(), |url| Url::parse(&url));
    let upstream = url.and_then(|url| {
        let tls = upstream_tls::build(&url, place, raw.upstream_tls.take(), system, scope)?;
        Some(url.with(tls))
    });
    let matcher = matcher(raw.r#match.take().map(Section::into_table).unwrap_or_default(), scope)?;
    let (name, resource) = match raw.resource.take() {
        Some(rule) => (name, resource(rule, &matcher.path, scope)),
        None => (name.clone(), name.and_then(|name| Resource::parse(&name).ok()).map(ResourceRule::Fixed)),
    };
    Some(Base { name: name?.into(), upstream: upstream?, matcher, resource: resource? })
}

/// Reads every other setting, with or without a base: all problems are to be found in one go.
fn route(raw: RawRoute, base: Option<Base>, signing: &Signing, scope: &mut Scope<'_, '_>) -> Option<Route> {
    let seconds = Duration::from_secs;
    let fenced = raw.fenced_methods.and_then(|methods| self::methods("fenced_methods", methods, scope));
    let bodies = RawBodies {
        of_reads: raw.read_bodies,
        max: raw.max_body,
        trailers: raw.request_trailers,
        keep_alive: raw.upstream_keep_alive,
    };
    let bodies = Bodies::read(bodies, scope);
    let upstream_protocol = scope.word("upstream_protocol", raw.upstream_protocol, UpstreamProtocol::Http1);
    let place = raw.tokens.as_ref().map(|tokens| tokens.span());
    let tokens = scope.word("tokens", raw.tokens, Tokens::Issued);
    if let (Some(place), Err(what)) = (place, check_tokens(tokens, signing)) {
        scope.problem(place, "tokens", what);
    }
    let missing_token = scope.word("missing_token", raw.missing_token, MissingToken::Refuse);
    let upgrades = Upgrades::read(raw.upgrades, upstream_protocol, scope);
    let drain_timeout = scope.duration_or_zero("drain_timeout", raw.drain_timeout, seconds(5));
    let hold_timeout = scope.duration("hold_timeout", raw.hold_timeout, seconds(2));
    let on_unknown = scope.word("on_unknown", raw.on_unknown, OnUnknown::Delay);
    let lock_delay = match on_unknown {
        OnUnknown::Proceed => scope.duration_or_zero("lock_delay", raw.lock_delay, seconds(5)),
        OnUnknown::Block | OnUnknown::Delay => scope.duration("lock_delay", raw.lock_delay, seconds(5)),
    };
    let unknown_statuses = UnknownStatuses::read(raw.unknown_statuses, scope);
    let connect_timeout = scope.duration("connect_timeout", raw.connect_timeout, seconds(5));
    let response_timeout = scope.duration("response_timeout", raw.response_timeout, seconds(60));
    let idle_timeout = scope.duration("idle_timeout", raw.idle_timeout, seconds(60));
    let bind_holder = scope.read("bind_holder", raw.bind_holder, |bind| match tokens {
        Tokens::Trusted if bind => {
            Err("with tokens = \"trusted\" nobody knows whom a token was issued to".to_owned())
        }
        _ => Ok(bind),
    });
    let total_timeout = scope.read("total_timeout", raw.total_timeout, |text| match text.as_str() {
        "none" => Ok(None),
        text => positive_duration(text).map(Some),
    });
    let Base { name, upstream, matcher, resource } = base?;
    Some(Route {
        name,
        matcher,
        upstream,
        upstream_protocol,
        resource,
        fenced: fenced.map_or(FencedMethods::AllButSafe, FencedMethods::Only),
        bodies,
        tokens,
        bind_holder: bind_holder.unwrap_or(false),
        missing_token,
        upgrades,
        drain_timeout,
        hold_timeout,
        lock_delay,
        on_unknown,
        unknown_statuses,
        connect_timeout,
        response_timeout,
        idle_timeout,
        total_timeout: total_timeout.flatten(),
    })
}

/// A name is a label in metrics and logs and, without a `resource`, the resource.
fn check_name(name: String) -> Result<String, String> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    let starts = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if plain && starts && name.len() <= 64 { Ok(name) } else { Err(format!("{name:?} is not a route name")) }
}

fn matcher(raw: RawMatch, scope: &mut Scope<'_, '_>) -> Option<Matcher> {
    // A bad value is reported, and stands for no limit until the report ends the matter.
    let host = scope.read("match.host", raw.host, |host| {
        HostPattern::parse(&host).ok_or_else(|| format!("{host:?} is not a host pattern"))
    });
    let methods = raw.methods.and_then(|methods| {
        if methods.get_ref().is_empty() {
            scope.problem(methods.span(), "match.methods", "without a method nothing matches");
        }
        self::methods("match.methods", methods, scope)
    });
    let path = match raw.path {
        None => PathPattern::parse("/").ok(),
        path => scope.read("match.path", path, |path| PathPattern::parse(&path)),
    };
    Some(Matcher { host, path: path?, methods })
}

/// Nothing if one of the methods is bad.
fn methods(key: &str, raw: Spanned<Vec<Spanned<String>>>, scope: &mut Scope<'_, '_>) -> Option<Vec<Method>> {
    scope.each(key, raw, |name| method(&name))
}

fn method(name: &str) -> Result<Method, String> {
    match Method::from_bytes(name.as_bytes()) {
        Ok(Method::CONNECT) => Err("CONNECT has no path and is never routed".to_owned()),
        Ok(_) if name.bytes().any(|byte| byte.is_ascii_lowercase()) => {
            Err(format!("{name:?} is not in upper case, and methods have case"))
        }
        Ok(method) => Ok(method),
        Err(_) => Err(format!("{name:?} is not a method")),
    }
}

fn resource(
    raw: Spanned<RawResource>,
    pattern: &PathPattern,
    scope: &mut Scope<'_, '_>,
) -> Option<ResourceRule> {
    let span = raw.span();
    match raw.into_inner() {
        RawResource::Template(template) => {
            let template = Some(Spanned::new(span, template));
            scope.read("resource", template, |template| ResourceRule::parse(&template, pattern))
        }
        RawResource::Client(RawClient { client, default }) => {
            scope.require("resource.client", &span, client, |client| {
                if client { Ok(()) } else { Err("false: leave the table out instead") }
            });
            let default = scope.read("resource.default", default, |name| Resource::parse(&name));
            Some(ResourceRule::Client { default })
        }
    }
}
