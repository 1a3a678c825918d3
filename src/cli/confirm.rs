//! Asking before something that cannot be taken back.

use std::io::{self, BufRead, IsTerminal, Write};

use super::client::Failed;

/// Whether to ask first
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Consent {
    /// Do it without asking
    #[arg(long, short = 'y')]
    pub(super) yes: bool,
    /// Say what would happen, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// Says what will happen and asks, unless that was answered on the command line. Without a terminal nobody can answer.
pub(super) fn confirm(what: &str, consent: Consent) -> Result<(), Failed> {
    if consent.yes {
        return Ok(());
    }
    eprint!("{what}");
    let input = io::stdin();
    if !input.is_terminal() {
        let detail =
            "nothing was done: there is no terminal to ask on; say --yes to do it, or --dry-run to see it";
        return Err(Failed::Usage(detail.to_owned()));
    }
    eprint!("Go on? [y/N] ");
    // A terminal that has gone says nothing, which is not yes.
    let _ = io::stderr().flush();
    if is_yes(&mut input.lock()) { Ok(()) } else { Err(Failed::Refused("nothing was done".to_owned())) }
}

fn is_yes(input: &mut impl BufRead) -> bool {
    let mut line = String::new();
    let _ = input.read_line(&mut line);
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (line, expected) in [("y\n", true), (" YES\n", true), ("\n", false), ("", false), ("yn\n", false)]
        {
            assert_eq!(is_yes(&mut line.as_bytes()), expected, "{line:?}");
        }
    }

    #[test]
    fn consent_on_the_command_line_is_not_asked_for_again() {
        assert!(confirm("", Consent { yes: true, dry_run: false }).is_ok());
    }
}
