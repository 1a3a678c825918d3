//! The cap on per-resource series: the first so many resources get their own, the rest share `other`.
//!
//! Names come from clients, so without a cap they could fill the memory of the gateway and of Prometheus. A
//! place is never given up: a series that changed its meaning would be worse than none.

use std::collections::{HashMap, HashSet};

use foldhash::quality::RandomState;
use highgate_elector::Resource;
use metrics::{Counter, Label};
use parking_lot::RwLock;

use super::Registry;

/// The label of everything above the cap. A resource of this name never gets a place of its own.
pub(super) const OTHER: &str = "other";

/// Which resources have series of their own: the same for all metrics.
pub(super) struct Cap {
    limit: usize,
    named: RwLock<HashSet<Resource, RandomState>>,
}

impl Cap {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, named: RwLock::default() }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether the resource has series of its own, from now on if there is still a place.
    pub(super) fn admits(&self, resource: &Resource) -> bool {
        {
            let named = self.named.read();
            if named.contains(resource) {
                return true;
            }
            if named.len() >= self.limit || resource.as_str() == OTHER {
                return false;
            }
        }
        let mut named = self.named.write();
        // Another thread may have taken the last place, or this very one.
        named.contains(resource) || (named.len() < self.limit && named.insert(resource.clone()))
    }

    pub(super) fn resources(&self) -> Vec<Resource> {
        self.named.read().iter().cloned().collect()
    }
}

/// A counter per resource, within the cap.
pub(super) struct PerResource {
    name: &'static str,
    labels: Vec<Label>,
    own: RwLock<HashMap<Resource, Counter, RandomState>>,
    other: Counter,
}

impl PerResource {
    /// `labels` are those beside `resource`.
    pub(super) fn new(registry: &Registry, name: &'static str, labels: Vec<Label>) -> Self {
        let other = registry.counter(name, with_resource(&labels, OTHER));
        Self { name, labels, own: RwLock::default(), other }
    }

    /// The counter of this resource, or the one of all the others.
    pub(super) fn of(&self, registry: &Registry, resource: &Resource) -> Counter {
        if let Some(counter) = self.own.read().get(resource) {
            return counter.clone();
        }
        if !registry.cap.admits(resource) {
            return self.other.clone();
        }
        let counter = registry.counter(self.name, with_resource(&self.labels, resource.as_str()));
        self.own.write().entry(resource.clone()).or_insert(counter).clone()
    }
}

fn with_resource(labels: &[Label], resource: &str) -> Vec<Label> {
    labels.iter().cloned().chain([Label::new("resource", resource.to_owned())]).collect()
}
