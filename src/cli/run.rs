//! `highgate run`: campaigns, runs a command while it leads, and has it dead before the lease can expire.
//!
//! ```text
//!   run ──campaign──► leads ──starts──► guardian          ends the command when `run` cannot
//!                                         └──starts──► keeper   the command's parent, until nothing of it is left
//!                                                        └──starts──► the command, in a session of its own
//! ```
//!
//! `terms.rs` fits the times together, `campaign.rs` waits, `work.rs` watches over the command by the rules of
//! `plan.rs` and `schedule.rs`, `metrics.rs` shows what the elector counts, `guard.rs` is the guardian, `keeper.rs` the keeper, and `family.rs` finds everything
//! that descends from the command. What must stay true: no process of the command outlives the lease, whatever
//! happens to `run`; and leadership is resigned only when all are dead.

mod asks;
mod campaign;
mod family;
mod guard;
mod guardian;
mod keeper;
mod launch;
mod lease;
mod link;
mod metrics;
mod once;
mod order;
mod plan;
mod schedule;
mod secrets;
mod terms;
mod token_file;
mod work;

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use highgate_elector::{BuildError, Elector, Leadership, Resource};
use tokio::time::timeout;

use super::client::{EXIT_FAILED, EXIT_UNAVAILABLE};
use super::tls::TlsArgs;
use asks::Asks;
use campaign::Outcome;
use metrics::Metrics;
use once::Begun;
use plan::Why;
use secrets::Access;
use terms::Terms;
pub(super) use terms::duration;
use work::{Ended, Work};

const EXIT_USAGE: u8 = 2;
/// Leadership was lost: somebody else may be doing the work now.
const EXIT_LOST: u8 = 75;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// What to lead
    #[arg(long)]
    resource: Resource,
    /// Where elections are held; highgates:// for TLS with a gateway
    #[arg(long, env = "HIGHGATE_BACKEND", value_name = "URL", default_value = "highgate://127.0.0.1:9901")]
    backend: String,
    /// File with the secret for the gateway's elections [default: HIGHGATE_ELECTIONS_TOKEN, or the file that
    /// HIGHGATE_TOKEN_FILE names]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
    /// How long leadership outlives its last renewal: how soon others take over after a crash
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = terms::ttl)]
    ttl: Duration,
    /// How long the command has between SIGTERM and SIGKILL [default: 5s, or a third of a shorter ttl]
    #[arg(long, value_name = "DURATION", value_parser = terms::duration)]
    grace: Option<Duration>,
    /// Ends the command after this time, with exit code 1
    #[arg(long, value_name = "DURATION", value_parser = terms::span)]
    max_time: Option<Duration>,
    /// Skips the command if a leader has completed this key, like daily-report/2026-02-28
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    once: Option<String>,
    /// Serves metrics of this run for Prometheus, on this machine alone unless the address says otherwise, like :9903
    #[arg(long, value_name = "ADDRESS", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// The command, with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Processes that a run starts
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GuardArgs {
    #[command(subcommand)]
    role: Role,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Role {
    Watch(guard::WatchArgs),
    Keep(keeper::KeepArgs),
    Launch(launch::LaunchArgs),
}

/// A process beside `run`, or the one that becomes the command.
pub(crate) fn guard(args: GuardArgs) -> anyhow::Result<ExitCode> {
    match args.role {
        Role::Watch(args) => {
            secrets::keep_private()?;
            super::block_on(guard::run(args))
        }
        Role::Keep(args) => {
            secrets::keep_private()?;
            super::block_on(keeper::run(args))
        }
        Role::Launch(args) => Ok(launch::run(&args)),
    }
}

/// Campaigns, runs the command, resigns.
pub(crate) async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    secrets::keep_private()?;
    let terms = match Terms::new(args.ttl, args.grace) {
        Ok(terms) => terms,
        Err(error) => return Ok(refuse(EXIT_USAGE, &error.to_string())),
    };
    let access = match Access::new(&args.backend, args.token_file.as_deref(), args.tls.named()) {
        Ok(access) => access,
        Err(error) => return Ok(refuse(EXIT_USAGE, &format!("{:#}", anyhow::Error::from(error)))),
    };
    let backend = match access.connect() {
        Ok(backend) => backend,
        Err(error) => return Ok(refuse(EXIT_USAGE, &error.to_string())),
    };
    let mut asks = Asks::listen()?;
    let metrics = Metrics::start(args.metrics).await?;
    let builder = Elector::builder(backend, args.resource.clone()).ttl(terms.ttl).heartbeat(terms.heartbeat);
    match campaign::campaign(builder, &args.resource, &metrics, &mut asks).await {
        Outcome::Leads(leadership) => lead(&args, &access, *leadership, &mut asks).await,
        Outcome::Asked(signal) => {
            let code = u8::try_from(128 + signal.as_raw()).unwrap_or(EXIT_FAILED);
            Ok(refuse(code, "ended while it was waiting"))
        }
        Outcome::Unavailable(detail) => Ok(refuse(EXIT_UNAVAILABLE, &detail)),
        Outcome::Failed(error) => match error.downcast_ref::<BuildError>() {
            Some(unusable) if !matches!(unusable, BuildError::Thread(_)) => {
                Ok(refuse(EXIT_USAGE, &unusable.to_string()))
            }
            _ => Err(error),
        },
    }
}

