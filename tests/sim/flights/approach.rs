//! Requests before the gate: they are claimed, wait for a mark, ask for a raise, and are admitted through the real ledger.

use std::rc::Rc;
use std::time::Duration;

use highgate::ledger::{Denied, Ledger, Permit, Shut};
use highgate::replica::{Input, Want};
use highgate_elector::{Resource, Token};

use super::{Flight, Held, Phase};
use crate::clock::{self, MILLI, Nanos};
use crate::control::Control;
use crate::host::{Approach, Command};
use crate::trace::letter;
use crate::world::{Event, World};

impl World {
    pub(crate) fn arrive(&mut self, host: usize, resource: usize, token: Token) {
        let gives_up_at = self.now + self.plan.hold;
        let Some(process) = &mut self.hosts[host].process else { return };
        let table = process.tables.current.clone();
        if token.get() < table.floors[resource] {
            // The resource had another name before, and this is its mark from then.
            self.tally.below_floor += 1;
            return;
        }
        let (asked, asked_to_block) = (Vec::new(), Vec::new());
        let names = table.names[resource].clone();
        process.waiting.push(Approach { resource, token, table, names, asked, asked_to_block, gives_up_at });
        let process = process.number;
        self.set(gives_up_at, Event::LookAgain { host, process });
        self.look_again(host, process);
    }

    /// Whoever waits at a gate looks again.
    pub(crate) fn look_again(&mut self, host: usize, process: u64) {
        if self.hosts[host].is_paused() || self.hosts[host].process_number() != process {
            return;
        }
        let Some(living) = self.hosts[host].process.as_mut().filter(|living| !living.waiting.is_empty())
        else {
            return;
        };
        let waiting = std::mem::take(&mut living.waiting);
        let mut kept = Vec::new();
        for mut approach in waiting {
            if self.look(host, &mut approach) && self.now < approach.gives_up_at {
                kept.push(approach);
            }
        }
        let Some(living) = &mut self.hosts[host].process else { return };
        living.waiting.extend(kept);
        if !living.commands.is_empty() {
            self.set_after(MILLI / 20, Event::Poke { host, process });
        }
    }

    /// Whether it goes on waiting. It has to pass under each of its names, one after the other.
    fn look(&mut self, host: usize, approach: &mut Approach) -> bool {
        if !self.claim_again(host, approach) {
            return false;
        }
        for name in approach.names.clone().iter() {
            if let Some(waits) = self.look_under(host, name, approach) {
                return waits;
            }
        }
        self.admit(host, approach)
    }

    /// One that was claimed by an earlier table is named by the one in force as well. False if it is stale by that.
    fn claim_again(&mut self, host: usize, approach: &mut Approach) -> bool {
        let Some(process) = &self.hosts[host].process else { return false };
        let table = process.tables.current.clone();
        if Rc::ptr_eq(&table, &approach.table) {
            return true;
        }
        let own = approach.names[0].clone();
        let others = table.names[approach.resource].iter().filter(|name| **name != own).cloned();
        approach.names = std::iter::once(own.clone()).chain(others).collect();
        approach.asked.clear();
        approach.asked_to_block.clear();
        let floor = table.floors[approach.resource].max(process.tables.floor(std::slice::from_ref(&own)));
        approach.table = table;
        self.tally.claimed_again += 1;
        approach.token.get() >= floor
    }

    /// Whether it goes on waiting; nothing if it may pass under this name.
    fn look_under(&mut self, host: usize, resource: &Resource, approach: &mut Approach) -> Option<bool> {
        let (resource, token) = (resource.clone(), approach.token);
        let process = self.hosts[host].process.as_ref().filter(|process| process.stopping.is_none());
        let Some(process) = process else { return Some(false) };
        let cell = process.ledger.enter(&resource);
        let waits = match cell.look(token) {
            Ok(()) if self.plan.blocks[approach.resource] && !cell.blocks() => {
                // What this request may leave behind has to be known to everybody before it passes.
                if !approach.asked_to_block.contains(&resource) {
                    approach.asked_to_block.push(resource.clone());
                    self.command(host, Command::Input(Input::Block { resource }));
                }
                true
            }
            Ok(()) => return None,
            Err(Denied::Raising) if self.is(Control::PerReplicaCache) => {
                self.raise_alone(host, &resource, token)
            }
            Err(Denied::Raising) => true,
            Err(Denied::Ahead { .. }) if self.is(Control::PerReplicaCache) => {
                self.raise_alone(host, &resource, token)
            }
            Err(Denied::Ahead { .. }) => {
                if !approach.asked.contains(&resource) {
                    approach.asked.push(resource.clone());
                    self.ask(host, approach.resource, resource, token);
                }
                true
            }
            Err(Denied::Stale { .. }) => {
                self.tally.stale += 1;
                false
            }
            Err(_) => false,
        };
        Some(waits)
    }

