//! Sealed leadership: the gateways pass a leader's token before its job gets it.
//!
//! A winner raises the mark of its resource, with the proof that it leads in the same transaction, and waits until
//! the gateways have opened it: every request of lower tokens has then ended. The campaign calls this before it
//! returns. What must stay true: a token is handed out only by a look at etcd that found the candidate leading and
//! its mark open, or no gateway at all; and a wait costs a request when the mark changes, not while it does not.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::campaign::{Standing, Term, confirm, read_era};
use super::client::CallError;
use super::fence::Fence;
use super::interest::Interest;
use super::leases::Seat;
use super::wire::{Compare, PutRequest, RangeRequest, TxnRequest, TxnResponse};
use super::{Core, keys};
use crate::backend::BackendError;
use crate::{Resource, Token};

/// Before etcd is asked again when it does not answer, or when others change the mark.
const PAUSE: Duration = Duration::from_millis(50);
/// How often those who wait look whether there are still gateways to wait for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a winner finds in etcd beside its own key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ground {
    pub(super) era: u64,
    era_changed: i64,
    /// The value of the resource's mark; None: it has none yet.
    mark: Option<Vec<u8>>,
    mark_changed: i64,
    /// Gateways serve below this prefix.
    guarded: bool,
    /// The newest revision, which no token that etcd has issued is above.
    revision: i64,
}

/// What there is to do before the token is handed out.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Lead,
    Raise(Fence),
    Wait,
    /// The mark has passed this candidate by: only a later one can pass it.
    QueueAgain,
    /// The mark is above every token that etcd can issue in this era.
    Never,
}

/// Whether gateways serve, asked rarely on behalf of all who wait.
#[derive(Default)]
pub(super) struct Gateways {
    seen: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

/// What [`Ground::read`] understands. Without sealing, the era only.
pub(super) fn questions(core: &Core, resource: &Resource) -> Vec<RangeRequest> {
    let mut questions = vec![RangeRequest::key(core.keys.era())];
    if core.sealed {
        questions.push(RangeRequest::key(core.keys.fence(resource)));
        questions.push(any_member(core));
    }
    questions
}

fn any_member(core: &Core) -> RangeRequest {
    RangeRequest::below(core.keys.members()).limit(1).keys_only()
}

impl Ground {
    /// From the answers to [`questions`], of which the first is at this place.
    pub(super) fn read(answer: &TxnResponse, place: usize) -> Result<Self, CallError> {
        let (era, mark) = (answer.found(place), answer.found(place + 1).first());
        Ok(Self {
            era: read_era(era)?,
            era_changed: era.first().map_or(0, |kv| kv.mod_revision),
            mark: mark.map(|kv| kv.value.clone()),
            mark_changed: mark.map_or(0, |kv| kv.mod_revision),
            guarded: !answer.found(place + 2).is_empty(),
            revision: answer.revision(),
        })
    }

    /// None of a mark that is none.
    fn step(&self, token: Token) -> Option<Step> {
        if !self.guarded {
            return Some(Step::Lead);
        }
        let mark = self.mark.as_deref().map_or(Some(Fence::default()), Fence::decode)?;
        let token = token.get();
        let newest = keys::token(self.era, self.revision).map_or(0, Token::get);
        Some(match () {
            () if mark.token < token => {
                Step::Raise(Fence { token, raised: true, vacant: false, issued: true, ..mark })
            }
            () if mark.token > newest => Step::Never,
            () if mark.token > token || mark.vacant => Step::QueueAgain,
            () if mark.raised || mark.frozen => Step::Wait,
            () => Step::Lead,
        })
    }
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
    let raise = TxnRequest::when(compares)
        .then(PutRequest::new(fence, mark.encode()))
        .then(PutRequest::new(keys.seq(), ""));
    match core.client.call(raise).await {
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

/// This very mark, not passing yet.
fn is_shut(mark: &[u8], token: Token) -> bool {
    let mark = Fence::decode(mark);
    mark.is_some_and(|mark| mark.token == token.get() && !mark.vacant && (mark.raised || mark.frozen))
}

impl Gateways {
    /// While etcd does not answer there may be some.
    async fn any(&self, core: &Core) -> bool {
        let mut seen = self.seen.lock().await;
        if let Some((at, any)) = *seen
            && at.elapsed() < LOOK_AGAIN / 2
        {
            return any;
        }
        let any = core.client.call(any_member(core)).await.map_or(true, |answer| !answer.kvs.is_empty());
        *seen = Some((Instant::now(), any));
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn step(mark: Fence, revision: i64) -> Step {
        let mark = Some(mark.encode());
        Ground { guarded: true, mark, revision, ..Ground::default() }.step(token(7)).unwrap()
    }

    #[test]
    fn without_gateways_there_is_nothing_to_wait_for() {
        let nonsense = Ground { mark: Some(b"?".to_vec()), ..Ground::default() };
        assert_eq!(nonsense.step(token(7)), Some(Step::Lead));
        assert_eq!(Ground { guarded: true, ..nonsense }.step(token(7)), None);
    }

    #[test]
    fn a_lower_mark_is_raised_and_keeps_what_operators_and_routes_said() {
        let first = Fence { token: 7, raised: true, issued: true, ..Fence::default() };
        let none = Ground { guarded: true, ..Ground::default() };
        assert_eq!(none.step(token(7)), Some(Step::Raise(first)));
        let old = Fence { token: 6, frozen: true, block: true, settled: 5, ..Fence::default() };
        let raised = Fence { frozen: true, block: true, settled: 5, ..first };
        assert_eq!(step(Fence { vacant: true, ..old }, 9), Step::Raise(raised));
        let half_way = Fence { raised: true, block_next: true, ..old };
        assert_eq!(step(half_way, 9), Step::Raise(Fence { block_next: true, ..raised }));
    }

    #[test]
    fn only_the_own_mark_when_it_is_open_lets_a_winner_lead() {
        let own = Fence { token: 7, issued: true, ..Fence::default() };
        assert_eq!(step(own, 9), Step::Lead);
        assert_eq!(step(Fence { raised: true, ..own }, 9), Step::Wait);
        assert_eq!(step(Fence { frozen: true, ..own }, 9), Step::Wait);
        assert_eq!(step(Fence { vacant: true, ..own }, 9), Step::QueueAgain);
        assert!(is_shut(&Fence { raised: true, ..own }.encode(), token(7)));
        assert!(!is_shut(&own.encode(), token(7)) && !is_shut(b"?", token(7)));
        assert!(!is_shut(&Fence { raised: true, token: 8, ..own }.encode(), token(7)));
    }

    #[test]
    fn a_higher_mark_is_passed_by_a_later_candidate_or_by_none() {
        let above = |token| Fence { token, ..Fence::default() };
        assert_eq!(step(above(8), 9), Step::QueueAgain);
        assert_eq!(step(above(9), 9), Step::QueueAgain);
        assert_eq!(step(above(10), 9), Step::Never);
        assert_eq!(step(above(1 << 48), 9), Step::Never, "a later era");
    }
}
