//! What a winner finds in etcd beside its own key, and what there is to do before it may lead. Pure.
//!
//! [`super::campaign`] reads it in the same transaction that shows that the candidate leads, and [`super::seal`]
//! takes the steps. What must stay true: a token is handed out only on a ground that shows its mark open, or no
//! gateway at all, not even one that was evicted and may still forward.

use highgate_etcd::fence::Fence;
use highgate_etcd::{CallError, Outcome, keys};

use super::campaign::read_era;
use super::graves::Grave;
use crate::Token;

/// What a winner finds in etcd beside its own key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ground {
    pub era: u64,
    /// The revision that wrote the era; 0 while nobody has.
    pub era_changed: i64,
    /// The value of the resource's mark; None: it has none yet.
    pub mark: Option<Vec<u8>>,
    /// The revision that wrote the mark.
    pub mark_changed: i64,
    /// Gateways serve below this prefix, or were evicted and may still forward.
    pub guarded: bool,
    /// The tombstones of gateways that were evicted.
    pub graves: Vec<Grave>,
    /// The newest revision, which no token that etcd has issued is above.
    pub revision: i64,
}

/// What there is to do before the token is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Lead,
    /// The mark has to become this.
    Raise(Fence),
    /// The gateways open it when they can.
    Wait,
    /// The mark has passed this candidate by: only a later one can pass it.
    QueueAgain,
    /// The mark is above every token that etcd can issue in this era.
    Never,
}

impl Ground {
    /// From the answers to [`super::seal::questions`], of which the first is at this place. Whether an evicted gateway
    /// may still forward is a matter of time, and for the caller to add.
    pub(super) fn read(answer: &Outcome, place: usize) -> Result<Self, CallError> {
        let (era, mark) = (answer.found(place), answer.found(place + 1).first());
        Ok(Self {
            era: read_era(era)?,
            era_changed: era.first().map_or(0, |kv| kv.mod_revision),
            mark: mark.map(|kv| kv.value.clone()),
            mark_changed: mark.map_or(0, |kv| kv.mod_revision),
            guarded: !answer.found(place + 2).is_empty(),
            graves: answer.found(place + 3).iter().map(Grave::read).collect(),
            revision: answer.revision(),
        })
    }

    /// What comes next for who has this token and leads. None of a mark that is none.
    pub fn step(&self, token: Token) -> Option<Step> {
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

/// This very mark, not passing yet.
pub fn is_shut(mark: &[u8], token: Token) -> bool {
    let mark = Fence::decode(mark);
    mark.is_some_and(|mark| mark.token == token.get() && !mark.vacant && (mark.raised || mark.frozen))
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
