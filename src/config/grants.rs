//! The tables `[[grants]]`: which identities may do what to which resources.
//!
//! Rights are independent: none of them contains another. Without any grant everything is allowed, and it is the
//! listeners' business who reaches them. With grants, whatever no grant allows is forbidden. `crate::grants` puts them
//! into force; [`Grants::allow`] is the only place that decides.

use std::fmt;
use std::sync::Arc;

use highgate_elector::Resource;
use toml::Spanned;

use super::error::Report;
use super::glob::{Glob, Order};
use super::raw::{RawGrant, Section};
use super::resource::ResourceRule;
use super::route::Route;
use super::scope::Scope;
use super::words::Right;
use crate::tls::Identity;

/// All grants, in file order. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct Grants(Arc<[Grant]>);

/// One `[[grants]]` table.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    pub who: Vec<Who>,
    pub may: Vec<Right>,
    pub resources: Vec<Glob>,
}

/// A pattern of identities, all of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    kind: &'static str,
    names: Glob,
}

/// How an identity of each kind starts, and how the name after that is made.
const KINDS: [(&str, Order); 4] =
    [("spiffe://", Order::Path), ("dns:", Order::Host), ("cn:", Order::Word), (BEARER, Order::Word)];

/// The kind of who shows a secret.
const BEARER: &str = "bearer:";

impl Grants {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Grant> {
        self.0.iter()
    }

    /// Whether this may be done to the resource by somebody with this identity. Who has none may do nothing.
    pub fn allow(&self, who: Option<&Identity>, right: Right, resource: &Resource) -> bool {
        self.of(who, right).any(|grant| grant.covers(resource))
    }

    /// The same for everything there is, and whatever there will be.
    pub fn allow_everywhere(&self, who: Option<&Identity>, right: Right) -> bool {
        self.of(who, right).any(|grant| grant.resources.iter().any(Glob::is_everything))
    }

    /// The same for any resource at all.
    pub fn allow_somewhere(&self, who: Option<&Identity>, right: Right) -> bool {
        self.of(who, right).next().is_some()
    }

    fn of<'g>(&'g self, who: Option<&'g Identity>, right: Right) -> impl Iterator<Item = &'g Grant> {
        self.0.iter().filter(move |grant| {
            grant.may.contains(&right)
                && who.is_some_and(|identity| grant.who.iter().any(|pattern| pattern.matches(identity)))
        })
    }
}

impl Default for Grants {
    /// None: everything is allowed.
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl Grant {
    fn covers(&self, resource: &Resource) -> bool {
        self.resources.iter().any(|names| names.matches(resource.as_str()))
    }

    /// Whether requests of the route can be about a resource of this grant.
    pub(super) fn concerns(&self, route: &Route) -> bool {
        match &route.resource {
            ResourceRule::Fixed(resource) => self.covers(resource),
            ResourceRule::Client { .. } => true,
            ResourceRule::Template(template) => {
                let named = template.glob(&route.matcher.path);
                self.resources.iter().any(|names| names.meets(&named))
            }
        }
    }
}

impl Who {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, order) = KINDS
            .into_iter()
            .find(|(kind, _)| text.starts_with(kind))
            .ok_or_else(|| format!("{text:?} does not say which kind of identity it is"))?;
        let name = &text[kind.len()..];
        let whole = match order {
            Order::Path => name.split('/').all(|segment| !segment.is_empty()),
            Order::Host => name.split('.').all(|label| !label.is_empty()),
            Order::Word => !name.is_empty(),
        };
        // Names of people have spaces; nothing else has.
        let odd = |letter: char| letter.is_control() || (letter == ' ' && kind != "cn:");
        if !whole || name.contains(odd) {
            return Err(format!("{text:?} is not an identity"));
        }
        // Host names have no case.
        let name = if order == Order::Host { name.to_ascii_lowercase() } else { name.to_owned() };
        Ok(Self { kind, names: Glob::new(&name, order) })
    }

    pub fn matches(&self, identity: &Identity) -> bool {
        let mut names = identity.names().filter_map(|name| name.strip_prefix(self.kind));
        names.any(|name| self.names.matches(name))
    }

    /// Whether it is about who shows a secret.
    pub(super) fn is_bearer(&self) -> bool {
        self.kind == BEARER
    }
}

/// Reads the tables. One with a problem is left out: the report keeps the config from being used.
pub(super) fn build(raw: Vec<Section<RawGrant>>, report: &mut Report<'_>) -> Grants {
    let grants = raw.into_iter().enumerate().filter_map(|(index, raw)| grant(index, raw, report));
    Grants(grants.collect())
}

fn grant(index: usize, raw: Section<RawGrant>, report: &mut Report<'_>) -> Option<Grant> {
    let span = raw.span.clone();
    let RawGrant { who, may, resources } = raw.into_table();
    let mut scope = Scope::new(report, format!("grants[{index}]"));
    let mut list = |name: &str, items: &Option<Spanned<Vec<Spanned<String>>>>| match items {
        None => scope.problem(span.clone(), name, "is missing"),
        Some(items) if items.get_ref().is_empty() => {
            scope.problem(items.span(), name, "an empty list grants nothing");
        }
        Some(_) => {}
    };
    list("who", &who);
    list("may", &may);
    list("resources", &resources);
    let who = scope.each("who", who?, |text| Who::parse(&text));
    let may = scope.each("may", may?, |word| word.parse().map_err(|_| format!("unknown value {word:?}")));
    let resources = scope.each("resources", resources?, |text| names(&text));
    Some(Grant { who: who?, may: may?, resources: resources? })
}

/// A pattern of resource names, in their canonical form. `{account}` is what it is in a route, one segment, and a last
/// `{*rest}` is everything that follows.
pub(super) fn names(text: &str) -> Result<Glob, String> {
    let not_one = |why: &dyn fmt::Display| format!("{text:?} is no pattern of resource names: {why}");
    if text.to_ascii_uppercase().contains(ESCAPED_STAR) {
        return Err(not_one(&"a star that is part of a name cannot be told from one that stands for others"));
    }
    let last = text.split('/').count() - 1;
    let mut segments = Vec::with_capacity(last + 1);
    for (at, segment) in text.split('/').enumerate() {
        let starred = with_stars(segment).ok_or_else(|| not_one(&"a `{` or `}` without its other half"))?;
        let is_rest = segment == "*" || segment.starts_with("{*");
        segments.push(match starred.as_str() {
            // To a glob a last star is everything that follows, and two are one segment.
            "*" if at == last && !is_rest => "**".to_owned(),
            _ => Resource::canonical(&starred).map_err(|error| not_one(&error))?.replace(ESCAPED_STAR, "*"),
        });
    }
    Ok(Glob::new(&segments.join("/"), Order::Path))
}

/// How a star is written in the canonical form of a name.
const ESCAPED_STAR: &str = "%2A";

/// The segment with `*` for every parameter.
fn with_stars(segment: &str) -> Option<String> {
    let mut stars = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some((before, after)) = rest.split_once('{') {
        let (_, after) = after.split_once('}')?;
        stars.push_str(before);
        stars.push('*');
        rest = after;
    }
    stars.push_str(rest);
    (!stars.contains('}')).then_some(stars)
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind, self.names)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |words: Vec<String>| words.join(", ");
        let who = list(self.who.iter().map(Who::to_string).collect());
        let may = list(self.may.iter().map(Right::to_string).collect());
        write!(f, "{who} may {may}: {}", list(self.resources.iter().map(Glob::to_string).collect()))
    }
}

#[cfg(test)]
mod tests;
