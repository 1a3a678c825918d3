//! A deposed leader that does not notice: thousands of stale requests a second, for as long as you like.
//!
//! `scripts/zombie` runs it against a release build, `cargo test` for a moment. It fails if the log grows by more than
//! 10 KiB a second, whatever is refused, if the event stream or `highgate watch` fall silent, or if requests of others
//! take more than twice as long as when it writes elsewhere on the same machine.
#![allow(clippy::unwrap_used)]

mod latency;
mod parties;
mod setting;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use latency::{Round, Rounds};
use parties::{Gateway, HIGHEST_TOKEN, Leader, Listener, Manner, Watcher, Zombie, elsewhere};
use setting::Setting;

/// What the log may grow by in a second.
const MAX_LOG_GROWTH: u64 = 10 * 1024;
/// Long requests are few: at full rate they would be a gigabyte a second.
const WILD_RATE: u32 = 400;
/// Long enough that what may be written at once after a quiet while does not decide.
const WILD_DURATION: Duration = Duration::from_secs(4);

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
    plain(setting, &gateway, &mut listener, &mut watcher).await?;
    wild(&gateway, &mut listener).await
}

/// The same stale request at the full rate, beside a leader whose requests are measured.
async fn plain(
    setting: &Setting,
    gateway: &Gateway,
    listener: &mut Listener,
    watcher: &mut Watcher,
) -> Result<(), String> {
    let mut other = Leader::connect(gateway, "other", 1).await;
    let turn = setting.duration / setting.rounds;
    other.writes_for(turn).await;
    let (mut rounds, mut refused, mut took) = (Rounds::default(), 0, Duration::ZERO);
    let log_before = gateway.log_size();
    let elsewhere = elsewhere();
    for _ in 0..setting.rounds {
        let calm = other.writes_for(turn).await;
        let zombie = Zombie::rise(elsewhere, Manner::Plain, setting.rate, turn);
        let busy = other.writes_for(turn).await;
        zombie.end().await;
        let began = Instant::now();
        let zombie = Zombie::rise(gateway.address, Manner::Plain, setting.rate, turn);
        let beside = other.writes_for(turn).await;
        refused += zombie.end().await;
        took += began.elapsed();
        rounds.add(Round { calm, busy, beside });
    }
    gateway.tells_the_rest().await;
    let growth = growth(gateway, log_before, took);
    let rate = refused as f64 / took.as_secs_f64();
    println!("{refused} stale requests refused in {:.1} s, {rate:.0} a second", took.as_secs_f64());
    println!("the log grew by {growth} bytes a second");
    println!("{rounds}");
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
        // Every round begins with a first one, and ends with a count.
        let most = took.as_secs() * 2 + u64::from(setting.rounds) * 3 + 4;
        ensure(heard.events <= most, format!("{who} told them in {} events, not {most}", heard.events))?;
    }
    rounds.judge()
}

/// Long paths, and no request like the one before. Others are not measured: megabytes have to be read.
async fn wild(gateway: &Gateway, listener: &mut Listener) -> Result<(), String> {
    Leader::connect(gateway, "ledger", HIGHEST_TOKEN).await.writes().await;
    let (began, log_before) = (Instant::now(), gateway.log_size());
    let refused = Zombie::rise(gateway.address, Manner::Wild, WILD_RATE, WILD_DURATION).end().await;
    let took = began.elapsed();
    gateway.tells_the_rest().await;
    let (growth, heard) = (growth(gateway, log_before, took), listener.heard());
    println!(
        "{refused} stale requests with long paths and tokens of their own in {:.1} s",
        took.as_secs_f64()
    );
    println!("the log grew by {growth} bytes a second; event stream: {heard:?}");
    ensure(growth < MAX_LOG_GROWTH, format!("the log grew by {growth} bytes a second"))?;
    ensure(heard.counted == refused, format!("{} refusals were told, not {refused}", heard.counted))
}

/// By how many bytes a second the log has grown.
fn growth(gateway: &Gateway, before: u64, took: Duration) -> u64 {
    (gateway.log_size() - before) * 1000 / u64::try_from(took.as_millis()).unwrap().max(1)
}

fn ensure(holds: bool, otherwise: String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise) }
}
