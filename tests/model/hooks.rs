//! Rules inside the machine are broken from outside: by changing what it hears and what it says.

use std::time::Duration;

use highgate::replica::{Applied, Revision, Timing};

use crate::control::Control;

/// The rule that is broken on purpose, if any.
pub(crate) type Broken = Option<Control>;

/// What a control has to remember of a gateway's session.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Hooks {
    /// The last number that etcd has given, and the last that the machine was told.
    real: u64,
    told: u64,
    /// The first number after a join is taken as it comes.
    learned: bool,
    /// Raises that found their gate shut already.
    pub(crate) inherited: Vec<Revision>,
}

impl Hooks {
    pub(crate) fn joined(control: Broken, seq: u64) -> Self {
        if !renumbers(control) {
            return Self::default();
        }
        let learned = control != Some(Control::JoinWithoutSeq);
        Self { real: seq, told: seq, learned, inherited: Vec::new() }
    }

    pub(crate) fn listed(&mut self, control: Broken, seq: u64) {
        if renumbers(control) {
            (self.real, self.told, self.learned) = (seq, seq, true);
        }
    }

    /// The number that the machine is to see.
    pub(crate) fn renumber(&mut self, control: Broken, applied: &mut Applied) {
        if !renumbers(control) {
            return;
        }
        let Some(real) = applied.seq else {
            if control == Some(Control::WatermarkByAnyEvent) {
                self.told += 1;
                applied.seq = Some(self.told);
            }
            return;
        };
        let first = control == Some(Control::JoinWithoutSeq) && !self.learned;
        self.learned = true;
        if real != self.real + 1 && !first && control != Some(Control::GapsIgnored) {
            applied.seq = Some(self.told + 2);
            return;
        }
        self.real = real;
        self.told += 1;
        applied.seq = Some(self.told);
    }

    /// Which raises the machine may list as draining.
    pub(crate) fn disown(&self, control: Broken, draining: &mut Vec<Revision>) {
        if control == Some(Control::DrainingOwnRaiseOnly) {
            draining.retain(|raise| !self.inherited.contains(raise));
        }
    }
}

fn renumbers(control: Broken) -> bool {
    matches!(control, Some(Control::WatermarkByAnyEvent | Control::GapsIgnored | Control::JoinWithoutSeq))
}

/// W + D, or what a control takes for it.
pub(crate) fn wait(control: Broken, timing: &Timing) -> Duration {
    match control {
        Some(Control::ShortWait) => timing.validity / 2 + timing.lock_delay,
        _ => timing.wait(),
    }
}

pub(crate) fn tombstone_wait(control: Broken, timing: &Timing) -> Duration {
    match control {
        Some(Control::TombstoneAgeIgnored) => Duration::ZERO,
        _ => wait(control, timing),
    }
}
