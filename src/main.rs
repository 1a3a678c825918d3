//! The `highgate` command: flags, exit codes, one file per subcommand in `cli/`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
