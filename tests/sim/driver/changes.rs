//! What the watch tells: `src/store/etcd/answers.rs`, APPLY; and who leads, `leaders.rs`.

use highgate::replica::{Applied, Change, Input, Revision, Snapshot, Want, floor};
use highgate_elector::{Resource, Token};

use super::super::control::Control;
use super::super::etcd::{Txn, key_of};
use super::super::hooks;
use super::super::host::{Changes, Leaver, Session};
use super::super::values::{Poll, Sorted};
use super::super::wire::Purpose;
use super::super::world::World;

impl World {
    pub(super) fn take_changes(&mut self, host: usize, changes: Changes) {
        let Changes { stream, news } = changes;
        if self.hosts[host].session().is_none_or(|session| session.stream != stream) {
            return;
        }
        let Some(entries) = news else {
            self.tally.compactions += 1;
            return self.list(host);
        };
        let reader = self.reader(host);
        for entry in entries {
            if self.hosts[host].session().is_none_or(|session| session.listing) {
                return;
            }
            self.apply(host, reader.sort(&entry));
        }
    }

    fn apply(&mut self, host: usize, sorted: Sorted) {
        let Sorted { mut applied, names, polls } = sorted;
        let (at, control) = (applied.revision, self.control);
        let Some(session) = self.hosts[host].session() else { return };
        session.hooks.renumber(control, &mut applied);
        let raised: Vec<(Resource, u64, Revision)> = hooks::raises(&applied)
            .map(|(resource, token, raise)| (resource.clone(), token, raise))
            .collect();
        self.note_inherited(host, &raised);
        self.bury_the_past(host, &applied);
        if !applied.changes.is_empty() || applied.seq.is_some() {
            self.step(host, Input::Applied(applied));
        }
        if self.is(Control::OpenOnApply) {
            self.open_at_once(host, &raised);
        }
        let Some(session) = self.hosts[host].session().filter(|session| !session.listing) else { return };
        session.seen = session.seen.max(at);
        if let Some(names) = names {
            self.take_names(host, at, names);
        }
        let Some(session) = self.hosts[host].session() else { return };
        for resource in poll(session, polls) {
            self.follow(host, &resource);
        }
    }

    /// A join that etcd ran late, after its incarnation had left, made a member that nobody is.
    fn bury_the_past(&mut self, host: usize, applied: &Applied) {
        let Some(process) = &mut self.hosts[host].process else { return };
        for change in &applied.changes {
            if let Change::Member(id, _) = change
                && process.past.contains(id)
                && !process.leavers.iter().any(|leaver| leaver.incarnation == *id)
            {
                process.leavers.push(Leaver::new(*id, None));
            }
        }
    }

    /// For the control whose members list a raise as draining only if it closed the gate.
    fn note_inherited(&mut self, host: usize, raised: &[(Resource, u64, Revision)]) {
        let Some(process) = &self.hosts[host].process else { return };
        let shut =
            |resource: &Resource| process.ledger.get(resource.as_str()).is_some_and(|cell| !cell.is_open());
        let inherited: Vec<Revision> =
            raised.iter().filter(|(resource, ..)| shut(resource)).map(|(.., raise)| *raise).collect();
        if let Some(session) = self.hosts[host].session() {
            session.hooks.inherited.extend(inherited);
        }
    }

    /// For the control without a seal.
    fn open_at_once(&mut self, host: usize, raised: &[(Resource, u64, Revision)]) {
        let Some(process) = &self.hosts[host].process else { return };
        for (resource, token, _) in raised {
            let _ = process.ledger.open(resource, *token, false);
        }
    }

    /// For the control that loads the marks before it registers: what they were then.
    pub(super) fn load_early(&mut self, host: usize) {
        let fences = self.etcd.state.fences.clone();
        if let Some(line) = self.early_loads.get_mut(host) {
            *line = Some(fences);
        }
    }

