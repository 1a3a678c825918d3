//! One act: two leaders, one lease, and a pause between a check and a write.
//!
//! The same for both acts but for where the leaders write to. The pause is a SIGSTOP of the whole process,
//! from after its check until another leader has written. Anything a leader does that is not in the story
//! ends the act with an error.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use http::StatusCode;
use tokio::time::{Instant, sleep_until};

use super::leader::{Answered, Said};
use super::lease::{LeaseServer, TTL};
use super::ledger::{Record, is_stale};
use super::process::Leader;
use super::timeline::{Timeline, Tone};

/// The write of the leader that was paused past its lease, and what came of it.
pub(super) struct StaleWrite {
    pub(super) invoice: String,
    pub(super) token: u64,
    answer: Answered,
}

impl StaleWrite {
    /// It was accepted, and is in the ledger after the write of the leader of now.
    pub(super) fn landed(&self, records: &[Record]) -> bool {
        let last = records.len().saturating_sub(1);
        self.answer.is_success()
            && records.last().is_some_and(|record| record.token == Some(self.token))
            && is_stale(records, last)
    }

    /// It was refused as stale, and the ledger knows nothing of it.
    pub(super) fn was_stopped(&self, records: &[Record]) -> bool {
        self.answer.status == StatusCode::PRECONDITION_FAILED
            && self.answer.reason.as_deref() == Some("stale")
            && records.iter().filter(|record| record.invoice == self.invoice).count() == 1
            && (0..records.len()).all(|index| !is_stale(records, index))
    }
}

/// Plays the act with leaders that write to `target`.
pub(super) async fn play(timeline: &Timeline, target: SocketAddr) -> anyhow::Result<StaleWrite> {
    let lease = LeaseServer::start().await.context("the lease cannot be served")?;
    timeline
        .say("lease", &format!("lasts {TTL:?} unless renewed; whoever acquires it gets a higher token"))?;
    let mut a = Actor::enter(timeline, "leader A", lease.address(), target).await?;
    let mut b = Actor::enter(timeline, "leader B", lease.address(), target).await?;

    a.campaigns()?;
    let token = a.leads("acquired the lease").await?;
    b.campaigns()?;
    b.waits().await?;
    a.checks().await?;
    a.pays(token).await?;

    let invoice = a.checks().await?;
    let paused = a.pauses().await?;
    let higher = b.leads("acquired the lease when it ran out").await?;
    ensure!(b.checks().await? == invoice, "not as told: another invoice than {invoice} was due");
    b.pays(higher).await?;

    a.wakes(paused).await?;
    let answer = a.writes_late(token).await?;
    a.learns().await?;
    Ok(StaleWrite { invoice, token, answer })
}

/// A leader on the stage: what it says goes into the timeline.
struct Actor<'a> {
    timeline: &'a Timeline,
    leader: Leader,
}

impl<'a> Actor<'a> {
    async fn enter(
        timeline: &'a Timeline,
        name: &'static str,
        lease: SocketAddr,
        target: SocketAddr,
    ) -> anyhow::Result<Self> {
        let mut leader = Leader::start(name, lease, target)?;
        match leader.hear().await? {
            Said::Ready => {}
            other => bail!("not as told: {name} began with {other:?}"),
        }
        timeline.say(name, &format!("starts as process {}", leader.pid()))?;
        Ok(Self { timeline, leader })
    }

    /// Takes part in the election from now on.
    fn campaigns(&mut self) -> anyhow::Result<()> {
        self.leader.go_on()
    }

    async fn waits(&mut self) -> anyhow::Result<()> {
        match self.leader.hear().await? {
            Said::Waits => self.say("wants the lease too, and waits"),
            other => self.not_in_the_story(&other),
        }
    }

    async fn leads(&mut self, how: &str) -> anyhow::Result<u64> {
        match self.leader.hear().await? {
            Said::Leads { token } => {
                self.say(&format!("{how}, leads with token {token}"))?;
                Ok(token)
            }
            other => self.not_in_the_story(&other),
        }
    }

    /// The invoice it would pay now.
    async fn checks(&mut self) -> anyhow::Result<String> {
        match self.leader.hear().await? {
            Said::Checked { invoice } => {
                self.say(&format!("checks: {invoice} is unpaid, the lease is renewed and still mine"))?;
                Ok(invoice)
            }
            other => self.not_in_the_story(&other),
        }
    }

