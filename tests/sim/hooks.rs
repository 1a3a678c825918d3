//! Rules inside the machine are broken from outside: by changing what it hears and what it says.
//!
//! The driver calls these around every step. Without a control nothing is changed.

use std::collections::BTreeSet;
use std::time::Duration;

use highgate::replica::{Applied, Change, Revision, Snapshot, State, Timing};

use super::control::Control;

/// What a control has to remember within a session.
#[derive(Default)]
pub(crate) struct Hooks {
    /// The last number that etcd has given, and the last that the machine was told.
    real: u64,
    told: u64,
    /// The first number after a join is taken as it comes.
    learned: bool,
    /// Raises that found their gate shut already.
    pub(crate) inherited: BTreeSet<Revision>,
}

impl Hooks {
    pub(crate) fn listed(&mut self, snapshot: &Snapshot, learned: bool) {
        self.real = snapshot.seq;
        self.told = snapshot.seq;
        self.learned = learned;
    }

    /// The number that the machine is to see.
    pub(crate) fn renumber(&mut self, control: Option<Control>, applied: &mut Applied) {
        let counts_all = match control {
            Some(Control::WatermarkByAnyEvent) => true,
            Some(Control::GapIgnored | Control::JoinWithoutSeq) => false,
            _ => return,
        };
        let Some(real) = applied.seq else {
            if counts_all {
                self.told += 1;
                applied.seq = Some(self.told);
            }
            return;
        };
        let first = control == Some(Control::JoinWithoutSeq) && !self.learned;
        self.learned = true;
        if real != self.real + 1 && !first && control != Some(Control::GapIgnored) {
            applied.seq = Some(self.told + 2);
            return;
        }
        self.real = real;
        self.told += 1;
        applied.seq = Some(self.told);
    }

    /// Which raises the machine may list as draining.
    pub(crate) fn disown(&self, control: Option<Control>, draining: &mut Vec<Revision>) {
        if control == Some(Control::DrainingOwnRaiseOnly) {
            draining.retain(|raise| !self.inherited.contains(raise));
        }
    }
}

/// Raises among the changes of a revision.
pub(crate) fn raises(
    applied: &Applied,
) -> impl Iterator<Item = (&highgate_elector::Resource, u64, Revision)> {
    applied.changes.iter().filter_map(|change| match change {
        Change::Record(resource, record) if record.state == State::Raised => {
            Some((resource, record.token, record.modified))
        }
        _ => None,
    })
}

/// W + D, or what a control takes for it.
pub(crate) fn wait(control: Option<Control>, timing: &Timing) -> Duration {
    match control {
        Some(Control::ShortWait) => timing.validity / 2 + timing.lock_delay,
        _ => timing.wait(),
    }
}
