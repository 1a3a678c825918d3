//! `run`'s end of the pipe to its guardian.
//!
//! What must stay true: telling never blocks, because `run` has its own deadline to keep; and the guardian has
//! ended before the command's process is collected, so that it never signals a number that means another group.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::io::{ioctl_fionbio, write};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::time::timeout;
use uuid::Uuid;

use super::order::{Order, Said};
use highgate_elector::Moment;

/// This program, whatever has been installed in its place since it was started.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";
const STARTING: Duration = Duration::from_secs(10);
const LEAVING: Duration = Duration::from_secs(1);

pub(super) struct Guardian {
    process: Child,
    orders: OwnedFd,
    says: Lines<BufReader<ChildStdout>>,
    gate: String,
}

impl Guardian {
    /// Starts it; when this returns, it is on guard.
    pub(super) async fn start(deadline: Moment, grace: Duration, folder: &Path) -> anyhow::Result<Self> {
        let gate = Uuid::new_v4().to_string();
        let mut process = Command::new(THIS_PROGRAM)
            .args(["guard", "watch", "--gate", &gate])
            .args(["--grace-nanos", &grace.as_nanos().to_string()])
            .args(["--until", &deadline.nanos().to_string()])
            .arg("--folder")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the guardian did not start")?;
        let orders: OwnedFd = process.stdin.take().expect("stdin is a pipe").into();
        ioctl_fionbio(&orders, true)?;
        let says = process.stdout.take().expect("stdout is a pipe");
        let mut guardian =
            Self { process, orders, says: BufReader::new(ChildStdout::from_std(says)?).lines(), gate };
        match timeout(STARTING, guardian.hear()).await {
            Ok(Some(Said::Ready)) => Ok(guardian),
            _ => anyhow::bail!("the guardian did not start"),
        }
    }

    /// Where the command asks to be let in.
    pub(super) fn gate(&self) -> &str {
        &self.gate
    }

    /// What it says next; nothing when it is gone. Dropped halfway, it loses nothing.
    pub(super) async fn hear(&mut self) -> Option<Said> {
        self.says.next_line().await.ok().flatten()?.parse().ok()
    }

    /// A guardian that does not read is as good as none.
    pub(super) fn tell(&self, order: Order) -> io::Result<()> {
        let line = format!("{order}\n");
        // Shorter than what a pipe takes at once, so it is written whole or not at all.
        match write(&self.orders, line.as_bytes())? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// The group is dead: sends it home, and makes sure that it went. Without this it stays on guard, so that
    /// every other way out of `run` ends the command.
    pub(super) async fn dismiss(mut self) {
        let _ = self.tell(Order::Ended);
        let gone = async { while self.hear().await.is_some() {} };
        let _ = timeout(LEAVING, gone).await;
        // Either fails only for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
