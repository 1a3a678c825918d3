//! Sealed leadership: the gateways pass a leader's token before its job gets it.
//!
//! A winner raises the mark of its resource, with the proof that it leads in the same transaction, and waits until
//! the gateways have opened it: every request of lower tokens has then ended. The campaign calls this before it
//! returns. What must stay true: a token is handed out only by a look at etcd that found the candidate leading and
//! its mark open, or no gateway at all, neither one that serves nor one that was evicted and may still forward; and a
//! wait costs a request when the mark changes, not while it does not.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use highgate_etcd::fence::Fence;
use highgate_etcd::{CallError, Compare, Put, Range, Txn};
use tokio::time::sleep;

use super::Core;
use super::campaign::{Standing, Term, confirm};
use super::graves::{Grave, Graves};
use super::ground::{Ground, Step, is_shut};
use super::interest::Interest;
use super::leases::Seat;
use crate::backend::BackendError;
use crate::{Resource, Token};

/// Before etcd is asked again when it does not answer, or when others change the mark.
const PAUSE: Duration = Duration::from_millis(50);
/// How often those who wait look whether there are still gateways to wait for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Whether there are gateways to wait for, asked rarely on behalf of all who wait.
#[derive(Default)]
pub(super) struct Gateways {
    seen: tokio::sync::Mutex<Option<(Instant, bool)>>,
    graves: Mutex<Graves>,
}

/// What [`Ground::read`] understands. Without sealing, the era only.
pub(super) fn questions(core: &Core, resource: &Resource) -> Vec<Range> {
    let mut questions = vec![Range::key(core.keys.era())];
    if core.sealed {
        questions.push(Range::key(core.keys.fence(resource)));
        questions.push(any_member(core));
        questions.push(tombstones(core));
    }
    questions
}

fn any_member(core: &Core) -> Range {
    Range::below(core.keys.members()).limit(1).keys_only()
}

fn tombstones(core: &Core) -> Range {
    Range::below(core.keys.tombstones())
}

/// Takes a candidate that leads to where the gateways pass it. What it stands at when it does not get there is for
/// the campaign to judge.
pub(super) async fn seal(
    core: &Core,
    seat: &Seat,
    resource: &Resource,
    mut term: Term,
) -> Result<Standing, BackendError> {
    let mut news: Option<News> = None;
    loop {
        let raised = match term.ground.step(term.token) {
            Some(Step::Lead) => return Ok(Standing::Leads(term)),
            Some(Step::QueueAgain) => return Ok(Standing::Overtaken),
            Some(Step::Never) => return Err(core.fail(&out_of_reach(core, resource, &term.ground))),
            None => return Err(core.fail(&no_mark(core, resource))),
            Some(Step::Wait) => news.is_some(),
            Some(Step::Raise(mark)) => {
                news.get_or_insert_with(|| News::of(core, seat, resource));
                raise(core, seat, resource, &term, &mark).await?
            }
        };
        match &mut news {
            Some(news) if raised => news.wait(core, term.token).await,
            Some(_) => sleep(PAUSE).await,
            // What changed before this is no news: look once more.
            None => news = Some(News::of(core, seat, resource)),
        }
        term = match look(core, seat, resource, term.created).await? {
            Standing::Leads(term) => term,
            standing => return Ok(standing),
        };
    }
}

/// Until etcd answers: the lease decides how long that may take.
async fn look(core: &Core, seat: &Seat, resource: &Resource, created: i64) -> Result<Standing, BackendError> {
    loop {
        match confirm(core, seat, resource, created).await {
            Ok(Standing::Waits) | Err(CallError::Unavailable(_)) => sleep(PAUSE).await,
            answer => return answer.map_err(|error| core.fail(&error)),
        }
    }
}

/// RAISE. False: it is not known to have been done, because something has changed or etcd did not answer.
async fn raise(
    core: &Core,
    seat: &Seat,
    resource: &Resource,
    term: &Term,
    mark: &Fence,
) -> Result<bool, BackendError> {
    let (keys, fence) = (&core.keys, core.keys.fence(resource));
    let mut compares = Compare::issued(keys, resource, seat.key(), term.created).to_vec();
    compares.push(Compare::changed_at(fence.as_str(), term.ground.mark_changed));
    compares.push(Compare::changed_at(keys.era(), term.ground.era_changed));
    let raise = Txn::when(compares).then(Put::new(fence, mark.encode())).then(Put::new(keys.seq(), ""));
    match core.client.txn(raise).await {
        Ok(answer) => Ok(answer.succeeded),
        Err(CallError::Unavailable(_)) => Ok(false),
        Err(error) => Err(core.fail(&error)),
    }
}

fn out_of_reach(core: &Core, resource: &Resource, ground: &Ground) -> CallError {
    CallError::Refused(format!(
        "the mark in {} is above every token that etcd can issue in era {} (its revision is {}): somebody raised \
         it too far; `highgate era bump` makes all new tokens higher",
        core.keys.fence(resource),
        ground.era,
        ground.revision,
    ))
}

fn no_mark(core: &Core, resource: &Resource) -> CallError {
    CallError::Refused(format!("{} holds no mark", core.keys.fence(resource)))
}

/// What can end the wait for the gateways.
struct News {
    mark: Interest,
    own: Interest,
}

impl News {
    fn of(core: &Core, seat: &Seat, resource: &Resource) -> Self {
        let of = |key: String| core.interests.of(&key);
        Self { mark: of(core.keys.fence(resource)), own: of(seat.key()) }
    }

    /// Until there may be something else to do than to wait.
    async fn wait(&mut self, core: &Core, token: Token) {
        loop {
            tokio::select! {
                mark = self.mark.changed() => {
                    if !mark.is_some_and(|mark| is_shut(&mark, token)) {
                        return;
                    }
                }
                _ = self.own.changed() => return,
                () = sleep(LOOK_AGAIN) => {
                    if !core.gateways.any(core).await {
                        return;
                    }
                }
            }
        }
    }
}

impl Gateways {
    /// Whether the gateway of one of these tombstones, of an answer that was just received, may still forward.
    pub(super) fn may_forward(&self, graves: &[Grave]) -> bool {
        let mut known = self.graves.lock().expect("nothing panics while it holds this lock");
        known.may_forward(Instant::now(), graves)
    }

    /// While etcd does not answer there may be some.
    async fn any(&self, core: &Core) -> bool {
        let mut seen = self.seen.lock().await;
        if let Some((at, any)) = *seen
            && at.elapsed() < LOOK_AGAIN / 2
        {
            return any;
        }
        let ask = Txn::default().then(any_member(core)).then(tombstones(core));
        let any = core.client.txn(ask).await.map_or(true, |answer| {
            let graves: Vec<Grave> = answer.found(1).iter().map(Grave::read).collect();
            !answer.found(0).is_empty() || self.may_forward(&graves)
        });
        *seen = Some((Instant::now(), any));
        any
    }
}
