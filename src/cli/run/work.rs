//! The command's life under a leadership: started under guard, watched, and certainly dead when this returns.
//!
//! A thin loop around `plan.rs`, which decides. What must stay true: whatever the loop waits for, it wakes when
//! the plan wants to; and `run` never says that the command is dead without having looked.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Context;
use highgate_elector::Leadership;
use rustix::process::Signal;

use super::asks::Asks;
use super::family::{Family, KEEPER_TIME, LOOK_EVERY};
use super::guardian::{Guardian, Post};
use super::lease::Lease;
use super::order::{Kept, Order, Said, Start};
use super::plan::{Event, Plan, Why};
use super::say;
use super::schedule::Schedule;
use super::secrets::Access;
use super::terms::Terms;
use super::token_file::{Renewals, TokenFile};
use highgate_elector::{Alarm, Moment};

/// How long a killed command may take to vanish. Only a process that hangs in the kernel takes longer.
const VANISHING: Duration = Duration::from_secs(10);

/// How it ended.
pub(super) struct Ended {
    pub(super) why: Why,
    /// None if it never began, or would not die.
    pub(super) code: Option<u8>,
    /// Nothing of it can run any more.
    pub(super) is_dead: bool,
}

/// What is to be run, and for how long.
pub(super) struct Work<'a> {
    pub(super) command: &'a [OsString],
    pub(super) access: &'a Access,
    pub(super) terms: Terms,
    pub(super) max_time: Option<Duration>,
}

struct Supervisor<'a> {
    leadership: &'a Leadership,
    terms: Terms,
    plan: Plan,
    /// The deadline that the guardian knows.
    told: Moment,
    renewals: Renewals<'a>,
    guardian: Guardian,
    /// Whether the guardian can still say anything.
    is_guarded: bool,
    is_lost: bool,
    family: Family,
    /// How the command ended.
    code: Option<u8>,
    /// Whether the keeper can still say anything.
    is_kept: bool,
    timer: Alarm,
    killed_at: Option<Moment>,
}

/// Runs the command to its end, or to the end of the leadership. An error means that nothing runs.
pub(super) async fn run(work: &Work<'_>, leadership: &Leadership, asks: &mut Asks) -> anyhow::Result<Ended> {
    let Some(deadline) = deadline(leadership, &work.terms) else { return Ok(Ended::never_began()) };
    let Ok(signed) = leadership.source().signed_token() else { return Ok(Ended::never_began()) };
    let file = TokenFile::create(leadership.resource(), leadership.token(), signed)
        .context("cannot write the token file")?;
    let timer = Alarm::new().context("cannot set a timer")?;
    let mut family = Family::gather().context("cannot watch over the command's processes")?;
    let post = Post {
        command: work.command,
        lease: &Lease::new(work.access, leadership.grant()),
        deadline,
        grace: work.terms.grace,
        file: &file,
    };
    let Some(guardian) = Guardian::start(&post, &mut family).await? else { return Ok(Ended::never_began()) };
    if let Err(error) = guardian.keeper.tell(&Start) {
        guardian.dismiss().await;
        return Err(error).context("cannot start the command");
    }
    let stop_at = work.max_time.map(|limit| Moment::now() + limit);
    let mut supervisor = Supervisor {
        leadership,
        terms: work.terms,
        plan: Plan::new(Schedule::new(deadline, work.terms.grace), stop_at),
        told: deadline,
        renewals: Renewals::of(&file),
        guardian,
        is_guarded: true,
        is_lost: false,
        family,
        code: None,
        is_kept: true,
        timer,
        killed_at: None,
    };
    let is_dead = supervisor.supervise(asks).await.unwrap_or_else(|error| {
        // The guardian does the rest when this process ends.
        say(&format!("{error:#}"));
        false
    });
    supervisor.end(is_dead).await
}

/// Until when the command may live: a margin before the lease can expire. None if that is over.
fn deadline(leadership: &Leadership, terms: &Terms) -> Option<Moment> {
    let until = leadership.valid_until();
    // In this order: what was read from a leadership that is valid afterwards was its lease.
    leadership.is_valid().then(|| until.before(terms.margin))
}

impl Ended {
    fn never_began() -> Self {
        Self { why: Why::Lost, code: None, is_dead: true }
    }
}

