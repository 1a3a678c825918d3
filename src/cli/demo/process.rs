//! The demo's hold on a leader's process: what it says, the word to go on, the pause, and its end.
//!
//! What must stay true: no leader outlives the demo. Dropping the handle kills the process, stopped or not,
//! and waits for it, so every way out of the demo does. If the demo itself is killed, a leader sees the end of
//! its stdin; one that is stopped is hung up and woken by the system, because it is a process group of its own
//! that has lost its parent.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::time::{sleep, timeout};

use super::leader::Said;

/// Longer than a lease lasts on a busy machine; who takes longer is not coming.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);

pub(super) struct Leader {
    name: &'static str,
    process: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl Leader {
    /// Starts this program again, as a leader.
    pub(super) fn start(name: &'static str, lease: SocketAddr, target: SocketAddr) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program does not know where it is")?;
        let mut process = Command::new(program)
            .args(["demo-leader", "--name", name])
            .args(["--lease", &lease.to_string(), "--target", &target.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("{name} did not start"))?;
        let stdout = process.stdout.take().expect("stdout is a pipe");
        let says = BufReader::new(ChildStdout::from_std(stdout)?).lines();
        Ok(Self { name, process, says })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next it says.
    pub(super) async fn hear(&mut self) -> anyhow::Result<Said> {
        let line = timeout(PATIENCE, self.says.next_line());
        let line = line.await.with_context(|| format!("{} says nothing", self.name))??;
        let line = line.with_context(|| format!("{} is gone", self.name))?;
        serde_json::from_str(&line).with_context(|| format!("{} makes no sense: {line}", self.name))
    }

    /// The word to go on.
    pub(super) fn go_on(&mut self) -> anyhow::Result<()> {
        let stdin = self.process.stdin.as_mut().expect("stdin is a pipe and never taken");
        stdin.write_all(b"\n").with_context(|| format!("{} does not listen", self.name))
    }

    /// Stops the whole process; when this returns, it stands still.
    pub(super) async fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        let is_stopped = async {
            let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            while waitid(WaitId::Pid(self.system_pid()), options)?.is_none() {
                sleep(POLL).await;
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, is_stopped).await.with_context(|| format!("{} does not stop", self.name))?
    }

    pub(super) fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.system_pid(), signal).with_context(|| format!("{} gets no signal", self.name))
    }

    fn system_pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // Either fails only for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
