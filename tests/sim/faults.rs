//! Trouble, and what operators do: one after the other, as the plan has it.

use std::time::Duration;

use highgate::replica::Input;

use super::clock::{Nanos, nanos};
use super::etcd::{Reply, Txn};
use super::host::Command;
use super::plan::{Fault, Network};
use super::trace::{letter, short};
use super::wire::{Party, Purpose};
use super::world::{Event, World};

impl World {
    pub(crate) fn fault(&mut self) {
        if self.quiet_since.is_some() {
            return;
        }
        let next = self.dice.around(self.plan.fault_every);
        self.set_after(next, Event::Fault);
        let faults = std::mem::take(&mut self.plan.faults);
        let fault = self.dice.pick(&faults);
        self.plan.faults = faults;
        let host = self.dice.index(self.hosts.len());
        let length = self.spell();
        self.tally.fault(fault);
        match fault {
            Fault::Pause => self.pause(host, length),
            Fault::Stall => self.stall(host, length),
            Fault::Crash => self.crash(host),
            Fault::Stop => self.stop(host),
            Fault::Unplug => {
                self.note(|| format!("{} and etcd do not reach each other", letter(host)));
                self.hosts[host].unplugged_until = self.now + length;
            }
            Fault::Deafen => self.deafen(host, length),
            Fault::PauseEtcd => {
                self.note(|| "etcd is paused".to_owned());
                self.etcd.paused_until = self.now + length;
            }
            Fault::ElectEtcd => self.elect_etcd(),
            Fault::PauseElector => self.pause_elector(length),
            Fault::CrashElector => self.crash_elector(),
            Fault::UnplugElector => self.unplug_elector(length),
            Fault::Compact => self.etcd.compact(),
            Fault::BumpEra => self.call(host, Purpose::BumpRead, Txn::ReadEra),
            Fault::Restore => self.restore(),
            Fault::Retire => self.retire(host),
            Fault::Freeze => self.freeze(host, length),
            Fault::DeleteByHand => self.delete_by_hand(),
            Fault::Promise => self.promise_more(host),
            Fault::Rename => self.rename_next(),
        }
    }

    /// How long trouble lasts: shorter than anybody notices, about as long as the validity, or far beyond.
    pub(crate) fn spell(&mut self) -> Nanos {
        let validity = nanos(self.plan.timing.validity);
        match self.dice.below(8) {
            0..=1 => self.dice.below(validity / 8),
            2..=3 => self.dice.below(validity),
            4..=5 => self.dice.between(validity * 9 / 10, validity * 5 / 4),
            6 => self.dice.between(validity, 3 * validity),
            _ => self.dice.between(2 * validity, 5 * validity + nanos(self.plan.timing.lock_delay)),
        }
    }

    fn stop(&mut self, host: usize) {
        let limit = nanos(self.plan.timing.lock_delay) + nanos(self.plan.timing.drain_timeout);
        let limit = self.now + self.dice.below(2 * limit + 1);
        let Some(process) = self.hosts[host].process.as_mut().filter(|process| process.stopping.is_none())
        else {
            return;
        };
        process.stopping = Some(limit);
        let process = process.number;
        self.note(|| format!("{} is told to stop", letter(host)));
        self.set(self.now, Event::StopCheck { host, process });
    }

    fn deafen(&mut self, host: usize, length: Nanos) {
        let until = self.now + length;
        self.note(|| format!("{}'s watch says nothing for a while", letter(host)));
        for stream in self.streams.values_mut().filter(|stream| stream.party == Party::Gateway(host)) {
            stream.deaf_until = until;
        }
    }

    pub(crate) fn heard_era_to_bump(&mut self, host: usize, reply: Option<Reply>) {
        let Some(Reply::Era(Some(from))) = reply else { return };
        let Some(process) = &self.hosts[host].process else { return };
        let to = from.max(process.memory.era) + 1;
        let tombstone = self.reader(host).era_tombstone();
        self.call(host, Purpose::Bump, Txn::BeginEra { from: Some(from), to, tombstone });
    }

    pub(crate) fn backup(&mut self) {
        if self.quiet_since.is_none() {
            self.backups.push(self.etcd.state.clone());
            let next = self.dice.around(self.plan.chaos / 6);
            self.set_after(next, Event::Backup);
        }
    }

