//! The guardian: a process beside `run` that kills the command's group in time when `run` does not.
//!
//! It is this program again, started before the command, in a session of its own: what stops or ends `run`'s
//! group does not reach it. `run` tells it each new deadline; silence is enough to make it act. The end of the
//! pipe means that `run` is dead: then the command ends at once, and the lease is left to expire.
//!
//! What must stay true: it never waits for anything but the clock, `run` and its gate. It writes nothing that
//! could block before the group is dead.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener as StdListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, setsid};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::pipe::Receiver;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};

use super::group::{Group, LOOK_EVERY};
use super::launch::{GO, address};
use super::order::{Order, Said};
use super::schedule::{Due, Schedule};
use super::{say, token_file};
use highgate_elector::{Alarm, Moment};

/// What `run` gets to act first.
const LAG: Duration = Duration::from_millis(100);
/// How long a killed group may take to vanish before the guardian gives up looking.
const VANISHING: Duration = Duration::from_secs(10);

/// Watches over a command's process group
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// The name of the gate at which the command asks to be let in
    #[arg(long)]
    pub(super) gate: String,
    #[arg(long)]
    pub(super) grace_nanos: u64,
    /// When the group has to be dead
    #[arg(long)]
    pub(super) until: u64,
    /// The token file's folder, to be removed when `run` cannot
    #[arg(long)]
    pub(super) folder: PathBuf,
}

struct Guard {
    schedule: Schedule,
    /// Known from when the command was let in.
    group: Option<Group>,
    gate: UnixListener,
    orders: Lines<BufReader<Receiver>>,
    timer: Alarm,
}

/// What woke the guardian.
enum Woken {
    Order(Order),
    RunIsGone,
    Knock(UnixStream),
    Time,
}

pub(super) async fn run(args: WatchArgs) -> anyhow::Result<ExitCode> {
    // Listened for only so that they do not end it.
    let _deaf = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()]
        .map(signal);
    setsid()?;
    let mut guard = Guard::new(&args)?;
    tell(Said::Ready);
    if guard.watch().await? {
        return Ok(ExitCode::SUCCESS);
    }
    guard.finish().await?;
    token_file::remove(&args.folder);
    say("`highgate run` was killed; its guardian has ended the command, and the lease runs out by itself");
    Ok(ExitCode::SUCCESS)
}

impl Guard {
    fn new(args: &WatchArgs) -> io::Result<Self> {
        let gate = StdListener::bind_addr(&address(&args.gate)?)?;
        gate.set_nonblocking(true)?;
        let orders = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
        let grace = Duration::from_nanos(args.grace_nanos);
        Ok(Self {
            schedule: Schedule::new(Moment::from_nanos(args.until), grace).lagging(LAG.min(grace / 4)),
            group: None,
            gate: UnixListener::from_std(gate)?,
            orders: BufReader::new(orders).lines(),
            timer: Alarm::new()?,
        })
    }

    /// Until the command has ended (true), or `run` is gone (false).
    async fn watch(&mut self) -> io::Result<bool> {
        loop {
            match self.next().await? {
                Woken::Order(Order::Until(deadline)) => {
                    self.schedule.renew(deadline);
                }
                Woken::Order(Order::KillBy(at)) => self.schedule.kill_by(at),
                Woken::Order(Order::Ended) => return Ok(true),
                Woken::RunIsGone => return Ok(false),
                Woken::Knock(stream) => self.admit(stream).await,
                Woken::Time => {
                    if self.act() {
                        tell(Said::Acted);
                    }
                }
            }
        }
    }

    async fn next(&mut self) -> io::Result<Woken> {
        let wake_at = self.schedule.wake_at();
        tokio::select! {
            // What `run` says comes first: a renewal that has arrived counts.
            biased;
            line = self.orders.next_line() => Ok(match line {
                Ok(Some(line)) => line.parse().map_or(Woken::RunIsGone, Woken::Order),
                Ok(None) | Err(_) => Woken::RunIsGone,
            }),
            time = self.timer.until(wake_at) => {
                time.map(|()| Woken::Time)
            }
            knock = self.gate.accept(), if self.group.is_none() => knock.map(|(stream, _)| Woken::Knock(stream)),
        }
    }

    /// Lets the command begin if nobody was let in before and there is time. Whom it does not answer gives up.
    async fn admit(&mut self, mut stream: UnixStream) {
        let Ok(peer) = stream.peer_cred() else { return };
        let Some(pid) = peer.pid().and_then(Pid::from_raw) else { return };
        let is_ours = peer.uid() == geteuid().as_raw();
        if !is_ours || self.group.is_some() || !self.schedule.has_time(Moment::now()) {
            return;
        }
        self.group = Some(Group::led_by(pid));
        // It can only be gone.
        let _ = stream.write_all(&[GO]).await;
    }

    /// Signals the group if that is due.
    fn act(&mut self) -> bool {
        let signal = match self.schedule.due(Moment::now()) {
            Some(Due::Terminate) => Signal::TERM,
            Some(Due::Kill) => Signal::KILL,
            None => return false,
        };
        self.signal(signal);
        true
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Nobody is there to hear that it was not permitted, and the kill is tried all the same.
            let _ = group.signal(signal);
        }
    }

    /// Ends the group without `run`: SIGTERM, the grace up to the deadline, SIGKILL.
    async fn finish(&mut self) -> io::Result<()> {
        let Some(group) = self.group else { return Ok(()) };
        if !self.schedule.is_ending() {
            self.signal(Signal::TERM);
            self.schedule.end(Moment::now());
        }
        let give_up = Moment::now().max(self.schedule.kill_at()) + VANISHING;
        while !group.is_dead() && Moment::now() < give_up {
            self.act();
            self.timer.until(Some(Moment::now() + LOOK_EVERY)).await?;
        }
        Ok(())
    }
}

/// A few bytes, which a pipe always has room for; `run` may be gone.
fn tell(said: Said) {
    let mut output = io::stdout();
    let _ = writeln!(output, "{said}").and_then(|()| output.flush());
}
