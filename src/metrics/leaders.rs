//! Who leads, as metrics: for jobs in any language, which have none of their own.
//!
//! Follows what the store tells, so a scrape asks nobody. Only resources within the cap have series of their own; of
//! the others only their changes are counted, and how many wait. What must stay true: a holder that leads no longer has
//! no series.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use highgate_elector::Resource;
use metrics::{Histogram, Label};
use parking_lot::Mutex;

use super::resources::{OTHER, PerResource};
use super::text::Text;
use super::{Registry, lossy, names};
use crate::elections::{Ended, Event, Standing};
use crate::events::short_holder;

/// How many handovers are timed at once.
const MAX_PENDING: usize = 100_000;
/// After so long without a successor it is no handover any more: the resource has no leader, as its series say.
const LONGEST_HANDOVER: Duration = Duration::from_secs(60 * 60);
/// How often handovers that took too long are looked for.
const AGE_EVERY: Duration = Duration::from_secs(60);

pub(super) struct Leaders {
    elections: [(Cause, PerResource); Cause::ALL.len()],
    failover: Histogram,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Resources within the cap that have been led.
    named: HashMap<Resource, State>,
    /// Handovers under way, of all resources.
    pending: HashMap<Resource, Handover>,
    /// When those that took too long were last looked for.
    aged: Option<Instant>,
    /// Resources for which somebody waits.
    waiting: HashMap<Resource, usize>,
    waiting_in_all: usize,
    /// Somebody has waited for a resource without series of its own.
    others_waited: bool,
}

#[derive(Default)]
struct State {
    leader: Option<(String, u64)>,
    /// Since nobody's token has passed.
    leaderless: Option<Instant>,
}

/// From the end of a leader to the seal of the next.
struct Handover {
    began: Instant,
    /// The token of the next, once it is known.
    token: Option<u64>,
}

impl Handover {
    fn is_too_long(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) > LONGEST_HANDOVER
    }
}

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Won,
    Expired,
    Resigned,
    Evicted,
    Superseded,
    Unknown,
}

impl Cause {
    const ALL: [Self; 6] =
        [Self::Won, Self::Expired, Self::Resigned, Self::Evicted, Self::Superseded, Self::Unknown];

    fn label(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Expired => "expired",
            Self::Resigned => "resigned",
            Self::Evicted => "evicted",
            Self::Superseded => "superseded",
            Self::Unknown => "unknown",
        }
    }

    fn of(event: &Event) -> Self {
        match event {
            Event::Elected { .. } => Self::Won,
            Event::Ended { why, .. } => match why {
                Ended::Expired => Self::Expired,
                Ended::Resigned => Self::Resigned,
                Ended::Evicted => Self::Evicted,
                Ended::Overtaken => Self::Superseded,
                Ended::Gone => Self::Unknown,
            },
        }
    }
}

impl Leaders {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            elections: Cause::ALL.map(|cause| {
                let label = Label::new("cause", cause.label());
                (cause, PerResource::new(registry, names::ELECTIONS, vec![label]))
            }),
            failover: registry.histogram(names::FAILOVER, vec![]),
            known: Mutex::default(),
        }
    }

    pub(super) fn hear(&self, registry: &Registry, event: &Event) {
        let cause = Cause::of(event);
        let (Event::Elected { resource, .. } | Event::Ended { resource, .. }) = event;
        for (_, counters) in self.elections.iter().filter(|(counted, _)| *counted == cause) {
            counters.of(registry, resource).increment(1);
        }
        let mut known = self.known.lock();
        match event {
            Event::Elected { holder, token, .. } => known.elected(registry, resource, holder, token.get()),
            Event::Ended { .. } => known.ended(resource, cause, Instant::now()),
        }
    }

    /// A mark is open: if it is the token of a new leader, the handover is over.
    pub(super) fn sealed(&self, resource: &Resource, mark: u64) {
        self.sealed_at(resource, mark, Instant::now());
    }

    fn sealed_at(&self, resource: &Resource, mark: u64, now: Instant) {
        let mut known = self.known.lock();
        if let Some(state) = known.named.get_mut(resource)
            && state.leader.as_ref().is_some_and(|(_, token)| *token == mark)
        {
            state.leaderless = None;
        }
        if known.pending.get(resource).is_some_and(|handover| handover.token == Some(mark))
            && let Some(handover) = known.pending.remove(resource)
            && !handover.is_too_long(now)
        {
            self.failover.record(now.saturating_duration_since(handover.began));
        }
    }

    /// These lead and wait, and nobody else.
    pub(super) fn stand(&self, registry: &Registry, standing: &[Standing]) {
        let mut known = self.known.lock();
        let mut before = std::mem::take(&mut known.named);
        known.waiting.clear();
        known.waiting_in_all = 0;
        for Standing { resource, leader, waiting } in standing {
            known.line(registry, resource, *waiting);
            if let Some((holder, token)) = leader
                && registry.cap.admits(resource)
            {
                before.remove(resource);
                let leader = Some((short_holder(holder).into_owned(), token.get()));
                known.named.insert(resource.clone(), State { leader, leaderless: None });
            }
        }
        for (resource, state) in before {
            let leaderless = state.leaderless.or_else(|| Some(Instant::now()));
            known.named.insert(resource, State { leader: None, leaderless });
        }
    }

    pub(super) fn line(&self, registry: &Registry, resource: &Resource, waiting: usize) {
        self.known.lock().line(registry, resource, waiting);
    }

    /// The leader of the resource has gone before this process could see it: nobody leads since now, at least.
    pub(super) fn is_vacant(&self, resource: &Resource) {
        let mut known = self.known.lock();
        if !known.named.contains_key(resource) {
            let state = State { leader: None, leaderless: Some(Instant::now()) };
            known.named.insert(resource.clone(), state);
        }
    }

    pub(super) fn write(&self, text: &mut Text) {
        let known = self.known.lock();
        let leads = known.named.iter().filter_map(|(resource, state)| {
            let (holder, _) = state.leader.as_ref()?;
            Some((vec![("resource", resource.as_str()), ("holder", holder.as_str())], 1.0))
        });
        text.metric(names::LEADER, leads);
        let leaderless = known.named.iter().map(|(resource, state)| {
            let seconds = state.leaderless.map_or(0.0, |since| since.elapsed().as_secs_f64());
            (vec![("resource", resource.as_str())], seconds)
        });
        text.metric(names::LEADERLESS, leaderless);
        let waiting = |resource: &Resource| known.waiting.get(resource).copied().unwrap_or(0);
        let named: usize = known.named.keys().map(waiting).sum();
        let others = known
            .others_waited
            .then(|| (vec![("resource", OTHER)], lossy(known.waiting_in_all.saturating_sub(named) as u64)));
        let lines = known
            .named
            .keys()
            .map(|resource| (vec![("resource", resource.as_str())], lossy(waiting(resource) as u64)));
        text.metric(names::WAITING, lines.chain(others));
    }
}

