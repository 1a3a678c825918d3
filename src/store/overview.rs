//! The replicas as operators see them: who serves, how far each has come, and what a raise still waits for.
//!
//! A store's driver publishes an [`Overview`] when something in it changes; the admin port shows the latest.
//! It is for people: nothing decides by it.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::replica::{Incarnation, Revision};

/// All replicas that share the marks.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// `embedded` or `etcd`.
    pub store: &'static str,
    /// Where the marks are.
    pub location: String,
    pub era: u64,
    /// Whether this replica passes requests; if not, why.
    pub valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fenced_because: Option<String>,
    /// This replica's own incarnation; none while it is not a member.
    #[serde(serialize_with = "maybe_incarnation")]
    pub me: Option<Incarnation>,
    /// The last change that this replica has applied.
    pub watermark: Revision,
    pub replicas: Vec<ReplicaView>,
    pub tombstones: Vec<TombstoneView>,
    /// Raises that are not sealed yet, the oldest first and no more than a hundred.
    pub raises: Vec<RaiseView>,
    /// How many raises are not sealed yet.
    pub raising: usize,
    /// What is wrong with the store, for an operator to mend before it stops everything.
    pub warnings: Vec<String>,
}

/// A replica that takes part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicaView {
    #[serde(serialize_with = "incarnation")]
    pub id: Incarnation,
    /// What it calls itself.
    pub name: String,
    pub me: bool,
    /// The revision it joined at.
    pub created: Revision,
    pub watermark: Revision,
    /// How many changes it is behind the replica that shows this.
    pub lag: u64,
    /// Raises for which it still has requests of lower tokens under way.
    pub draining: Vec<Revision>,
    #[serde(serialize_with = "seconds", rename = "renewed_seconds_ago")]
    pub renewed: Duration,
}

/// A replica that was evicted, but may believe otherwise for a while.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TombstoneView {
    pub id: String,
    #[serde(serialize_with = "seconds", rename = "seconds_left")]
    pub left: Duration,
}

/// A mark that is raised and not open yet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RaiseView {
    pub resource: String,
    pub mark: u64,
    pub revision: Revision,
    /// The name of the replica that is first to seal it.
    pub sealer: String,
    /// What it waits for: names of replicas and tombstones.
    pub waits_for: Vec<String>,
}

impl Overview {
    /// A store with this process alone.
    pub(crate) fn alone(location: String, me: Incarnation, created: Revision) -> Self {
        let replica = ReplicaView {
            id: me,
            name: "this process".to_owned(),
            me: true,
            created,
            watermark: created,
            lag: 0,
            draining: Vec::new(),
            renewed: Duration::ZERO,
        };
        Self {
            store: "embedded",
            location,
            era: 0,
            valid: true,
            fenced_because: None,
            me: Some(me),
            watermark: created,
            replicas: vec![replica],
            tombstones: Vec::new(),
            raises: Vec::new(),
            raising: 0,
            warnings: Vec::new(),
        }
    }
}

/// How an incarnation is written, in etcd and for people.
pub fn incarnation_text(id: Incarnation) -> String {
    format!("{id:032x}")
}

fn incarnation<S: Serializer>(id: &Incarnation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&incarnation_text(*id))
}

fn maybe_incarnation<S: Serializer>(id: &Option<Incarnation>, serializer: S) -> Result<S::Ok, S::Error> {
    id.map(incarnation_text).serialize(serializer)
}

fn seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}
