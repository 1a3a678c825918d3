//! What has to be true of electors, judged by who sees all of them at their true time.
//!
//! A job is told only what the gateways have opened; what jobs are told goes up; and two electors are never both
//! valid for one resource, since nobody's key goes while its leader is valid by its own clock. Nothing of that is
//! promised where etcd broke its word: a lease that was revoked early, or an etcd that was restored. The gateways'
//! promise holds there all the same.

use highgate_elector::{Resource, Token};

use super::super::world::World;

impl World {
    pub(super) fn judge_telling(&mut self, elector: usize, resource: usize, token: Token) {
        let Some(candidate) = self.electors[elector].candidates.get(&resource) else { return };
        let Some(claim) = &candidate.claim else { return };
        let (looked_at, wronged) = (claim.looked_at, self.is_wronged(elector, resource));
        let opened = self.judge.opened.contains(&(self.resources[resource].clone(), token.get()));
        let unguarded = self.judge.unguarded_at >= looked_at || self.etcd.state.members.is_empty();
        self.note(|| format!("elector {elector} leads r{resource} with {token}"));
        self.tally.elections += 1;
        self.tally.sealed_terms += u64::from(self.plan.sealed && opened);
        self.tally.unsealed_terms += u64::from(!self.plan.sealed);
        if self.plan.sealed && !opened && !unguarded {
            self.accuse("told too early", || format!("{token} is told for r{resource}, and was never open"));
        }
        let before = self.lines[resource].resigned.take();
        self.tally.handovers += u64::from(before.is_some_and(|(other, _)| other != elector));
        if wronged || !self.is_valid(elector, resource) {
            return;
        }
        if let Some(higher) = self.judge.told.insert(resource, token).filter(|higher| *higher >= token) {
            self.accuse("told down", || format!("{token} is told for r{resource} after {higher}"));
        }
        self.judge_alone(elector, resource);
    }

    fn judge_alone(&mut self, elector: usize, resource: usize) {
        for other in (0..self.electors.len()).filter(|other| *other != elector) {
            if self.is_valid(other, resource) && !self.is_wronged(other, resource) {
                self.accuse("two leaders", || {
                    format!("elector {elector} leads r{resource} while elector {other} is valid")
                });
            }
        }
    }

    fn is_wronged(&self, elector: usize, resource: usize) -> bool {
        let candidate = self.electors[elector].candidates.get(&resource);
        candidate.and_then(|known| known.seat).is_some_and(|seat| seat.wronged)
    }

    /// A candidate's key is gone: its leader does not believe in it any more.
    pub(crate) fn judge_departure(&mut self, resource: &Resource, lease: u64) {
        let Some(resource) = self.resources.iter().position(|known| known == resource) else { return };
        for elector in 0..self.electors.len() {
            let candidate = self.electors[elector].candidates.get(&resource);
            let term = candidate.and_then(|known| known.term.as_ref());
            let led = term.is_some_and(|term| term.lease == lease);
            if led && self.is_valid(elector, resource) && !self.is_wronged(elector, resource) {
                self.accuse("deposed while valid", || {
                    format!("the key of elector {elector} for r{resource} goes while it is valid")
                });
            }
        }
    }

    /// etcd takes what is on a lease that should live.
    pub(super) fn wrong(&mut self, lease: u64) {
        let on_it = self.etcd.state.candidates.iter().filter(|(_, candidate)| candidate.carrier == lease);
        let names: Vec<(Resource, u64)> = on_it.map(|(key, _)| key.clone()).collect();
        for (resource, name) in names {
            self.wrong_whoever(|known, seat| *known == resource && seat == name);
        }
    }

    /// etcd is another one.
    pub(crate) fn wrong_everybody(&mut self) {
        self.wrong_whoever(|_, _| true);
    }

    fn wrong_whoever(&mut self, is_it: impl Fn(&Resource, u64) -> bool) {
        for elector in 0..self.electors.len() {
            for (resource, candidate) in &mut self.electors[elector].candidates {
                let Some(seat) = &mut candidate.seat else { continue };
                if is_it(&self.resources[*resource], seat.lease) {
                    seat.wronged = true;
                    self.tally.wronged += u64::from(candidate.term.is_some());
                }
            }
        }
    }

    /// How far everybody is, for who wonders why nobody leads.
    pub(crate) fn describe_electors(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (elector, machine) in self.electors.iter().enumerate() {
            for (resource, candidate) in &machine.candidates {
                lines.push(format!(
                    "elector {elector} for r{resource}: {:?}, {:?}",
                    candidate.at, candidate.seat
                ));
            }
        }
        lines
    }

    /// The token of whoever leads by its own clock, and was told so.
    pub(crate) fn told_leader(&self, resource: usize) -> Option<Token> {
        let leading = (0..self.electors.len()).filter(|elector| self.is_valid(*elector, resource));
        let token = |elector: usize| {
            let term = self.electors[elector].candidates.get(&resource)?.term.as_ref()?;
            Some(term.token)
        };
        leading.filter_map(token).max()
    }
}
