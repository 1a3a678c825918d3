//! The first moment of the command: a process that ties itself to its keeper, and then becomes the command.
//!
//! What must stay true: the command leads a session of its own, its own process is killed by the kernel when the keeper
//! dies, and nothing of it begins after the time at which it would have to be dead.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use highgate_elector::Moment;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};

use super::{EXIT_LOST, say};

/// What a shell says of a command that is there and cannot be run.
const EXIT_NOT_EXECUTABLE: u8 = 126;
/// What a shell says of a command that is not there.
const EXIT_NOT_FOUND: u8 = 127;

/// Becomes the command.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LaunchArgs {
    /// The number of the process that has to be the parent of this one
    #[arg(long)]
    pub(super) keeper: i32,
    /// From when on there is nothing to be begun
    #[arg(long)]
    pub(super) until: u64,
    #[arg(last = true, required = true)]
    pub(super) command: Vec<OsString>,
}

/// Returns only if there is no command to become.
pub(super) fn run(args: &LaunchArgs) -> ExitCode {
    if let Err(error) = prepare(args) {
        say(&format!("the command was not started: {error}"));
        return ExitCode::from(EXIT_LOST);
    }
    let (program, arguments) = args.command.split_first().expect("the command line demands one");
    let error = Command::new(program).args(arguments).exec();
    say(&format!("cannot run {}: {error}", program.display()));
    ExitCode::from(match error.kind() {
        ErrorKind::NotFound => EXIT_NOT_FOUND,
        _ => EXIT_NOT_EXECUTABLE,
    })
}

fn prepare(args: &LaunchArgs) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // In this order: a keeper that died before the first line is not the parent now.
    if getppid() != Pid::from_raw(args.keeper) {
        return Err(io::Error::other("nobody watches over it"));
    }
    setsid()?;
    if Moment::now() >= Moment::from_nanos(args.until) {
        return Err(io::Error::other("there is no time left"));
    }
    Ok(())
}
