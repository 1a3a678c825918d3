//! A coordination system in memory, with switches for what can go wrong.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tokio::time::sleep;

use crate::backend::{
    Backend, BackendError, BoxFuture, Candidacy, Grant, Leader, Observation, OnceError, OnceState, OnceStep,
    RenewError, Renewed, SignedToken,
};
use crate::stream::unfold;
use crate::{Moment, Resource, Token};

const TICK: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(super) struct Fake {
    state: Arc<Mutex<State>>,
    /// Nothing gets through.
    cut: Arc<AtomicBool>,
    /// Campaigns are refused.
    pub(super) refuse: AtomicBool,
    /// Calls of `renew`, and how many grants they had.
    pub(super) rounds: AtomicUsize,
    pub(super) renewals: AtomicUsize,
    pub(super) resigned: AtomicUsize,
    /// How many milliseconds an answer to a renewal is on its way.
    pub(super) lag: AtomicU64,
    /// Grants and renewals come with a signed token, each with another.
    pub(super) signs: AtomicBool,
}

#[derive(Default)]
struct State {
    elections: HashMap<Resource, Election>,
    last: u64,
    once: HashMap<(Resource, String), OnceState>,
}

#[derive(Default)]
struct Election {
    leader: Option<(Grant, Moment)>,
    queue: VecDeque<u64>,
}

impl Election {
    fn current(&mut self) -> Option<&mut (Grant, Moment)> {
        self.leader.take_if(|(_, until)| *until <= Moment::now());
        self.leader.as_mut()
    }

    fn leader(&mut self) -> Option<Leader> {
        let (grant, _) = self.current()?;
        Some(Leader { holder: grant.holder.clone(), token: grant.token })
    }
}

impl Fake {
    pub(super) fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    pub(super) fn evict(&self, resource: &Resource) {
        self.with(resource, |election, _| election.leader = None);
    }

    pub(super) fn leader(&self, resource: &Resource) -> Option<Leader> {
        self.with(resource, |election, _| election.leader())
    }

    /// When the leader's lease runs out here.
    pub(super) fn until(&self, resource: &Resource) -> Option<Moment> {
        self.with(resource, |election, _| election.current().map(|(_, until)| *until))
    }

    pub(super) fn waiting(&self, resource: &Resource) -> usize {
        self.with(resource, |election, _| election.queue.len())
    }

    fn with<T>(&self, resource: &Resource, act: impl FnOnce(&mut Election, &mut u64) -> T) -> T {
        let state = &mut *self.state.lock().unwrap();
        act(state.elections.entry(resource.clone()).or_default(), &mut state.last)
    }

    fn reach(&self) -> Result<(), BackendError> {
        if self.cut.load(Ordering::SeqCst) { Err(unavailable()) } else { Ok(()) }
    }

    fn leads(&self, grant: &Grant) -> bool {
        self.with(&grant.resource, |election, _| {
            election.current().is_some_and(|(held, _)| held.lease == grant.lease)
        })
    }

    fn signed(&self, token: Token) -> Option<SignedToken> {
        let renewals = self.renewals.load(Ordering::SeqCst);
        let signed = SignedToken::parse(&format!("{token}.after-{renewals}-renewals"));
        signed.filter(|_| self.signs.load(Ordering::SeqCst))
    }
}

fn unavailable() -> BackendError {
    BackendError::Unavailable { backend: "fake".to_owned(), detail: "cut".to_owned() }
}

/// The next change after what was told, or a failure.
async fn watch(
    state: Arc<Mutex<State>>,
    cut: Arc<AtomicBool>,
    resource: Resource,
    told: Option<Option<Leader>>,
) -> Option<(Result<Option<Leader>, BackendError>, Option<Option<Leader>>)> {
    loop {
        if cut.load(Ordering::SeqCst) {
            return Some((Err(unavailable()), told));
        }
        let now = state.lock().unwrap().elections.get_mut(&resource).and_then(Election::leader);
        if told.as_ref() != Some(&now) {
            return Some((Ok(now.clone()), Some(now)));
        }
        sleep(TICK).await;
    }
}

/// A place in the queue, given back when the campaign ends.
struct Place<'a>(&'a Fake, &'a Resource, u64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.with(self.1, |election, _| election.queue.retain(|id| *id != self.2));
    }
}

impl Backend for Fake {
    fn campaign<'a>(&'a self, candidacy: &'a Candidacy) -> BoxFuture<'a, Result<Grant, BackendError>> {
        Box::pin(async move {
            self.reach()?;
            if self.refuse.load(Ordering::SeqCst) {
                let (backend, detail) = ("fake".to_owned(), "not you".to_owned());
                return Err(BackendError::Refused { backend, detail });
            }
            let id = self.with(&candidacy.resource, |election, last| {
                *last += 1;
                election.queue.push_back(*last);
                *last
            });
            let _place = Place(self, &candidacy.resource, id);
            loop {
                let granted = self.with(&candidacy.resource, |election, last| {
                    if election.current().is_some() || election.queue.front() != Some(&id) {
                        return None;
                    }
                    *last += 1;
                    let Candidacy { resource, holder, ttl } = candidacy.clone();
                    let token = Token::new(*last).unwrap();
                    let signed_token = self.signed(token);
                    let grant = Grant { resource, holder, token, lease: id.to_string(), ttl, signed_token };
                    election.leader = Some((grant.clone(), Moment::now() + grant.ttl));
                    Some(grant)
                });
                if let Some(grant) = granted {
                    return Ok(grant);
                }
                sleep(TICK).await;
                self.reach()?;
            }
        })
    }

    fn renew<'a>(&'a self, grants: &'a [Grant]) -> BoxFuture<'a, Vec<Result<Renewed, RenewError>>> {
        Box::pin(async move {
            self.rounds.fetch_add(1, Ordering::SeqCst);
            self.renewals.fetch_add(grants.len(), Ordering::SeqCst);
            let renew = |grant: &Grant| {
                self.reach()?;
                self.with(&grant.resource, |election, _| match election.current() {
                    Some((held, until)) if held.lease == grant.lease => {
                        *until = Moment::now() + grant.ttl;
                        Ok(Renewed { signed_token: self.signed(grant.token) })
                    }
                    _ => Err(RenewError::Gone),
                })
            };
            let answers = grants.iter().map(renew).collect();
            sleep(Duration::from_millis(self.lag.load(Ordering::SeqCst))).await;
            answers
        })
    }

    fn resign<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move {
            self.reach()?;
            self.resigned.fetch_add(1, Ordering::SeqCst);
            if self.leads(grant) {
                self.evict(&grant.resource);
            }
            Ok(())
        })
    }

    fn observe(&self, resource: &Resource) -> Observation {
        let (state, cut, resource) = (self.state.clone(), self.cut.clone(), resource.clone());
        unfold(None, move |told| Box::pin(watch(state.clone(), cut.clone(), resource.clone(), told)))
    }

    fn once<'a>(
        &'a self,
        grant: &'a Grant,
        key: &'a str,
        step: OnceStep,
    ) -> BoxFuture<'a, Result<OnceState, OnceError>> {
        Box::pin(async move {
            self.reach()?;
            if !self.leads(grant) {
                return Err(OnceError::Deposed);
            }
            let once = &mut self.state.lock().unwrap().once;
            let state = once.entry((grant.resource.clone(), key.to_owned())).or_insert(OnceState::Running);
            if step == OnceStep::Complete && *state == OnceState::Running {
                let (holder, token) = (grant.holder.clone(), grant.token);
                *state = OnceState::Completed { holder, token, at: UNIX_EPOCH };
            }
            Ok(state.clone())
        })
    }
}
