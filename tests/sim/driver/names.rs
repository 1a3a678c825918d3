//! The names of resources in etcd: `src/store/etcd/names.rs`, `agree_on_names` in `load.rs`, and what the gateway does
//! with a config that was changed.

use std::rc::Rc;

use highgate::names::Names;
use highgate::replica::{Input, Revision};

use super::super::clock::{MILLI, Nanos, nanos};
use super::super::control::Control;
use super::super::etcd::{Reply, Txn};
use super::super::host::{Command, Stage};
use super::super::trace::letter;
use super::super::wire::Purpose;
use super::super::world::{Event, World};
use super::answers::Written;

const NAMES_PERIOD: Nanos = 100 * MILLI;

impl World {
    /// Before a join: the own names have to be in force, or to come.
    pub(super) fn agree_on_names(&mut self, host: usize, join: u64, era: u64) {
        if let Some(process) = &mut self.hosts[host].process
            && let Stage::Outside { joining: Some(joining), .. } = &mut process.stage
        {
            joining.era = era;
        }
        if self.is(Control::LoadBeforeRegister) {
            self.load_early(host);
        }
        self.call(host, Purpose::JoinNames { join }, Txn::ReadNames);
    }

    pub(super) fn names_read(&mut self, host: usize, join: u64, reply: Option<Reply>) {
        let Some(joining) = self.joining(host, join) else { return };
        let Some(Reply::Names(there)) = reply else { return self.join_failed(host, join, Written::No) };
        let Some(process) = &self.hosts[host].process else { return };
        let own = &self.namings[process.config];
        let (seen, planned) = match there {
            None => (0, Ok(Some(Names::first(own)))),
            // Only a start changes the names in force.
            Some((seen, _)) if process.has_served => (seen, Ok(None)),
            Some((seen, names)) => (seen, names.plan(own)),
        };
        match planned {
            Err(_) => {
                self.tally.names_refused += 1;
                self.join_failed(host, join, Written::No);
            }
            Ok(None) => self.send_join(host, join),
            Ok(Some(names)) => {
                let txn = Txn::PutNames { era: joining.era, seen, names: Rc::new(names) };
                self.call(host, Purpose::JoinPutNames { join }, txn);
            }
        }
    }

    pub(super) fn names_put(&mut self, host: usize, join: u64, reply: Option<Reply>) {
        match reply {
            Some(Reply::Named(true)) => self.send_join(host, join),
            _ => self.join_failed(host, join, Written::No),
        }
    }

    /// The config file is read again, as often as it takes.
    pub(crate) fn reload(&mut self, host: usize, process: u64) {
        let file = self.hosts[host].file;
        let Some(living) = self.hosts[host].process.as_mut().filter(|living| living.number == process) else {
            return;
        };
        if living.tables.own == self.namings[file] {
            return;
        }
        self.command(host, Command::Rename(file));
        self.poll(host);
        let again = nanos(self.plan.timing.validity) / 4;
        self.set_after(again, Event::Reload { host, process });
    }

    /// The routes are about to be replaced by some that name resources like this.
    pub(super) fn rename(&mut self, host: usize, config: usize) {
        let own = self.namings[config].clone();
        let Some(process) = &self.hosts[host].process else { return };
        let before = self.namings[process.config].clone();
        let Some(session) = self.hosts[host].session().filter(|session| session.renaming.is_none()) else {
            return;
        };
        let ((seen, names), era, number) = (session.names.clone(), session.replica.era(), session.number);
        let planned = match names.plan(&own) {
            // This gateway takes back a change that it has. Everything under way has the names of before as well.
            Ok(None) if names.is_next(&before) && !names.is_next(&own) => {
                Ok(Some(Names { next: None, ..(*names).clone() }))
            }
            planned => planned,
        };
        match planned {
            Err(_) => self.tally.names_refused += 1,
            Ok(None) => self.take_config(host, config),
            Ok(Some(planned)) => {
                session.renaming = Some(config);
                self.tally.renames += u64::from(planned.next.is_some());
                let txn = Txn::PutNames { era, seen, names: Rc::new(planned) };
                self.call(host, Purpose::Rename { session: number }, txn);
            }
        }
    }

    /// Names that were put arrive with the watch; only a refusal is news.
    pub(super) fn named(&mut self, host: usize, reply: Option<Reply>) {
        if !matches!(reply, Some(Reply::Named(true)))
            && let Some(session) = self.hosts[host].session()
        {
            session.renaming = None;
        }
    }

    /// The store agrees; the gateway's own thread puts the routes into force.
    fn take_config(&mut self, host: usize, config: usize) {
        let Some(process) = &mut self.hosts[host].process else { return };
        process.config = config;
        let process = process.number;
        let delay = self.dice.below(2 * MILLI);
        self.set_after(delay, Event::SetRoutes { host, process, config });
    }

    pub(crate) fn set_routes(&mut self, host: usize, process: u64, config: usize) {
        let own = self.namings[config].clone();
        let Some(living) = self.hosts[host].process.as_mut().filter(|living| living.number == process) else {
            return;
        };
        living.tables.set_own(own);
        self.note(|| format!("{} has config {config}", letter(host)));
    }

    /// From now on every request that is claimed has these names.
    pub(super) fn take_names(&mut self, host: usize, revision: Revision, names: Rc<Names>) {
        let Some(process) = &mut self.hosts[host].process else { return };
        process.tables.set_names(revision, names.clone());
        let Stage::Inside(session) = &mut process.stage else { return };
        session.names = (revision, names.clone());
        let namings = &self.namings;
        if let Some(config) = session.renaming.take_if(|config| names.knows(&namings[*config])) {
            self.take_config(host, config);
        }
    }

    /// Nothing is under way any more, anywhere, that lacks the new names.
    pub(super) fn finish_names(&mut self, host: usize, seen: Revision) {
        let forgets = self.is(Control::NewNameFromNothing);
        let Some(session) = self.hosts[host].session() else { return };
        let (known, names) = &session.names;
        if *known != seen || !names.given_up(session.replica.frozen()).is_empty() {
            return;
        }
        let marks = session.replica.marks().filter(|_| !forgets);
        let names = Rc::new(names.finished(marks));
        let era = session.replica.era();
        self.send(host, Txn::PutNames { era, seen, names });
    }

    /// The gateway looks now and then whether everything under way has the new names.
    pub(super) fn tell_known_names(&mut self, host: usize) {
        let now = self.now;
        let Some(process) = &mut self.hosts[host].process else { return };
        if now < process.names_looked_at + NAMES_PERIOD {
            return;
        }
        process.names_looked_at = now;
        if let Some(revision) = process.tables.settled(&process.ledger) {
            process.commands.push_back(Command::Input(Input::NamesKnown { revision }));
        }
    }
}
