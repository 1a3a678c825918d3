//! The first moment of the command: a process that asks the guardian to be let in, and then becomes the command.
//!
//! `run` starts it as the leader of a new group. What must stay true: nothing of the command runs before the
//! guardian knows its group and has seen that there is time left. So it does not matter when `run` is stopped or
//! killed, not even right after it has started the process.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use super::{EXIT_FAILED, EXIT_LOST, say};

/// The guardian answers at once, or not at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the guardian says to whom it lets in.
pub(super) const GO: u8 = b'g';

/// Becomes the command, once the guardian has let it in.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LaunchArgs {
    #[arg(long)]
    gate: String,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Returns only if there is no command to become.
pub(super) fn run(args: &LaunchArgs) -> ExitCode {
    if let Err(error) = pass(&args.gate) {
        say(&format!("the command was not started: the guardian did not let it in: {error}"));
        return ExitCode::from(EXIT_LOST);
    }
    let (program, arguments) = args.command.split_first().expect("the command line demands one");
    let error = Command::new(program).args(arguments).exec();
    say(&format!("cannot run {}: {error}", program.display()));
    ExitCode::from(EXIT_FAILED)
}

/// The name of a guardian's gate. Not a file: there is nothing to remove, and no length to exceed.
pub(super) fn address(gate: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("highgate-{gate}"))
}

fn pass(gate: &str) -> io::Result<()> {
    let mut stream = UnixStream::connect_addr(&address(gate)?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer == [GO] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
