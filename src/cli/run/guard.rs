//! The guardian: a process beside `run` that kills the command in time when `run` does not.
//!
//! It is this program again, started before the command, in a session of its own: what stops or ends `run`'s
//! group does not reach it. `run` tells it each new deadline; silence is enough to make it act. The end of the
//! socket means that `run` is dead: then the command ends at once, and the guardian resigns in `run`'s place.
//!
//! What must stay true: it never waits for anything but the clock and `run`. It writes nothing that could block
//! before the command is dead, and resigns only when nothing of the command is left.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, setsid};

use super::family::{Family, KEEPER_TIME, LOOK_EVERY, collect};
use super::guardian::{THIS_PROGRAM, deaf};
use super::lease::Lease;
use super::link::Link;
use super::order::{Order, Said};
use super::schedule::{Due, Schedule};
use super::{say, token_file};
use highgate_elector::{Alarm, Moment};

/// What `run` gets to act first.
const LAG: Duration = Duration::from_millis(100);
/// How long a killed command may take to vanish before the guardian gives up looking.
const VANISHING: Duration = Duration::from_secs(10);

/// Watches over a command
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// The gate of the run
    #[arg(long)]
    gate: String,
    #[arg(long)]
    grace_nanos: u64,
    /// When the command has to be dead
    #[arg(long)]
    until: u64,
    /// The token file's folder, to be removed when `run` cannot
    #[arg(long)]
    folder: PathBuf,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

struct Guard {
    args: WatchArgs,
    schedule: Schedule,
    family: Family,
    /// When the command was killed by this process.
    killed_at: Option<Moment>,
    link: Link,
    timer: Alarm,
}

/// What woke the guardian.
enum Woken {
    Order(Order),
    RunIsGone,
    Time,
}

pub(super) async fn run(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let _deaf = deaf();
    setsid()?;
    let mut guard = Guard::new(args)?;
    guard.tell(Said::Ready);
    // Whoever says nothing is gone, and nothing has begun.
    let Some(lease) = guard.link.hear::<Lease>().await else { return Ok(ExitCode::SUCCESS) };
    if guard.watch().await? {
        return Ok(ExitCode::SUCCESS);
    }
    let is_dead = guard.finish().await?;
    token_file::remove(&guard.args.folder);
    say(&outcome(is_dead, &lease).await);
    Ok(ExitCode::SUCCESS)
}

/// Resigns if nothing of the command is left, and says how it went.
async fn outcome(is_dead: bool, lease: &Lease) -> String {
    let killed = "`highgate run` was killed";
    if !is_dead {
        return format!("{killed}; the command is not known to be dead; the lease is left to expire");
    }
    match lease.resign().await {
        Ok(()) => format!("{killed}; its guardian has ended the command and resigned"),
        Err(error) => {
            format!("{killed}; its guardian has ended the command; the lease runs out by itself: {error}")
        }
    }
}

impl Guard {
    fn new(args: WatchArgs) -> io::Result<Self> {
        let grace = Duration::from_nanos(args.grace_nanos);
        Ok(Self {
            schedule: Schedule::new(Moment::from_nanos(args.until), grace).lagging(LAG.min(grace / 4)),
            family: Family::gather()?,
            killed_at: None,
            link: Link::knock(&args.gate)?,
            timer: Alarm::new()?,
            args,
        })
    }

    /// Until the command has ended (true), or `run` is gone (false).
    async fn watch(&mut self) -> io::Result<bool> {
        loop {
            match self.next().await? {
                Woken::Order(Order::Keep) => self.keep()?,
                Woken::Order(Order::Until(deadline)) => {
                    self.schedule.renew(deadline);
                }
                Woken::Order(Order::KillBy(at)) => self.schedule.kill_by(at),
                Woken::Order(Order::Ended) => return Ok(true),
                Woken::RunIsGone => return Ok(false),
                Woken::Time => {
                    if self.act() {
                        self.tell(Said::Acted);
                    }
                }
            }
        }
    }

    async fn next(&mut self) -> io::Result<Woken> {
        // Whoever was begun while others were killed is killed at the next look.
        let again = self.killed_at.filter(|_| !collect(|_, _| ())).map(|_| Moment::now() + LOOK_EVERY);
        let wake_at = self.schedule.wake_at().or(again);
        tokio::select! {
            // What `run` says comes first: a renewal that has arrived counts.
            biased;
            order = self.link.hear() => Ok(order.map_or(Woken::RunIsGone, Woken::Order)),
            time = self.timer.until(wake_at) => time.map(|()| Woken::Time),
        }
    }

    /// Starts the command's keeper, if there is time.
    fn keep(&mut self) -> io::Result<()> {
        if !self.schedule.has_time(Moment::now()) {
            self.tell(Said::TooLate);
            return Ok(());
        }
        let keeper = Command::new(THIS_PROGRAM)
            .args(["guard", "keep", "--gate", &self.args.gate])
            .args(["--guardian", &getpid().as_raw_pid().to_string()])
            .args(["--until", &self.args.until.to_string(), "--folder"])
            .arg(&self.args.folder)
            .arg("--")
            .args(&self.args.command)
            .spawn()?;
        self.family.spare(Pid::from_child(&keeper));
        Ok(())
    }

    /// Signals the command if that is due. Nobody is there to hear that it was not permitted.
    fn act(&mut self) -> bool {
        match self.schedule.due(Moment::now()) {
            Some(Due::Terminate) => {
                let _ = self.family.signal(Signal::TERM);
                true
            }
            Some(Due::Kill) => {
                self.killed_at = Some(Moment::now());
                let _ = self.family.kill();
                true
            }
            None => {
                self.kill_again();
                false
            }
        }
    }

    fn kill_again(&mut self) {
        let Some(killed_at) = self.killed_at else { return };
        if Moment::now() >= killed_at + KEEPER_TIME {
            self.family.spare_nobody();
        }
        let _ = self.family.kill();
    }

    /// Ends the command without `run`: SIGTERM, the grace up to the deadline, SIGKILL. False if it would not die.
    async fn finish(&mut self) -> io::Result<bool> {
        if !self.schedule.is_ending() {
            let _ = self.family.signal(Signal::TERM);
            self.schedule.end(Moment::now());
        }
        let give_up = Moment::now().max(self.schedule.kill_at()) + VANISHING;
        while !collect(|_, _| ()) {
            if Moment::now() >= give_up {
                return Ok(false);
            }
            self.act();
            self.timer.until(Some(Moment::now() + LOOK_EVERY)).await?;
        }
        Ok(true)
    }

    /// `run` may be gone.
    fn tell(&self, said: Said) {
        let _ = self.link.tell(&said);
    }
}