    /// A backup takes the place of etcd, and the first that is written to it is the next era: above every era that
    /// there ever was. (An operator whose replica has not seen the last one begins that number once more.)
    fn restore(&mut self) {
        if self.backups.is_empty() {
            return;
        }
        let backup = self.backups[self.dice.index(self.backups.len())].clone();
        let Some(from) = backup.era else { return };
        let cluster = if self.dice.chance(500) { self.etcd.cluster } else { self.number() };
        self.note(|| format!("etcd is restored to revision {}", backup.revision));
        self.tally.restores += 1;
        self.judge.restored(&backup, self.now);
        self.wrong_everybody();
        self.etcd.restore(backup, cluster, self.now);
        self.count_leases();
        let to = self.judge.highest_era + 1;
        let tombstone = self.reader(0).era_tombstone();
        self.perform(Txn::BeginEra { from: Some(from), to, tombstone });
        for host in 0..self.hosts.len() {
            match self.dice.below(4) {
                0 => self.crash(host),
                1 | 2 => self.hosts[host].unplugged_until = self.now + self.spell(),
                _ => {}
            }
        }
    }

    fn retire(&mut self, host: usize) {
        let Some(session) = self.hosts[host].session() else { return };
        let members: Vec<_> =
            session.replica.members().iter().map(|(id, member)| (*id, member.clone())).collect();
        let (member, known) = &members[self.dice.index(members.len())];
        let (member, tombstone) = (*member, self.reader(host).tombstone_for(known));
        self.note(|| format!("an operator retires {} through {}", short(member), letter(host)));
        self.send(host, Txn::Retire { member, tombstone });
    }

    fn freeze(&mut self, host: usize, length: Nanos) {
        let resource = self.dice.index(self.resources.len());
        let name = self.called(resource);
        self.command(host, Command::Input(Input::Freeze { resource: name, frozen: true }));
        self.poll(host);
        self.set_after(length, Event::Thaw { resource });
    }

    /// An operator who thaws also says that unknown outcomes are settled, and is right about it.
    pub(crate) fn thaw(&mut self, resource: usize) {
        if self.judge.has_unknowns(resource, self.now) {
            let again = nanos(self.plan.timing.validity) / 4;
            return self.set_after(again, Event::Thaw { resource });
        }
        let host = self.dice.index(self.hosts.len());
        for resource in self.marked_names(resource) {
            self.command(host, Command::Input(Input::Freeze { resource, frozen: false }));
        }
        self.poll(host);
    }

    /// Only what is certainly dead: nothing is promised to who deletes the living.
    fn delete_by_hand(&mut self) {
        let certain = nanos(self.plan.timing.wait()) + 4 * nanos(self.plan.timing.lock_delay);
        let dead = self
            .etcd
            .state
            .members
            .keys()
            .copied()
            .find(|member| self.judge.dead.get(member).is_some_and(|died| self.now > died + certain));
        if let Some(member) = dead {
            self.note(|| format!("somebody deletes {} by hand", short(member)));
            self.tally.deletions += 1;
            self.perform(Txn::DeleteByHand { member });
        }
    }

    /// A route with a longer lock-delay is loaded.
    fn promise_more(&mut self, host: usize) {
        if self.plan.uneven {
            let usual = self.plan.timing.lock_delay.max(Duration::from_millis(100));
            let longer = usual * u32::try_from(self.dice.between(1, 3)).unwrap_or(1);
            self.command(host, Command::Promise(longer));
            self.poll(host);
        }
    }

    /// Trouble ends. What is on its way to etcd stays so.
    pub(crate) fn quiet(&mut self) {
        self.note(|| "trouble ends".to_owned());
        self.quiet_since = Some(self.now);
        self.network = Network::QUIET;
        self.etcd.paused_until = 0;
        for stream in self.streams.values_mut() {
            stream.deaf_until = 0;
        }
        self.quiet_electors();
        for host in 0..self.hosts.len() {
            self.hosts[host].unplugged_until = 0;
            if self.hosts[host].stalled_until.is_some() {
                self.hosts[host].stalled_until = Some(self.now);
                self.unstall(host);
            }
            if self.hosts[host].is_paused() {
                self.hosts[host].paused_until = Some(self.now);
                self.resume(host);
            }
            self.set(self.now, Event::Start { host });
        }
        // A counted revision that a watch has lost is noticed with the next one, and there may be none by itself.
        if let Some(era) = self.etcd.state.era {
            self.perform(Txn::Propose { era, proposals: Vec::new() });
        }
        self.set(self.now, Event::Check);
    }
}
