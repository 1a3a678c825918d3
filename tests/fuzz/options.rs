//! The command line.

use std::time::Duration;

use clap::Parser;

/// Mutated inputs for everything that reads what others wrote, and for the gate.
#[derive(Debug, Parser)]
#[command(name = "fuzz")]
pub(crate) struct Options {
    /// Only this target
    #[arg(long)]
    pub(crate) target: Option<String>,
    /// Which inputs there will be
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How long in all, such as 10s or 5m; the targets share it
    #[arg(long, default_value = "3s", value_parser = span)]
    pub(crate) duration: Duration,
    /// Only the input of this number, to see a failure again
    #[arg(long, requires = "target")]
    pub(crate) input: Option<u64>,
    /// What `cargo test` says to all test programs at once: this one runs if its name is meant
    #[arg(hide = true)]
    filters: Vec<String>,
    #[arg(long, short, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    test_threads: Option<usize>,
    #[arg(long, hide = true)]
    pub(crate) list: bool,
}

impl Options {
    /// Whether a target is meant, by `--target` or by a filter of `cargo test`.
    pub(crate) fn means(&self, name: &str) -> bool {
        let full = format!("fuzz::{name}");
        let filtered = self.filters.is_empty() || self.filters.iter().any(|filter| full.contains(filter));
        filtered && self.target.as_deref().is_none_or(|target| target == name)
    }
}

fn span(text: &str) -> Result<Duration, String> {
    let split = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "a number and ms, s, m or h".to_owned())?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        "h" => Ok(Duration::from_secs(number * 3600)),
        _ => Err("a number and ms, s, m or h".to_owned()),
    }
}
