//! Operators who give resources other names: gateway after gateway gets another config, one change at a time.

use highgate::config::Naming;
use highgate_elector::Resource;

use super::clock::nanos;
use super::host::{Host, Process};
use super::naming::name_of;
use super::trace::letter;
use super::world::{Event, World};

impl World {
    /// The next gateway gets the config that is being rolled out; after the last one there is another.
    pub(crate) fn rename_next(&mut self) {
        let Some((_, names)) = self.etcd.state.names.clone() else { return };
        if let Some(next) = names.next.as_ref().and_then(|next| self.config_of(next)) {
            // Nothing else can be rolled out now. After a restore it may be another change than the last.
            self.wanted_config = next;
        } else if self.hosts.iter().all(|host| host.file == self.wanted_config) {
            let step = 1 + self.dice.index(self.namings.len() - 1);
            self.wanted_config = (self.wanted_config + step) % self.namings.len();
        }
        let late: Vec<usize> =
            (0..self.hosts.len()).filter(|host| self.hosts[*host].file != self.wanted_config).collect();
        match self.dice.below(10) {
            // All at once, or somebody takes it back on one.
            0..=3 => late.into_iter().for_each(|host| self.write_file(host, self.wanted_config)),
            4 => {
                let host = self.dice.index(self.hosts.len());
                if let Some(current) = self.config_of(&names.current) {
                    self.write_file(host, current);
                }
            }
            _ if late.is_empty() => {}
            _ => {
                let host = late[self.dice.index(late.len())];
                self.write_file(host, self.wanted_config);
            }
        }
    }

    /// After the trouble the change that is under way is brought to its end, and all have the config in force.
    pub(crate) fn settle_names(&mut self) {
        let Some((_, names)) = self.etcd.state.names.clone() else { return };
        let Some(config) = self.config_of(names.next.as_ref().unwrap_or(&names.current)) else { return };
        for host in 0..self.hosts.len() {
            if self.hosts[host].file != config {
                self.write_file(host, config);
            }
            // One that is outside takes no other config while it runs: its store cannot agree with the others.
            let is_stuck = |process: &Process| process.session().is_none() && process.config != config;
            if self.hosts[host].process.as_ref().is_some_and(is_stuck) {
                self.crash(host);
            }
        }
    }

    /// Whether all gateways have one config, and nothing is checked under two names any more.
    pub(crate) fn names_are_settled(&self) -> bool {
        let under_way = self.etcd.state.names.as_ref().is_none_or(|(_, names)| names.next.is_some());
        let follows = |host: &Host| {
            host.process.as_ref().is_some_and(|process| process.tables.own == self.namings[host.file])
        };
        !under_way && self.hosts.iter().all(follows)
    }

    fn write_file(&mut self, host: usize, config: usize) {
        self.note(|| format!("{} gets the file of config {config}", letter(host)));
        self.hosts[host].file = config;
        let process = self.hosts[host].process_number();
        let delay = self.dice.below(nanos(self.plan.timing.validity) / 20);
        self.set_after(delay, Event::Reload { host, process });
    }

    fn config_of(&self, naming: &Naming) -> Option<usize> {
        self.namings.iter().position(|known| naming.begins_with(known))
    }

    /// What a resource is called by the config in force, as far as etcd knows.
    pub(crate) fn called(&self, resource: usize) -> Resource {
        match &self.etcd.state.names {
            Some((_, names)) => name_of(&names.current, resource),
            None => self.resources[resource].clone(),
        }
    }

    /// Every name of a resource that has a mark.
    pub(crate) fn marked_names(&self, resource: usize) -> Vec<Resource> {
        let mut names: Vec<_> = self.namings.iter().map(|naming| name_of(naming, resource)).collect();
        names.dedup();
        names.retain(|name| self.etcd.state.fences.contains_key(name));
        names
    }

    /// The resource that a name means.
    pub(crate) fn meant_by(&self, name: &Resource) -> Option<usize> {
        let means = |resource: &usize| self.namings.iter().any(|naming| name_of(naming, *resource) == *name);
        (0..self.resources.len()).find(means)
    }
}
