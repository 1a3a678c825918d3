//! The command as a process: started in a group of its own, asked whether it has ended, collected at last.
//!
//! What must stay true: it is collected only when its whole group is dead and the guardian dismissed. Until then
//! the kernel keeps its number, so that no signal to the group can reach another.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child as Process, Command, ExitStatus};

use highgate_elector::{Resource, Token};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::group::Group;
use super::guardian::THIS_PROGRAM;
use super::token_file::TokenFile;

pub(super) struct Child {
    process: Process,
    pid: Pid,
}

impl Child {
    /// Starts it at the guardian's gate. Stdin, stdout and stderr are `run`'s own.
    pub(super) fn start(
        command: &[OsString],
        gate: &str,
        (resource, token, file): (&Resource, Token, &TokenFile),
    ) -> io::Result<Self> {
        let process = Command::new(THIS_PROGRAM)
            .args(["guard", "launch", "--gate", gate, "--"])
            .args(command)
            .env("FENCING_RESOURCE", resource.as_str())
            .env("FENCING_TOKEN", token.to_string())
            .env("FENCING_TOKEN_FILE", file.path())
            .process_group(0)
            .spawn()?;
        let pid = Pid::from_child(&process);
        Ok(Self { process, pid })
    }

    pub(super) fn group(&self) -> Group {
        Group::led_by(self.pid)
    }

    /// Whether its own process has ended. Leaves it to be collected.
    pub(super) fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // It is our own child and not collected, so asking cannot fail; if it did, it would not be alive.
        waitid(WaitId::Pid(self.pid), options).map_or(true, |ended| ended.is_some())
    }

    /// Collects it. Call it when it has ended.
    pub(super) fn collect(mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }
}

/// The code that a shell would give for it.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(super::EXIT_FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_passed_on_and_a_signal_becomes_one() {
        let code = |raw| exit_code(ExitStatus::from_raw(raw));
        assert_eq!((code(0), code(7 << 8), code(255 << 8)), (0, 7, 255));
        assert_eq!((code(15), code(9)), (143, 137));
        assert_eq!(code(11 | 0x80), 139, "with a core dump");
    }
}
