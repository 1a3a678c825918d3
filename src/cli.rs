//! The command line. Exit codes: 0 fine, 1 failed, 2 bad usage or config, 69 gateway or backend unavailable, 75
//! leadership lost, else those of the command that `run` ran.

mod check;
mod client;
mod demo;
mod logging;
mod once;
mod operator;
mod reload;
mod replicas;
mod run;
mod serve;
mod status;
mod table;
mod watch;

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
    Freeze(operator::ResourceArgs),
    /// Let a frozen resource go on, and settle unknown outcomes that block it
    Thaw(operator::ResourceArgs),
    /// Depose the leader of a resource: its token passes no longer
    Evict(operator::ResourceArgs),
    /// The era of all tokens: begin a new one after etcd was restored
    Era(replicas::EraArgs),
    /// Take a replica out: a raise waits for it only until its tombstone has run out
    Retire(replicas::RetireArgs),
    /// The run-once ledger: list, show, or have something run again
    Once(once::OnceArgs),
    /// One leader of the demo, as a process of its own
    #[command(hide = true)]
    DemoLeader(demo::LeaderArgs),
    /// The guardian of a run, as a process of its own
    #[command(hide = true)]
    Guard(run::GuardArgs),
}

pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::DemoLeader(args) => demo::lead(&args),
        Command::Check { file } => return check::run(&file),
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
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("highgate: {error:#}");
        ExitCode::FAILURE
    })
}

fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}
