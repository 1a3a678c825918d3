//! The command line. Exit codes: 0 fine, 1 failed, 2 bad usage or config, 69 gateway or backend unavailable, 75
//! leadership lost, else those of the command that `run` ran.

mod backend;
mod check;
mod client;
mod completions;
mod confirm;
mod demo;
mod history;
mod keys;
mod logging;
mod once;
mod operator;
mod reload;
mod replicas;
mod run;
mod serve;
mod status;
mod table;
mod tls;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The gate that only the highest token passes.
#[derive(Parser)]
#[command(name = "highgate", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway
    Serve(serve::Args),
    /// Show on this machine how a stale write lands without Highgate and is refused with it
    Demo(demo::Args),
    /// Validate a config file
    Check {
        /// The TOML file
        file: PathBuf,
        /// Say what a change from this file to the other would do to the fences
        #[arg(long, value_name = "OLD")]
        against: Option<PathBuf>,
    },
    /// Run a command while leading: campaigns, kills it before the lease can expire, resigns when it ends
    Run(run::RunArgs),
    /// Show what is fenced, at which token, what was refused, and which replicas serve
    Status(status::StatusArgs),
    /// Stream what happens to a resource, as JSON lines
    Watch(watch::WatchArgs),
    /// Raise a resource's mark by hand: every lower token is stale from then on
    Raise(operator::RaiseArgs),
    /// Shut a resource: nothing passes until it is thawed
    Freeze(operator::FreezeArgs),
    /// Let a frozen resource go on, and settle unknown outcomes that block it
    Thaw(operator::ThawArgs),
    /// Depose the leader of a resource: its token passes no longer
    Evict(operator::EvictArgs),
    /// The era of all tokens: begin a new one after etcd was restored
    Era(replicas::EraArgs),
    /// Take a replica out: a raise waits for it only until its tombstone has run out
    Retire(replicas::RetireArgs),
    /// Show who led a resource when, by which token, and what ended it
    History(history::HistoryArgs),
    /// The run-once ledger: list, show, or have something run again
    Once(once::OnceArgs),
    /// The keys of signed tokens: make, list or retire them
    Keys(keys::KeysArgs),
    /// Make what a backend needs before its first use
    Backend(backend::BackendArgs),
    /// Print what a shell needs to complete highgate's commands
    Completions(completions::CompletionsArgs),
    /// One leader of the demo, as a process of its own
    #[command(hide = true)]
    DemoLeader(demo::LeaderArgs),
    /// The guardian of a run, as a process of its own
    #[command(hide = true)]
    Guard(run::GuardArgs),
}

pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse_from(without_help_of_help(std::env::args_os().collect()));
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::DemoLeader(args) => demo::lead(&args),
        Command::Check { file, against } => return check::run(&file, against.as_deref()),
        Command::Run(args) => block_on(run::run(args)),
        Command::Guard(args) => run::guard(args),
        Command::Status(args) => block_on(status::run(args)),
        Command::Watch(args) => block_on(watch::run(args)),
        Command::Raise(args) => block_on(operator::raise(args)),
        Command::Freeze(args) => block_on(operator::freeze(args)),
        Command::Thaw(args) => block_on(operator::thaw(args)),
        Command::Evict(args) => block_on(operator::evict(args)),
        Command::Era(args) => block_on(replicas::era(args)),
        Command::Retire(args) => block_on(replicas::retire(args)),
        Command::Once(args) => block_on(once::run(args)),
        Command::History(args) => block_on(history::run(args)),
        Command::Keys(args) => keys::run(&args),
        Command::Backend(args) => block_on(backend::run(args)),
        Command::Completions(args) => completions::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("highgate: {error:#}");
        ExitCode::FAILURE
    })
}

fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

/// `highgate help --help` and `highgate help run --help` are what they look like; clap takes the flag for a command.
fn without_help_of_help(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    words
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn help_of_help_is_help() {
        for words in ["highgate help --help", "highgate help -h", "highgate help evict --help"] {
            let words = without_help_of_help(words.split(' ').map(OsString::from).collect());
            let told = Cli::try_parse_from(words).err().expect("help is told instead");
            assert_eq!(told.kind(), ErrorKind::DisplayHelp, "{told}");
        }
        let run = ["highgate", "run", "--", "help", "--help"].map(OsString::from).to_vec();
        assert_eq!(without_help_of_help(run.clone()), run, "a job's own words stay");
    }
}
