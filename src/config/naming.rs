//! How a config names resources: the part of the routes that decides under which mark a request is checked.
//!
//! A store keeps the [`Naming`] in force beside the marks, so that a config which names the same requests
//! differently is noticed, at a reload as well as at a start. [`mod@super::renames`] compares two of them.

use std::fmt;
use std::sync::Arc;

use highgate_elector::Resource;
use http::Method;
use serde_json::{Value, json};

use super::path::CanonicalPath;
use super::pattern::{Captures, HostPattern, PathPattern};
use super::resource::ResourceRule;
use super::route::{FencedMethods, Matcher, Routes};

/// Names of resources by request: the first entry that matches decides. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Naming(Arc<[Entry]>);

/// What one route says about the names of its requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub matcher: Matcher,
    pub fenced: FencedMethods,
    /// Whether it lets requests ask for another protocol, which are fenced whatever their method.
    pub upgrades: bool,
    pub resource: ResourceRule,
}

impl Naming {
    pub fn of(routes: &Routes) -> Self {
        let entry = |route: &Arc<super::Route>| Entry {
            matcher: route.matcher.clone(),
            fenced: route.fenced.clone(),
            upgrades: !route.upgrades.is_empty(),
            resource: route.resource.clone(),
        };
        Self(routes.iter().map(entry).collect())
    }

    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The entry of a request (by its method, and whether it asks for another protocol) and what its pattern captured: the
    /// first by which it is fenced. One above it by which it is
    /// not may have come later, and a name too many does no harm.
    pub fn find<'p>(
        &self,
        (method, upgrades): (&Method, bool),
        host: &str,
        path: &CanonicalPath<'p>,
    ) -> Option<(&ResourceRule, Captures<'p>)> {
        let fences = |entry: &&Entry| {
            (entry.fenced.contains(method) || upgrades && entry.upgrades)
                && entry.matcher.matches(method, host, path)
        };
        self.0.iter().find(fences).map(|entry| (&entry.resource, entry.matcher.path.captures(path)))
    }

    /// This naming, and for requests that it has no entry for, what they were called before. A route that is
    /// taken away and put back under another name is a renaming as well.
    pub fn remembering(&self, before: &Self) -> Self {
        let forgotten = before.0.iter().filter(|old| !self.0.iter().any(|new| new.replaces(old)));
        Self(self.0.iter().chain(forgotten).cloned().collect())
    }

    /// Whether a gateway that has these routes names every request as this naming does.
    pub fn begins_with(&self, routes: &Self) -> bool {
        self.0.starts_with(&routes.0)
    }

    pub fn to_json(&self) -> Value {
        self.0.iter().map(Entry::to_json).collect()
    }

    /// Nothing if the value was not made by [`Naming::to_json`].
    pub fn from_json(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(Entry::from_json).collect::<Option<Vec<_>>>().map(|all| Self(all.into()))
    }
}

impl Entry {
    /// Whether whatever is fenced by `old` is fenced by this one.
    fn replaces(&self, old: &Self) -> bool {
        self.matcher.covers_exactly(&old.matcher) && self.fences_all_of(old)
    }

    /// Whether a request that both match is fenced by this one if it is by `other`.
    pub(super) fn fences_all_of(&self, other: &Self) -> bool {
        self.fenced.covers(&other.fenced) && (self.upgrades || !other.upgrades)
    }

    /// Whether a request can be fenced by both, if it has one of these methods (none: any).
    pub(super) fn fences_some_of(&self, other: &Self, methods: Option<&[Method]>) -> bool {
        self.fenced.meets(&other.fenced, methods) || self.upgrades && other.upgrades
    }

    fn to_json(&self) -> Value {
        let names = |methods: &[Method]| -> Value { methods.iter().map(Method::as_str).collect() };
        let mut entry = json!({"path": self.matcher.path.to_string()});
        if let Some(host) = &self.matcher.host {
            entry["host"] = host.to_string().into();
        }
        if let Some(methods) = &self.matcher.methods {
            entry["methods"] = names(methods);
        }
        if let FencedMethods::Only(methods) = &self.fenced {
            entry["fenced"] = names(methods);
        }
        if self.upgrades {
            entry["upgrades"] = true.into();
        }
        match &self.resource {
            ResourceRule::Client { default } => {
                entry["named_by_client"] = true.into();
                if let Some(default) = default {
                    entry["resource"] = default.as_str().into();
                }
            }
            named => entry["resource"] = named.to_string().into(),
        }
        entry
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).map(|text| text.as_str());
        let methods = |key: &str| {
            let all = value.get(key)?.as_array();
            let method = |name: &Value| Method::from_bytes(name.as_str()?.as_bytes()).ok();
            Some(all.and_then(|all| all.iter().map(method).collect::<Option<Vec<_>>>()))
        };
        let path = PathPattern::parse(text("path")??).ok()?;
        let resource = match (value.get("named_by_client"), text("resource")) {
            (Some(_), None) => ResourceRule::Client { default: None },
            (Some(_), Some(default)) => {
                ResourceRule::Client { default: Some(Resource::parse(default?).ok()?) }
            }
            (None, source) => ResourceRule::parse(source??, &path).ok()?,
        };
        let host = match text("host") {
            None => None,
            Some(host) => Some(HostPattern::parse(host?)?),
        };
        let of_matcher = match methods("methods") {
            None => None,
            Some(methods) => Some(methods?),
        };
        let fenced = match methods("fenced") {
            None => FencedMethods::AllButSafe,
            Some(methods) => FencedMethods::Only(methods?),
        };
        let upgrades = value.get("upgrades").is_some();
        Some(Self { matcher: Matcher { host, path, methods: of_matcher }, fenced, upgrades, resource })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.matcher, self.resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};
    use std::path::Path;

    fn naming(toml: &str) -> Naming {
        Naming::of(&Config::parse(toml, Path::new("f.toml"), &Overrides::default()).unwrap().routes)
    }

    #[test]
    fn every_naming_is_read_back_as_it_was_written() {
        let naming = naming(
            r#"
            [[routes]]
            name = "a"
            upstream = "http://127.0.0.1:1"
            match = { host = "*.internal", path = "/accounts/{account}/{*rest}", methods = ["POST", "GET"] }
            fenced_methods = ["POST"]
            resource = "ledger/{account}/{host}"
            [[routes]]
            name = "b"
            upstream = "http://127.0.0.1:1"
            match = { path = "/b" }
            upgrades = ["websocket"]
            [[routes]]
            name = "c"
            upstream = "http://127.0.0.1:1"
            resource = { client = true, default = "d" }
            "#,
        );
        assert_eq!(Naming::from_json(&naming.to_json()), Some(naming.clone()));
        for broken in
            [json!({}), json!([{}]), json!([{"path": "x", "resource": "a"}]), json!([{"path": "/"}])]
        {
            assert_eq!(Naming::from_json(&broken), None, "{broken}");
        }
    }
}
