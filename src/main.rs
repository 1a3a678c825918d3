//! The `highgate` command: flags, exit codes, one file per subcommand in `cli/`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
