//! Operators' orders that were refused to whoever gave them, in the audit trail: what was wanted, from where, and as whom.
//!
//! What must stay true: however often somebody tries, the log gets no more than a few lines in a period.

use std::borrow::Cow;
use std::net::IpAddr;

use parking_lot::Mutex;

use super::access::Shown;
use super::answer::Problem;
use crate::fold::{Allowance, Fold, Period, Told};
use crate::metrics::Action;
use crate::shorten::shorten;
use crate::tls::Identity;

/// Operators are few, and so are lines about those who are none.
const ALLOWANCE: Allowance = Allowance { steady: 1024, burst: 4 * 1024 };
/// The part of a line that nobody can lengthen.
const FIXED: usize = 320;
/// What was not taken for an operator's can have named anything.
const MAX_NAME: usize = 256;

/// Refused orders that were not told yet.
pub(super) struct Refusals(Mutex<Fold<Refused, Refused>>);

/// Refused orders are alike if all of this is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Refused {
    action: Action,
    resource: Option<String>,
    client: IpAddr,
    identity: Option<Identity>,
    status: u16,
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Fold::new(ALLOWANCE)))
    }

    /// Notes an order that somebody had no right to give. What was wrong with the order itself is not noted.
    pub(super) fn note(&self, shown: &Shown, action: Action, problem: &Problem) {
        if !problem.is_about_rights() {
            return;
        }
        let (resource, status) =
            (problem.resource().map(|name| shorten(name, MAX_NAME).into_owned()), problem.status().as_u16());
        let (client, identity) = (shown.address.ip(), shown.identity());
        let refused = Refused { action, resource, client, identity, status };
        let told = self.0.lock().note(refused.clone(), refused.size(), || refused.clone());
        if told == Told::Now {
            refused.write(1);
        }
    }

    /// Tells what was refused again since the last time.
    pub(super) fn tell_repeated(&self) {
        let Period { repeated, beyond } = self.0.lock().end_period();
        for (refused, count) in repeated {
            refused.write(count);
        }
        if beyond > 0 {
            tracing::warn!(count = beyond, "more operators' orders were refused than are told apart");
        }
    }
}

impl Refused {
    /// How long a line of it is at the most.
    fn size(&self) -> usize {
        // Escaped, a character of a name may take several bytes.
        let name = |text: &str| text.escape_debug().map(char::len_utf8).sum::<usize>();
        FIXED + self.resource.as_deref().map_or(0, name) + name(&self.identity())
    }

    fn identity(&self) -> Cow<'_, str> {
        self.identity
            .as_ref()
            .map_or(Cow::Borrowed("nobody"), |identity| shorten(identity.as_str(), MAX_NAME))
    }

    fn write(&self, count: u64) {
        let Self { action, resource, client, status, .. } = self;
        let identity = &*self.identity();
        tracing::warn!(
            target: "audit", event = "order-refused", action = action.label(), resource, %client, identity, status, count,
            "an operator's order was refused to who gave it"
        );
    }
}