impl Known {
    fn elected(&mut self, registry: &Registry, resource: &Resource, holder: &str, token: u64) {
        if let Some(handover) = self.pending.get_mut(resource) {
            handover.token = Some(token);
        }
        if !registry.cap.admits(resource) {
            return;
        }
        let state = self.named.entry(resource.clone()).or_default();
        state.leader = Some((short_holder(holder).into_owned(), token));
    }

    fn ended(&mut self, resource: &Resource, cause: Cause, now: Instant) {
        if let Some(state) = self.named.get_mut(resource) {
            state.leader = None;
            state.leaderless.get_or_insert(now);
        }
        // A leader that gave up with nobody behind it is no failover: its successor may come next week.
        let awaited = self.waiting.contains_key(resource);
        self.forget_long_handovers(now);
        if (cause != Cause::Resigned || awaited) && self.pending.len() < MAX_PENDING {
            self.pending.insert(resource.clone(), Handover { began: now, token: None });
        }
    }

    fn forget_long_handovers(&mut self, now: Instant) {
        if self.aged.is_some_and(|aged| now.saturating_duration_since(aged) < AGE_EVERY) {
            return;
        }
        self.aged = Some(now);
        self.pending.retain(|_, handover| !handover.is_too_long(now));
    }

    fn line(&mut self, registry: &Registry, resource: &Resource, waiting: usize) {
        let before = match waiting {
            0 => self.waiting.remove(resource),
            waiting => self.waiting.insert(resource.clone(), waiting),
        };
        self.waiting_in_all = self.waiting_in_all + waiting - before.unwrap_or(0);
        self.others_waited |= waiting > 0 && !registry.cap.admits(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handover_without_a_successor_is_not_waited_for_for_ever() {
        let mut known = Known::default();
        let resource = |number: usize| Resource::parse(&format!("r/{number}")).unwrap();
        let began = Instant::now();
        for number in 0..MAX_PENDING {
            known.ended(&resource(number), Cause::Expired, began);
        }
        known.ended(&resource(MAX_PENDING), Cause::Expired, began + LONGEST_HANDOVER);
        assert_eq!(known.pending.len(), MAX_PENDING, "so many are timed, and no more");
        let later = began + LONGEST_HANDOVER + AGE_EVERY;
        known.ended(&resource(MAX_PENDING), Cause::Expired, later);
        assert_eq!(known.pending.len(), 1, "those without a successor make room for those that may have one");
    }

    #[test]
    fn a_successor_after_hours_ends_no_failover() {
        let registry = Registry { recorder: super::super::recorder(), cap: super::super::Cap::new(10) };
        let leaders = Leaders::new(&registry);
        let resource = Resource::parse("ledger").unwrap();
        let recorded = || {
            let text = registry.recorder.handle().render();
            text.lines().find_map(|line| line.strip_prefix("highgate_failover_seconds_count ")?.parse().ok())
        };
        let began = Instant::now();
        for (token, took, count) in [(7, LONGEST_HANDOVER * 2, 0), (8, LONGEST_HANDOVER / 2, 1)] {
            leaders.known.lock().ended(&resource, Cause::Expired, began);
            leaders.known.lock().elected(&registry, &resource, "job", token);
            leaders.sealed_at(&resource, token, began + took);
            assert_eq!(recorded(), Some(count), "after {took:?}");
            assert!(leaders.known.lock().pending.is_empty());
        }
    }
}
