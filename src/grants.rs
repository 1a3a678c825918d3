//! Who may do what, as it is in force now: [`Access`], shared by the gate and the ports of operators and jobs.
//!
//! A reload replaces grants and secrets together and as a whole ([`InForce::set`]). Whoever has waited since it was
//! checked asks again before it goes on: [`Access::generation`] says whether anything has changed. What must stay true:
//! where there are grants, nobody without an identity may do anything, and a right comes from a grant or from the
//! secret of a port alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use highgate_elector::Resource;

use crate::config::{Grants, Right, Secrets};
use crate::tls::Identity;

/// Grants and secrets of one moment.
#[derive(Debug, Default)]
pub struct Access {
    pub grants: Grants,
    pub secrets: Secrets,
    generation: u64,
}

/// The access of now.
#[derive(Debug, Default)]
pub struct InForce {
    current: ArcSwap<Access>,
    generations: AtomicU64,
}

impl InForce {
    pub fn new(grants: Grants, secrets: Secrets) -> Self {
        let in_force = Self::default();
        in_force.set(grants, secrets);
        in_force
    }

    /// What is asked from now on is judged by these.
    pub fn set(&self, grants: Grants, secrets: Secrets) {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        self.current.store(Arc::new(Access { grants, secrets, generation }));
    }

    pub fn load(&self) -> Guard<Arc<Access>> {
        self.current.load()
    }
}

impl Access {
    /// Whether everything is allowed to everybody, because nothing was granted to anybody.
    pub fn is_open(&self) -> bool {
        self.grants.is_empty()
    }

    /// Another number whenever grants or secrets were replaced.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether this may be done to the resource by somebody with this identity, or with none.
    pub fn allows(&self, who: Option<&Identity>, right: Right, resource: &Resource) -> bool {
        self.is_open() || self.grants.allow(who, right, resource)
    }
}
