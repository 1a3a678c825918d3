//! A deposed leader that does not notice: thousands of stale requests a second, for as long as you like.
//!
//! `scripts/zombie` runs it against a release build, `cargo test` for a moment. It fails if the log grows by more than
//! 10 KiB a second, if the event stream or `highgate watch` fall silent, or if requests of others take more than twice
//! as long as before.
#![allow(clippy::unwrap_used)]

mod parties;
mod setting;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use parties::{Gateway, Leader, Listener, Watcher, Zombie};
use setting::Setting;

/// What the log may grow by in a second.
const MAX_LOG_GROWTH: u64 = 10 * 1024;
/// What a slower clock tick or a busy machine may add to a latency that is a fraction of a millisecond.
const SLACK: Duration = Duration::from_millis(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(setting) = Setting::from_arguments() else { return ExitCode::from(2) };
    let folder = tempfile::tempdir().unwrap();
    match ordeal(&setting, folder.path()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn ordeal(setting: &Setting, folder: &Path) -> Result<(), String> {
    let gateway = Gateway::start(folder).await;
    let mut listener = Listener::connect(&gateway).await;
    let mut watcher = Watcher::start(&gateway);
    let mut token = 8;
    let next_leader = async || {
        Leader::connect(&gateway, "ledger", token).await.writes().await;
        token += 1;
    };
    watcher.is_there(next_leader).await;
    let mut other = Leader::connect(&gateway, "other", 1).await;
    other.writes_for(setting.calm / 2).await;
    let before = other.writes_for(setting.calm).await;

    let (began, log_before) = (Instant::now(), gateway.log_size());
    let zombie = Zombie::rise(&gateway, setting.rate, setting.duration);
    let during = other.writes_for(setting.duration).await;
    let refused = zombie.end().await;
    let took = began.elapsed();
    // What was refused last is told within a second.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let growth = (gateway.log_size() - log_before) * 1000 / u64::try_from(took.as_millis()).unwrap().max(1);
    let rate = refused as f64 / took.as_secs_f64();
    println!("{refused} stale requests refused in {:.1} s, {rate:.0} a second", took.as_secs_f64());
    println!("the log grew by {growth} bytes a second");
    println!(
        "requests of others: median {:?} before, {:?} during; slowest tenth {:?} and {:?}",
        before.median, during.median, before.slow, during.slow
    );
    let (streamed, watched) = (listener.heard(), watcher.heard());
    println!("event stream: {streamed:?}; highgate watch: {watched:?}");

    let expected = u64::from(setting.rate) * setting.duration.as_secs() / 2;
    ensure(
        refused >= expected,
        format!(
            "only {refused} requests were refused, not even {expected}: the machine is too slow for this rate"
        ),
    )?;
    ensure(growth < MAX_LOG_GROWTH, format!("the log grew by {growth} bytes a second"))?;
    for (who, heard) in [("the event stream", streamed), ("highgate watch", watched)] {
        ensure(heard.counted == refused, format!("{who} told of {} refusals, not {refused}", heard.counted))?;
        let most = took.as_secs() * 2 + 4;
        ensure(heard.events <= most, format!("{who} told them in {} events, not {most}", heard.events))?;
    }
    let limit = before.median * 2 + SLACK;
    ensure(during.median <= limit, format!("others waited {:?}, not {limit:?}", during.median))
}

fn ensure(holds: bool, otherwise: String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise) }
}
