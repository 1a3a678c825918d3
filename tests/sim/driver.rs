//! The store's driver, as in `src/store/etcd/driver.rs`: what it hears, one thing after the other, and what is due.
//!
//! `driver/outputs.rs` carries out what the machine says, `driver/answers.rs` hears what etcd answers, and
//! `driver/changes.rs` what the watch tells, and `driver/names.rs` is about how resources are called. All of it is written after the real one, call by call.

mod answers;
mod changes;
mod names;
mod outputs;

pub(crate) use answers::queues;

use std::time::Duration;

use highgate::replica::{Input, Time};

use super::clock::{MILLI, Nanos, SECOND};
use super::control::Control;
use super::etcd::{MemberValue, Txn};
use super::host::{Command, Host, Joining, Leaver, Process, Stage};
use super::naming::Tables;
use super::trace::{letter, short};
use super::values::Reader;
use super::wire::Purpose;
use super::world::{Event, World};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const SAVE_EVERY: Nanos = 2 * SECOND;

impl World {
    pub(crate) fn start(&mut self, host: usize) {
        if self.hosts[host].process.is_some() {
            return;
        }
        let (number, shown) = (self.number(), self.shown(host));
        let Host { disk, file, .. } = self.hosts[host];
        let tables = Tables::new(self.namings[file].clone(), self.resources.len(), self.control);
        let process = Process::start(number, (self.now, shown), self.plan.timing, disk, (file, tables));
        self.hosts[host].process = Some(process);
        self.note(|| format!("{} starts", letter(host)));
        self.poll(host);
    }

    /// Takes whatever the driver has not heard yet, in any order between the queues.
    pub(crate) fn poll(&mut self, host: usize) {
        if !self.hosts[host].drives() {
            return;
        }
        self.collect_left(host);
        self.tell_known_names(host);
        self.act(host);
        while self.hosts[host].drives() && self.hear_one(host) {
            self.act(host);
            self.collect_left(host);
        }
        let process = self.hosts[host].process_number();
        self.look_again(host, process);
        self.set_alarm(host);
    }

    fn hear_one(&mut self, host: usize) -> bool {
        let Some(process) = &mut self.hosts[host].process else { return false };
        let ready = [process.reports.len(), process.changes.len(), process.commands.len()];
        let ready: Vec<usize> = (0..ready.len()).filter(|queue| ready[*queue] > 0).collect();
        let Some(only) = ready.first() else { return false };
        let queue = if ready.len() == 1 { *only } else { self.dice.pick(&ready) };
        match queue {
            0 => {
                if let Some(report) = process.reports.pop_front() {
                    self.hear(host, report);
                }
            }
            1 => {
                if let Some(changes) = process.changes.pop_front() {
                    self.take_changes(host, changes);
                }
            }
            _ => {
                if let Some(command) = process.commands.pop_front() {
                    self.obey(host, command);
                }
            }
        }
        true
    }