    pub(super) fn use_early_load(&mut self, host: usize, snapshot: &mut Snapshot) {
        if let Some(fences) = self.early_loads.get_mut(host).and_then(Option::take) {
            snapshot.records = fences.into_iter().collect();
        }
    }

    /// A leader changed: the mark follows, or is vacant after the last.
    fn follow(&mut self, host: usize, resource: &Resource) {
        let Some(session) = self.hosts[host].session() else { return };
        match head(session, resource) {
            Some(head) => self.want_head(host, resource, head, None, true),
            None => self.vacate(host, resource),
        }
    }

    pub(super) fn follow_all_leaders(&mut self, host: usize) {
        let Some(session) = self.hosts[host].session() else { return };
        let led: Vec<Resource> = session.queues.keys().cloned().collect();
        for resource in led {
            self.follow(host, &resource);
        }
        let Some(session) = self.hosts[host].session() else { return };
        let stands = |resource: &Resource, created| {
            session.queues.get(resource).is_some_and(|queue| queue.contains_key(&created))
        };
        let mut departed = session.replica.departed(stands);
        departed.sort();
        for resource in departed {
            self.vacate(host, &resource);
        }
    }

    fn want_head(
        &mut self,
        host: usize,
        resource: &Resource,
        head: (u64, Revision),
        block: Option<bool>,
        patient: bool,
    ) {
        let Some(session) = self.hosts[host].session() else { return };
        let Some(token) = Token::new(floor(session.replica.era()) + head.1) else { return };
        let proof = Some(key_of(head.0));
        self.step(host, Input::Want(Want { resource: resource.clone(), token, block, proof, patient }));
    }

    fn vacate(&mut self, host: usize, resource: &Resource) {
        let Some(session) = self.hosts[host].session() else { return };
        let record = session.replica.record(resource);
        if head(session, resource).is_none()
            && record.issued
            && let Some(token) = Token::new(record.token)
        {
            self.step(host, Input::Vacate { resource: resource.clone(), token });
        }
    }

    /// Somebody brings a token above the mark that an election may have issued.
    pub(super) fn prove(&mut self, host: usize, resource: &Resource, token: Token, block: bool) {
        let Some(session) = self.hosts[host].session() else { return };
        if token.era() != session.replica.era() || session.replica.record(resource).token >= token.get() {
            return;
        }
        if let Some(head) = head(session, resource).filter(|(_, created)| *created == token.value()) {
            return self.want_head(host, resource, head, Some(block), false);
        }
        let known = session.queues.get(resource).is_some_and(|queue| queue.contains_key(&token.value()));
        if known || token.value() > session.seen {
            let (resource, value, session) = (resource.clone(), token.value(), session.number);
            let txn = Txn::ReadHead(resource.clone());
            self.call(host, Purpose::Head { session, resource, value, block }, txn);
        }
    }

    pub(super) fn heard_who_leads(
        &mut self,
        host: usize,
        resource: &Resource,
        value: Revision,
        block: bool,
        head: Option<(u64, Revision)>,
    ) {
        if let Some(head) = head.filter(|(_, created)| *created == value) {
            self.want_head(host, resource, head, Some(block), false);
        }
    }
}

fn head(session: &Session, resource: &Resource) -> Option<(u64, Revision)> {
    let (created, lease) = session.queues.get(resource)?.first_key_value()?;
    Some((*lease, *created))
}

/// Applies what candidates did; the resources whose leader is another one now.
fn poll(session: &mut Session, polls: Vec<Poll>) -> Vec<Resource> {
    let mut turned = Vec::new();
    for (resource, lease, came) in polls {
        let before = head(session, &resource);
        let queue = session.queues.entry(resource.clone()).or_default();
        match came {
            Some(created) => drop(queue.insert(created, lease)),
            None => queue.retain(|_, waiting| *waiting != lease),
        }
        if queue.is_empty() {
            session.queues.remove(&resource);
        }
        if head(session, &resource) != before {
            turned.push(resource);
        }
    }
    turned
}
