//! What happens to processes: pauses, stalls, ends, and the warden that watches the validity.

use highgate::replica::{Incarnation, Time};

use super::clock::{MILLI, Nanos, nanos};
use super::control::Control;
use super::host::{Command, Host, Stage};
use super::trace::{format_millis, letter};
use super::world::{Event, World};

impl World {
    pub(crate) fn pause(&mut self, host: usize, length: Nanos) {
        if self.hosts[host].process.is_none() || self.hosts[host].is_paused() {
            return;
        }
        self.note(|| format!("{} is paused for {} ms", letter(host), format_millis(length)));
        self.hosts[host].paused_until = Some(self.now + length);
        self.set_after(length, Event::Resume { host });
    }

    /// Its threads go on with whatever they were about to do, in any order.
    pub(crate) fn resume(&mut self, host: usize) {
        if self.hosts[host].paused_until.is_none_or(|until| until > self.now) {
            return;
        }
        self.note(|| format!("{} goes on", letter(host)));
        self.hosts[host].paused_until = None;
        let process = self.hosts[host].process_number();
        for event in std::mem::take(&mut self.hosts[host].deferred) {
            let delay = self.dice.below(2 * MILLI);
            self.set_after(delay, event);
        }
        let delay = self.dice.below(2 * MILLI);
        self.set_after(delay, Event::Poke { host, process });
    }

    pub(crate) fn stall(&mut self, host: usize, length: Nanos) {
        if !self.hosts[host].drives() {
            return;
        }
        self.note(|| format!("{}'s store is stalled for {} ms", letter(host), format_millis(length)));
        self.hosts[host].stalled_until = Some(self.now + length);
        self.set_after(length, Event::Unstall { host });
    }

    pub(crate) fn unstall(&mut self, host: usize) {
        if self.hosts[host].stalled_until.take_if(|until| *until <= self.now).is_some() {
            self.poll(host);
        }
    }

    /// Until when requests may pass has changed.
    pub(crate) fn validity_lasts(&mut self, host: usize) {
        let Host { process: Some(process), clock, .. } = &self.hosts[host] else { return };
        let Some(until) = process.until else { return };
        let (at, number) = (clock.when(until), process.number);
        let me = process.session().map(|session| (session.me, session.created));
        let allowed = nanos(process.timing.validity) / 1000 * 1005;
        self.set(at, Event::Lapse { host, process: number, until });
        let evicted = me.and_then(|me| self.judge.evicted.get(&me).copied());
        if let Some(evicted) = evicted.filter(|evicted| at > evicted + allowed) {
            self.suspect("I4", || {
                format!("{} is valid for {} ms after its eviction", letter(host), format_millis(at - evicted))
            });
        }
    }

    pub(crate) fn lapse(&mut self, host: usize, process: u64, until: Time) {
        let Some(living) = self.hosts[host].process.as_ref().filter(|living| living.number == process) else {
            return;
        };
        if living.until != Some(until) {
            return;
        }
        self.tally.lapses += 1;
        self.note(|| format!("{}'s validity ends", letter(host)));
        if !self.is(Control::FenceWithoutCut) || self.hosts[host].is_paused() {
            self.bound_all(host);
        }
        self.set(self.now, Event::Warden { host, process });
    }

    /// A thread of its own, whatever the driver does.
    pub(crate) fn warden(&mut self, host: usize, process: u64) {
        let shown = self.shown(host);
        let Some(living) = self.hosts[host].process.as_mut().filter(|living| living.number == process) else {
            return;
        };
        if living.until.is_none_or(|until| shown < until) || !living.fence() {
            return;
        }
        self.cut_all(host);
        self.command(host, Command::Expired);
        self.poke(host);
    }

    pub(crate) fn crash(&mut self, host: usize) {
        if self.hosts[host].process.is_some() {
            self.note(|| format!("{} crashes", letter(host)));
            self.tally.crashes += 1;
            self.end_process(host);
        }
    }

    /// Nothing of it is left but what is on its way.
    pub(crate) fn end_process(&mut self, host: usize) {
        self.orphan_all(host);
        let Some(process) = self.hosts[host].process.take() else { return };
        let mut over: Vec<Incarnation> = process.leavers.iter().map(|leaver| leaver.incarnation).collect();
        match &process.stage {
            Stage::Inside(session) => {
                over.push(session.me);
                self.streams.remove(&session.stream);
            }
            Stage::Outside { joining, .. } => over.extend(joining.as_ref().map(|joining| joining.me)),
        }
        for incarnation in over {
            self.judge.dead.insert(incarnation, self.now);
        }
        let machine = &mut self.hosts[host];
        machine.died_at = self.now;
        machine.paused_until = None;
        machine.stalled_until = None;
        machine.deferred.clear();
        let delay = self.spell();
        self.set_after(delay, Event::Start { host });
    }
}