    /// Gates that were left since.
    pub(crate) fn collect_left(&mut self, host: usize) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let left = std::mem::take(&mut *process.left.lock().expect("nothing panics while it holds this"));
        process.commands.extend(left.into_iter().map(Command::Left));
    }

    /// A permit was given back, or a command sent.
    pub(crate) fn poke(&mut self, host: usize) {
        self.collect_left(host);
        self.poll(host);
    }

    pub(crate) fn command(&mut self, host: usize, command: Command) {
        if let Some(process) = &mut self.hosts[host].process {
            process.commands.push_back(command);
        }
    }

    fn obey(&mut self, host: usize, command: Command) {
        match command {
            Command::Input(input) => self.step(host, input),
            Command::Left(resource) => self.left(host, resource),
            Command::Prove(resource, token, block) => self.prove(host, &resource, token, block),
            Command::Promise(lock_delay) => self.promise(host, lock_delay),
            Command::Rename(config) => self.rename(host, config),
            Command::Expired => {
                let fenced = self.hosts[host].process.as_ref().is_some_and(|process| process.until.is_none());
                if fenced {
                    self.fence(host, "expired");
                }
            }
        }
    }

    /// Whatever is due.
    fn act(&mut self, host: usize) {
        let shown = self.shown(host);
        let Some(process) = &self.hosts[host].process else { return };
        if process.stopping.is_none()
            && let Stage::Outside { try_at, joining: None } = &process.stage
            && shown >= *try_at
        {
            self.join(host);
        }
        if self.machine_due(host).is_some_and(|at| at <= shown) {
            self.step(host, Input::Tick);
        }
        self.send_proposals(host);
        self.let_leavers_go(host);
        self.save_memory(host);
    }

    fn machine_due(&self, host: usize) -> Option<Time> {
        self.hosts[host].process.as_ref()?.session()?.replica.wake_at()
    }

    fn set_alarm(&mut self, host: usize) {
        let Some(process) = &self.hosts[host].process else { return };
        let soon = match (process.leavers.is_empty(), process.tables.are_changing()) {
            (false, _) => 50 * MILLI,
            (true, true) => 100 * MILLI,
            (true, false) => 500 * MILLI,
        };
        let soon = self.now + soon;
        let due = match &process.stage {
            Stage::Outside { try_at, joining: None } if process.stopping.is_none() => Some(*try_at),
            Stage::Outside { .. } => None,
            Stage::Inside(session) => session.replica.wake_at(),
        };
        let at = due.map_or(soon, |due| soon.min(self.hosts[host].clock.when(due))).max(self.now);
        let number = process.number;
        if process.alarm.is_some_and(|(set, _)| set == at) {
            return;
        }
        let alarm = self.number();
        if let Some(process) = &mut self.hosts[host].process {
            process.alarm = Some((at, alarm));
        }
        self.set(at, Event::Alarm { host, process: number, number: alarm });
    }

    pub(crate) fn alarm(&mut self, host: usize, process: u64, number: u64) {
        let Some(living) = self.hosts[host].process.as_mut().filter(|living| living.number == process) else {
            return;
        };
        if living.alarm.take_if(|(_, alarm)| *alarm == number).is_some() {
            self.poll(host);
        }
    }

    pub(crate) fn reader(&self, host: usize) -> Reader {
        let own = self.hosts[host].process.as_ref().map_or(self.plan.timing, |process| process.timing);
        Reader { own, control: self.control }
    }

    fn join(&mut self, host: usize) {
        let random = (u128::from(self.dice.roll()) << 64) | u128::from(self.dice.roll());
        let reused = self.is(Control::IncarnationReuse);
        let Some(process) = &mut self.hosts[host].process else { return };
        process.joins += 1;
        let number = process.joins;
        let me = if reused { (host as u128 + 1) << 112 } else { random };
        let timing = process.timing;
        let value = MemberValue {
            watermark: 0,
            draining: Vec::new(),
            validity: timing.validity,
            lock_delay: timing.lock_delay,
        };
        if let Stage::Outside { joining, .. } = &mut process.stage {
            *joining = Some(Joining { number, me, era: 0, value });
        }
        self.call(host, Purpose::JoinEra { join: number }, Txn::ReadEra);
    }

    fn stay_outside(&mut self, host: usize) {
        let shown = self.shown(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        process.stage = Stage::Outside { try_at: shown + process.backoff, joining: None };
        process.backoff = LONGEST_PAUSE.min(process.backoff * 2);
    }

    /// What this replica says of itself.
    fn value(&self, host: usize, watermark: u64, draining: Vec<u64>) -> MemberValue {
        let own = self.reader(host).own;
        MemberValue { watermark, draining, validity: own.validity, lock_delay: own.lock_delay }
    }

    /// FENCE: final for the incarnation. The warden may have done its part already.
    pub(crate) fn fence(&mut self, host: usize, why: &'static str) {
        let shown = self.shown(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let Stage::Inside(session) = &process.stage else { return };
        let mut try_at = shown;
        if shown - session.joined_at < process.timing.validity {
            // What ended it may still be there.
            try_at += process.backoff;
            process.backoff = LONGEST_PAUSE.min(process.backoff * 2);
        } else {
            process.backoff = FIRST_PAUSE;
        }
        let outside = Stage::Outside { try_at, joining: None };
        let Stage::Inside(session) = std::mem::replace(&mut process.stage, outside) else { return };
        process.fence();
        process.ledger.close_all();
        process.past.insert(session.me);
        process.leavers.push(Leaver::new(session.me, session.counted));
        // Longer lock-delays that were waited for: the next join carries them.
        process.lock_delay = session.promises.iter().copied().fold(process.lock_delay, Duration::max);
        self.tally.fence(why);
        self.note(|| format!("{} is fenced as {}: {why}", letter(host), short(session.me)));
        self.streams.remove(&session.stream);
        self.cut_all(host);
    }

    /// LEAVE for incarnations that are over and whose requests have all ended for certain.
    fn let_leavers_go(&mut self, host: usize) {
        let (hasty, now) = (self.is(Control::LeaveInFlight), self.now);
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.away || process.memory.lost {
            return;
        }
        let validity = process.validity.clone();
        let mut leaving = Vec::new();
        for leaver in &mut process.leavers {
            let busy = leaver.counted.is_some_and(|counted| validity.in_flight_of(counted) > 0);
            if leaver.leaving || (busy && !hasty) || now < leaver.retry_at {
                continue;
            }
            leaver.leaving = true;
            leaving.push(leaver.incarnation);
        }
        for incarnation in leaving {
            self.call(host, Purpose::Leave { incarnation }, Txn::Leave { me: incarnation });
        }
    }

    /// The end of a process that has no request under way, or will not wait for it any longer.
    pub(crate) fn stop_check(&mut self, host: usize, process: u64) {
        let now = self.now;
        let hasty = self.is(Control::LeaveInFlight);
        let Some(living) = self.hosts[host].process.as_mut().filter(|living| living.number == process) else {
            return;
        };
        let Some(limit) = living.stopping else { return };
        let clean = living.ledger.in_flight() == 0;
        if !clean && !hasty && now < limit {
            return self.set_after(20 * MILLI, Event::StopCheck { host, process });
        }
        living.ledger.halt();
        let over = living.session().map(|session| session.me);
        let leavers: Vec<_> = living.leavers.iter().map(|leaver| leaver.incarnation).collect();
        living.fence();
        self.note(|| format!("{} stops, {}", letter(host), if clean { "clean" } else { "not clean" }));
        if clean || hasty {
            for me in over.into_iter().chain(leavers) {
                self.call(host, Purpose::Leave { incarnation: me }, Txn::Leave { me });
            }
            self.tally.clean_stops += 1;
        }
        if let Some(process) = &self.hosts[host].process {
            self.hosts[host].disk = process.memory;
        }
        self.end_process(host);
    }

    fn save_memory(&mut self, host: usize) {
        let now = self.now;
        let Some(process) = &mut self.hosts[host].process else { return };
        if now >= process.saved_at + SAVE_EVERY {
            self.save_now(host);
        }
    }

    fn save_now(&mut self, host: usize) {
        let Host { process: Some(process), disk, .. } = &mut self.hosts[host] else { return };
        process.saved_at = self.now;
        *disk = process.memory;
    }
}
