//! `run`'s end of the sockets to its guardian and to the command's keeper.
//!
//! What must stay true: when a run begins, both are there, and nothing of the command has begun. Without being
//! dismissed the guardian stays on guard, so that every other way out of `run` ends the command.

use std::ffi::OsString;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::Context;
use rustix::process::Pid;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::timeout;

use super::family::{Family, Process};
use super::lease::Lease;
use super::link::{Gate, Link};
use super::order::{Order, Said};
use super::secrets::scrub;
use super::token_file::TokenFile;
use highgate_elector::Moment;

/// This program, whatever has been installed in its place since it was started.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";
const STARTING: Duration = Duration::from_secs(10);
const LEAVING: Duration = Duration::from_secs(1);

/// What the guardian has to know from the start.
pub(super) struct Post<'a> {
    pub(super) command: &'a [OsString],
    pub(super) lease: &'a Lease,
    pub(super) deadline: Moment,
    pub(super) grace: Duration,
    pub(super) file: &'a TokenFile,
}

pub(super) struct Guardian {
    process: Child,
    pub(super) link: Link,
    /// To the command's keeper.
    pub(super) keeper: Link,
}

impl Guardian {
    /// Starts both; none if it is too late to begin. Neither belongs to the command's family.
    pub(super) async fn start(post: &Post<'_>, family: &mut Family) -> anyhow::Result<Option<Self>> {
        let gate = Gate::open().context("there is no gate for the guardian")?;
        let mut process = post.guardian(gate.name()).spawn().context("the guardian did not start")?;
        let started = timeout(STARTING, meet(&gate, Pid::from_child(&process), post.lease, family)).await;
        let met = match started {
            Ok(Ok(met)) => met,
            failed => {
                // Either fails only for a process that has ended.
                let _ = process.kill();
                let _ = process.wait();
                return match failed {
                    Ok(Err(error)) => Err(error),
                    _ => Err(anyhow::anyhow!("the guardian did not start in time")),
                };
            }
        };
        let Some((link, keeper)) = met else {
            let _ = process.wait();
            return Ok(None);
        };
        Ok(Some(Self { process, link, keeper }))
    }

    /// The command is dead: sends the guardian home, and makes sure that it went.
    pub(super) async fn dismiss(mut self) {
        let _ = self.link.tell(&Order::Ended);
        let gone = async { while self.link.hear::<Said>().await.is_some() {} };
        let _ = timeout(LEAVING, gone).await;
        // Either fails only for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for the guardian and, by its hand, for the keeper.
async fn meet(
    gate: &Gate,
    guardian: Pid,
    lease: &Lease,
    family: &mut Family,
) -> anyhow::Result<Option<(Link, Link)>> {
    let (mut link, _) = gate.admit(|pid| pid == guardian).await?;
    family.spare(guardian);
    anyhow::ensure!(link.hear().await == Some(Said::Ready), "the guardian did not start");
    link.tell(lease)?;
    link.tell(&Order::Keep)?;
    let is_keeper = |pid| Process::read(pid).is_some_and(|process| process.parent == guardian);
    tokio::select! {
        admitted = gate.admit(is_keeper) => {
            let (keeper, pid) = admitted?;
            family.spare(pid);
            Ok(Some((link, keeper)))
        }
        said = link.hear() => match said {
            Some(Said::TooLate) => Ok(None),
            _ => anyhow::bail!("the guardian did not start the command"),
        },
    }
}

impl Post<'_> {
    /// Stdin, stdout, stderr and the environment are those that the command gets: without secrets.
    fn guardian(&self, gate: &str) -> Command {
        let mut command = Command::new(THIS_PROGRAM);
        scrub(&mut command);
        self.file.hand_to(&mut command);
        command
            .args(["guard", "watch", "--gate", gate])
            .args(["--grace-nanos", &self.grace.as_nanos().to_string()])
            .args(["--until", &self.deadline.nanos().to_string(), "--folder"])
            .arg(self.file.folder())
            .arg("--")
            .args(self.command);
        command
    }
}

/// Signals that are listened for only so that they do not end guardian and keeper. Not ignored: the command would
/// inherit that.
pub(super) fn deaf() -> [std::io::Result<Signals>; 4] {
    [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()].map(signal)
}