    async fn pays(&mut self, token: u64) -> anyhow::Result<()> {
        self.leader.go_on()?;
        let answer = self.answered().await?;
        let Answered { invoice, status, .. } = &answer;
        ensure!(answer.is_success(), "{} could not pay {invoice}: {status}", self.leader.name());
        self.say(&format!("pays {invoice} with token {token}: {}", answer.status_line()))
    }

    async fn pauses(&mut self) -> anyhow::Result<Instant> {
        let paused = Instant::now();
        self.leader.pause().await?;
        // It will go on as soon as it can: nothing but the pause holds it.
        self.leader.go_on()?;
        let what = format!("is stopped between check and write (SIGSTOP to process {})", self.leader.pid());
        self.timeline.say_toned(Tone::Bad, self.leader.name(), &what)?;
        Ok(paused)
    }

    /// Never before the pause has outlasted a lease, whatever the others did.
    async fn wakes(&self, paused: Instant) -> anyhow::Result<()> {
        sleep_until(paused + TTL).await;
        self.leader.resume()?;
        let seconds = paused.elapsed().as_secs_f64();
        self.say(&format!("wakes after {seconds:.2} s (SIGCONT), and for all it knows still leads"))
    }

    /// What comes back for the write that the pause was before.
    async fn writes_late(&mut self, token: u64) -> anyhow::Result<Answered> {
        let answer = self.answered().await?;
        let (invoice, status) = (&answer.invoice, answer.status_line());
        let (tone, verb) =
            if answer.is_success() { (Tone::Bad, "pays") } else { (Tone::Good, "tries to pay") };
        let reason = answer.reason.as_ref().map_or_else(String::new, |reason| format!(", {reason}"));
        let what = format!("{verb} {invoice} with its old token {token}: {status}{reason}");
        self.timeline.say_toned(tone, self.leader.name(), &what)?;
        if let Some(detail) = &answer.detail {
            self.timeline.more(&format!("\"{detail}\""))?;
        }
        Ok(answer)
    }

    async fn learns(&mut self) -> anyhow::Result<()> {
        match self.leader.hear().await? {
            Said::Deposed { by } => {
                let holder = by.unwrap_or_else(|| "nobody".to_owned());
                self.say(&format!("learns from its next renewal that the lease is {holder}'s"))
            }
            other => self.not_in_the_story(&other),
        }
    }

    async fn answered(&mut self) -> anyhow::Result<Answered> {
        match self.leader.hear().await? {
            Said::Answered(answer) => Ok(answer),
            other => self.not_in_the_story(&other),
        }
    }

    fn say(&self, what: &str) -> anyhow::Result<()> {
        Ok(self.timeline.say(self.leader.name(), what)?)
    }

    fn not_in_the_story<T>(&self, said: &Said) -> anyhow::Result<T> {
        bail!("not as told: {} came with {said:?}", self.leader.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale_write(status: u16, reason: Option<&str>) -> StaleWrite {
        let (invoice, reason) = ("invoice-2".to_owned(), reason.map(str::to_owned));
        let answer = Answered { invoice: invoice.clone(), status, reason, detail: None };
        StaleWrite { invoice, token: 33, answer }
    }

    fn records(payments: &[(u64, &str)]) -> Vec<Record> {
        let record = |&(token, invoice): &(u64, &str)| Record {
            token: Some(token),
            who: "a leader".to_owned(),
            invoice: invoice.to_owned(),
            arrived: std::time::Instant::now(),
        };
        payments.iter().map(record).collect()
    }

    #[test]
    fn a_write_landed_only_if_it_was_accepted_and_recorded_after_the_later_leader() {
        let twice = records(&[(33, "invoice-1"), (34, "invoice-2"), (33, "invoice-2")]);
        assert!(stale_write(201, None).landed(&twice));
        assert!(!stale_write(500, None).landed(&twice));
        assert!(!stale_write(201, None).landed(&twice[..2]));
        assert!(!stale_write(201, None).landed(&[]));
    }

    #[test]
    fn a_write_was_stopped_only_if_it_was_refused_as_stale_and_not_recorded() {
        let once = records(&[(33, "invoice-1"), (34, "invoice-2")]);
        assert!(stale_write(412, Some("stale")).was_stopped(&once));
        assert!(!stale_write(412, None).was_stopped(&once));
        assert!(!stale_write(503, Some("raising")).was_stopped(&once));
        let twice = records(&[(33, "invoice-1"), (34, "invoice-2"), (33, "invoice-2")]);
        assert!(!stale_write(412, Some("stale")).was_stopped(&twice));
        assert!(!stale_write(412, Some("stale")).was_stopped(&once[..1]));
    }
}