    fn ask(&mut self, host: usize, index: usize, resource: Resource, token: Token) {
        let (block, issued) = (self.plan.blocks[index], self.plan.issued[index]);
        let command = match issued {
            true => Command::Prove(resource, token, block),
            false => {
                let want = Want { resource, token, block: Some(block), proof: None, patient: false };
                Command::Input(Input::Want(want))
            }
        };
        self.command(host, command);
    }

    /// The control whose replicas know only their own marks.
    fn raise_alone(&mut self, host: usize, resource: &Resource, token: Token) -> bool {
        let Some(process) = &self.hosts[host].process else { return false };
        if process.ledger.enter(resource).mark() < token.get() {
            let _ = process.ledger.close(resource, token.get(), Shut::Raised);
        }
        let _ = process.ledger.open(resource, token.get(), false);
        true
    }

    /// One compare-and-swap, then the validity. False: it does not wait any longer.
    fn admit(&mut self, host: usize, approach: &Approach) -> bool {
        let shown = self.shown(host);
        let (resource, token) = (approach.resource, approach.token);
        let names = approach.names.clone();
        let Some(process) = &self.hosts[host].process else { return false };
        if !process.holds(shown) {
            return false;
        }
        let checked_only = self.is(Control::CheckThenAct);
        let held = match checked_only {
            true => None,
            false => match admit_under(&process.ledger, &names, token) {
                Ok(permit) => Some(Held { permit, _table: approach.table.clone() }),
                Err(denied) => return matches!(denied, Denied::Raising | Denied::Ahead { .. }),
            },
        };
        let Some(session) = process.session() else {
            self.accuse("I2", || format!("{} admits {token} for r{resource} outside", letter(host)));
            return false;
        };
        let replica = &session.replica;
        let records: Vec<_> = names.iter().map(|name| replica.record(name)).collect();
        let shut = records.into_iter().find(|mark| !replica.passes(mark) || mark.token != token.get());
        let incarnation = session.me;
        let (process, lock_delay, lasts) =
            (process.number, process.lock_delay, process.until.map_or(Duration::ZERO, |until| until - shown));
        if let Some(mark) = shut.filter(|_| !self.is(Control::OlderEraOpen)) {
            self.suspect("I2", || format!("{} admits {token} for r{resource} at {mark:?}", letter(host)));
        }
        self.tally.admitted_twice += u64::from(names.len() > 1);
        let (flight, left) = (self.number(), self.writes_to_come());
        self.flights.insert(
            flight,
            Flight {
                host,
                process,
                incarnation,
                resource,
                token,
                names,
                held,
                phase: Phase::Admitted,
                left,
                lock_delay,
                swept: false,
                draw: 0,
                took_effect: false,
                bounded: false,
            },
        );
        self.tally.admitted += 1;
        let late = checked_only || self.is(Control::PauseBeforeWrite);
        let delay = self.until_written(lasts, late);
        self.set_after(delay, Event::Write { flight });
        false
    }

    /// Mostly at once; now and then as late as the validity allows.
    fn until_written(&mut self, lasts: Duration, late: bool) -> Nanos {
        let lasts = clock::nanos(lasts);
        match self.dice.below(20) {
            0 => self.dice.below(lasts),
            1..=9 if late => self.dice.below(lasts),
            _ => self.dice.below(MILLI),
        }
    }
}

/// Under every name, or under none.
fn admit_under(ledger: &Ledger, names: &[Resource], token: Token) -> Result<Permit, Denied> {
    let (first, others) = names.split_first().expect("every request has a name");
    let permit = ledger.enter(first).admit(token)?;
    others.iter().try_fold(permit, |permit, name| Ok(permit.and(ledger.enter(name).admit(token)?)))
}
