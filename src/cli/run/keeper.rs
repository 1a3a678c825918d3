//! The keeper: the command's parent, which stays until nothing of the command is left.
//!
//! The guardian starts it. It tells `run` how the command ended, and when the last process that came of it is gone: it
//! is a child subreaper, so having no child is the kernel's word for that. When `run` and the guardian are both dead,
//! it kills everything at once; there is nobody left who knows how long the lease is. What must stay true: nothing of
//! the command begins before `run` says so, and the keeper does not end before the command.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::{Pid, WaitStatus, getpid, getppid};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::sleep;

use super::family::{Family, LOOK_EVERY, collect};
use super::guardian::{THIS_PROGRAM, deaf};
use super::link::Link;
use super::order::{Kept, Start};
use super::{EXIT_FAILED, EXIT_LOST, say, token_file};

/// How often to look whether the guardian lives, once `run` does not.
const GUARDIAN_LOOK: Duration = Duration::from_millis(20);

/// Keeps a command
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KeepArgs {
    /// The gate of the run
    #[arg(long)]
    gate: String,
    /// The number of the guardian's process
    #[arg(long)]
    guardian: i32,
    /// From when on there is nothing to be begun
    #[arg(long)]
    until: u64,
    /// The token file's folder, to be removed when nobody else can
    #[arg(long)]
    folder: PathBuf,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

struct Keeper {
    guardian: Option<Pid>,
    link: Link,
    is_run_gone: bool,
    family: Family,
    children: Signals,
    command: Pid,
    /// How the command's own process ended.
    code: Option<u8>,
}

pub(super) async fn run(args: KeepArgs) -> anyhow::Result<ExitCode> {
    let _deaf = deaf();
    let family = Family::gather()?;
    let children = signal(SignalKind::child())?;
    let mut link = Link::knock(&args.gate)?;
    let Some(Start) = link.hear().await else { return Ok(ExitCode::from(EXIT_LOST)) };
    let command = start(&args)?;
    // If it is gone, that is noticed below.
    let _ = link.tell(&Kept::Started);
    let guardian = Pid::from_raw(args.guardian);
    let mut keeper = Keeper { guardian, link, is_run_gone: false, family, children, command, code: None };
    if keeper.stay().await {
        keeper.kill_all().await;
        token_file::remove(&args.folder);
        say(
            "`highgate run` and its guardian were killed; the command was killed, and the lease runs out by itself",
        );
    }
    let code = keeper.code.unwrap_or(EXIT_FAILED);
    let _ = keeper.link.tell(&Kept::Empty(code));
    Ok(ExitCode::SUCCESS)
}

/// The process that becomes the command. It is killed by the kernel if this thread dies, so this is the first one.
fn start(args: &KeepArgs) -> io::Result<Pid> {
    let child = Command::new(THIS_PROGRAM)
        .args(["guard", "launch", "--keeper", &getpid().as_raw_pid().to_string()])
        .args(["--until", &args.until.to_string(), "--"])
        .args(&args.command)
        .spawn()?;
    Ok(Pid::from_child(&child))
}

impl Keeper {
    /// Until nothing is left (false), or nobody else is there to end it (true).
    async fn stay(&mut self) -> bool {
        loop {
            let had_ended = self.code.is_some();
            if self.collect() {
                return false;
            }
            if let (Some(code), false) = (self.code, had_ended) {
                let _ = self.link.tell(&Kept::Left(code));
            }
            if self.is_run_gone && getppid() != self.guardian {
                return true;
            }
            tokio::select! {
                _ = self.children.recv() => {}
                said = self.link.hear::<Start>(), if !self.is_run_gone => self.is_run_gone = said.is_none(),
                () = sleep(GUARDIAN_LOOK), if self.is_run_gone => {}
            }
        }
    }

    async fn kill_all(&mut self) {
        while !self.collect() {
            // Whom it may not kill it tries again; nobody is there to be told.
            let _ = self.family.kill();
            sleep(LOOK_EVERY).await;
        }
    }

    /// Whether nothing of the command is left.
    fn collect(&mut self) -> bool {
        collect(|pid, status| {
            if pid == self.command {
                self.code = Some(exit_code(status));
            }
        })
    }
}

/// The code that a shell would give for it.
fn exit_code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_FAILED)
}
