//! `highgate completions SHELL`: what a shell needs to complete commands, flags and their values.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};

use super::Cli;
use super::client::print;

/// Which shell
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script of a shell.
pub(super) fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    Ok(print(&script(args.shell))?)
}

fn script(shell: Shell) -> String {
    let whole = Cli::command();
    // Processes that Highgate starts for itself are nobody's to type.
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut command = Command::new("highgate").version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    let mut text = Vec::new();
    generate(shell, &mut command, "highgate", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_gets_the_commands_and_flags_that_people_type() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for word in ["evict", "dry-run", "era", "bump", "completions"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
            assert!(!script.contains("demo-leader"), "{shell}");
        }
    }
}