impl Supervisor<'_> {
    /// Until everything of the command is dead. False if it would not die.
    async fn supervise(&mut self, asks: &mut Asks) -> anyhow::Result<bool> {
        loop {
            let event = self.next(asks).await?;
            // First, so that the clock is judged by the lease as it is.
            self.note_renewal();
            self.note_signed_token();
            self.step(event);
            if !self.is_kept && self.family.is_dead() {
                return Ok(true);
            }
            self.kill_again();
            if self.killed_at.is_some_and(|at| Moment::now() >= at + VANISHING) {
                return Ok(false);
            }
        }
    }

    async fn next(&mut self, asks: &mut Asks) -> anyhow::Result<Event> {
        let look_every = if self.plan.is_ending() { LOOK_EVERY } else { self.terms.look_every() };
        let look_at = Moment::now() + look_every;
        let wake_at = self.plan.wake_at().map_or(look_at, |at| at.min(look_at));
        Ok(tokio::select! {
            biased;
            said = self.guardian.link.hear(), if self.is_guarded => match said {
                Some(Said::Acted) => Event::GuardianActed,
                Some(Said::Ready | Said::TooLate) => Event::Tick,
                None => {
                    self.is_guarded = false;
                    Event::GuardianGone
                }
            },
            signal = asks.next() => Event::Asked(signal),
            _ = self.leadership.lost(), if !self.is_lost => {
                self.is_lost = true;
                Event::Lost
            }
            kept = self.guardian.keeper.hear(), if self.is_kept => self.note_kept(kept),
            time = self.timer.until(Some(wake_at)) => {
                time.context("the timer failed")?;
                Event::Tick
            }
        })
    }

    /// A keeper that goes without a word was killed, and the command's own process with it.
    fn note_kept(&mut self, kept: Option<Kept>) -> Event {
        match kept {
            Some(Kept::Started) => Event::Started,
            Some(Kept::Left(code)) => {
                self.code = Some(code);
                Event::LeftOthers
            }
            Some(Kept::Empty(code)) => {
                self.code = Some(code);
                self.is_kept = false;
                Event::Tick
            }
            None => {
                self.is_kept = false;
                Event::GuardianGone
            }
        }
    }

    /// Whoever was begun while others were killed is killed now.
    fn kill_again(&mut self) {
        let Some(killed_at) = self.killed_at else { return };
        if Moment::now() >= killed_at + KEEPER_TIME {
            self.family.spare_nobody();
            // The guardian is killed as well, and is not missed: nobody is left for it to guard.
            self.is_guarded = false;
        }
        // That it is not permitted was said at the first time.
        let _ = self.family.kill();
    }

    /// Once the command was told to end, a renewal would come too late for it.
    fn note_renewal(&mut self) {
        let Some(deadline) = deadline(self.leadership, &self.terms) else { return };
        if deadline > self.told && !self.plan.is_ending() {
            self.step(Event::Renewed(deadline));
            self.told = deadline;
            self.order(Order::Until(deadline));
        }
    }

    fn note_signed_token(&mut self) {
        let Ok(Some(fresh)) = self.leadership.source().signed_token() else { return };
        if let Err(error) = self.renewals.follow(fresh) {
            say(&format!(
                "a renewed signed token cannot be written for the command: {error}; it is tried again"
            ));
        }
    }

    fn step(&mut self, event: Event) {
        let was_ending = self.plan.is_ending();
        for signal in self.plan.step(Moment::now(), event) {
            let sent = if signal == Signal::KILL { self.family.kill() } else { self.family.signal(signal) };
            if let Err(error) = sent {
                say(&format!("the command cannot be signalled: {error}"));
            }
            if signal == Signal::KILL {
                self.killed_at = Some(Moment::now());
            }
        }
        if self.plan.is_ending() && !was_ending {
            self.order(Order::KillBy(self.plan.kill_at()));
            self.announce(event);
        }
    }

    /// A guardian that cannot be told is none.
    fn order(&mut self, order: Order) {
        if self.is_guarded && self.guardian.link.tell(&order).is_err() {
            self.is_guarded = false;
            self.step(Event::GuardianGone);
        }
    }

    /// Without being dismissed the guardian goes on trying to end the command.
    async fn end(self, is_dead: bool) -> anyhow::Result<Ended> {
        let (why, code) = (self.plan.why(), self.code);
        if is_dead {
            self.guardian.dismiss().await;
        }
        Ok(Ended { why, code, is_dead })
    }

    /// Says why the command is being ended.
    fn announce(&self, event: Event) {
        match (self.plan.why(), self.leadership.check()) {
            (Why::Lost, _) if event == Event::GuardianActed => {
                say("the guardian ends the command, because this process stood still for too long");
            }
            (Why::Lost, Err(lost)) => say(&format!("leadership lost, {lost}; ending the command")),
            (Why::Lost, Ok(_)) => say("the lease is not being renewed; ending the command before it expires"),
            (Why::OutOfTime, _) => say("the command has used up its --max-time; ending it"),
            (Why::Unguarded, _) => say("the guardian is gone; ending the command"),
            (Why::Done, _) => say("the command has ended and left processes behind; ending them"),
            (Why::Asked, _) => {}
        }
    }
}