async fn lead(
    args: &RunArgs,
    access: &Access,
    leadership: Leadership,
    asks: &mut Asks,
) -> anyhow::Result<ExitCode> {
    say(&format!("leading {} with token {}", leadership.resource(), leadership.token()));
    // What was granted may be shorter than what was asked for.
    let terms = match Terms::new(leadership.grant().ttl, args.grace) {
        Ok(terms) => terms,
        Err(error) => {
            resign(leadership).await;
            return Ok(refuse(EXIT_USAGE, &error.to_string()));
        }
    };
    let work = Work { command: &args.command, access, terms, max_time: args.max_time };
    match perform(&work, args.once.as_deref(), &leadership, asks).await {
        Ok(Done { code, is_dead: true }) => {
            resign(leadership).await;
            Ok(ExitCode::from(code))
        }
        Ok(Done { code, is_dead: false }) => {
            // Dropped, it would be resigned, and the next leader would start beside what is still alive.
            std::mem::forget(leadership);
            Ok(refuse(code, "the command is not known to be dead; the lease is left to expire"))
        }
        Err(error) => {
            resign(leadership).await;
            Err(error)
        }
    }
}

/// How the work ended.
struct Done {
    code: u8,
    /// Nothing of the command can run any more.
    is_dead: bool,
}

/// Runs the command, if nobody has completed it. An error means that nothing runs.
async fn perform(
    work: &Work<'_>,
    key: Option<&str>,
    leadership: &Leadership,
    asks: &mut Asks,
) -> anyhow::Result<Done> {
    let run = match key {
        None => None,
        Some(key) => match once::begin(leadership, key).await {
            Begun::Run(run) => Some(run),
            Begun::Skip(code) => return Ok(Done { code, is_dead: true }),
        },
    };
    let ended = work::run(work, leadership, asks).await?;
    let mut code = verdict(&ended);
    if let (Some(run), Why::Done, 0) = (run, ended.why, code) {
        code = once::complete(&run).await.err().unwrap_or(0);
    }
    Ok(Done { code, is_dead: ended.is_dead })
}

fn verdict(ended: &Ended) -> u8 {
    match (ended.why, ended.code) {
        (Why::Lost, _) => EXIT_LOST,
        (Why::Done | Why::Asked, Some(code)) => code,
        (Why::OutOfTime | Why::Unguarded, _) | (_, None) => EXIT_FAILED,
    }
}

/// Lets the next one lead. A leadership that is over needs no words, and its backend may be away.
async fn resign(leadership: Leadership) {
    let resource = leadership.resource().clone();
    match timeout(leadership.remaining(), leadership.resign()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => say(&format!("not resigned, so the lease of {resource} runs out: {error}")),
        Err(_) => say(&format!("the lease of {resource} has run out")),
    }
}

fn refuse(code: u8, reason: &str) -> ExitCode {
    say(reason);
    ExitCode::from(code)
}

/// A line on stderr. Whoever reads it may be gone, which is no reason to end.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "highgate: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_leadership_outweighs_what_the_command_says() {
        let ended = |why, code: Option<u8>| Ended { why, code, is_dead: code.is_some() };
        assert_eq!(verdict(&ended(Why::Done, Some(0))), 0);
        assert_eq!(verdict(&ended(Why::Done, Some(3))), 3);
        assert_eq!(verdict(&ended(Why::Asked, Some(143))), 143);
        assert_eq!(verdict(&ended(Why::Lost, Some(0))), EXIT_LOST);
        assert_eq!(verdict(&ended(Why::Lost, None)), EXIT_LOST);
        assert_eq!(verdict(&ended(Why::OutOfTime, Some(0))), EXIT_FAILED);
        assert_eq!(verdict(&ended(Why::Unguarded, Some(0))), EXIT_FAILED);
        assert_eq!(verdict(&ended(Why::Done, None)), EXIT_FAILED, "it would not die");
    }
}
