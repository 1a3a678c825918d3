//! `highgate demo`: the whole story on one machine, with real processes and a real pause.
//!
//! A ledger that records what it is sent, a lease, and two leaders that are processes of this same program.
//! One leader is stopped between its check and its write until the other has taken over. Act one writes
//! straight to the ledger, act two through a gateway. What must stay true: the demo is an experiment, so it
//! tells what it saw, and exits with 1 if that is not the story; and no leader outlives it.

mod act;
mod fenced;
mod leader;
mod lease;
mod ledger;
mod process;
mod timeline;
mod wire;

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use highgate::config::{AccessLog, Log, LogFormat};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) use self::leader::{LeaderArgs, lead};

use self::act::StaleWrite;
use self::fenced::Fenced;
use self::ledger::Ledger;
use self::timeline::{Timeline, Tone};
use super::logging;

/// A story that a signal ended in the middle: 128 + SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Exit when the story is told
    #[arg(long)]
    once: bool,
}

/// What act two leaves behind.
struct Told {
    as_told: bool,
    fenced: Fenced,
    ledger: Ledger,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let log = Log { format: LogFormat::Text, access: AccessLog::Off, level: "error".to_owned() };
    let _logs = logging::start(&log);
    super::block_on(demo(args.once))
}

async fn demo(once: bool) -> anyhow::Result<ExitCode> {
    let mut endings = Endings::listen().context("cannot listen for signals")?;
    let timeline = Timeline::start();
    // A story that is dropped in the middle takes its leaders and its folder with it.
    let told = tokio::select! {
        told = tell(&timeline) => told?,
        () = endings.next() => return Ok(ExitCode::from(EXIT_INTERRUPTED)),
    };
    // The ledger goes on for as long as the gateway does.
    let Told { as_told, mut fenced, ledger: _ledger } = told;
    if !once {
        invite(&timeline, &fenced)?;
        tokio::select! {
            error = fenced.failed() => return Err(error),
            () = endings.next() => {}
        }
    }
    fenced.stop().await?;
    Ok(if as_told { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Both acts, and what came of them.
async fn tell(timeline: &Timeline) -> anyhow::Result<Told> {
    timeline.line("One lease, two leaders, one pause: everything below happens now, in real processes.")?;

    timeline.heading("Act one: without Highgate, the leaders write straight to the ledger")?;
    let ledger = open_ledger(timeline).await?;
    let stale = act::play(timeline, ledger.address()).await?;
    timeline.table(&ledger.records())?;
    let landed = stale.landed(&ledger.records());

    timeline.heading("Act two: the same leaders and the same pause, with Highgate before the ledger")?;
    let ledger = open_ledger(timeline).await?;
    let fenced = Fenced::start(ledger.address())?;
    timeline.say("highgate", &format!("listens on {} and forwards to the ledger", fenced.address()))?;
    let stale = act::play(timeline, fenced.address()).await?;
    timeline.table(&ledger.records())?;
    let stopped = stale.was_stopped(&ledger.records());

    conclude(timeline, landed, stopped, &stale)?;
    Ok(Told { as_told: landed && stopped, fenced, ledger })
}

async fn open_ledger(timeline: &Timeline) -> anyhow::Result<Ledger> {
    let ledger = Ledger::open().await.context("the ledger cannot be opened")?;
    let address = ledger.address();
    timeline
        .say("ledger", &format!("listens on {address}; it records every transfer and checks no token"))?;
    Ok(ledger)
}

fn conclude(timeline: &Timeline, landed: bool, stopped: bool, stale: &StaleWrite) -> io::Result<()> {
    timeline.line("")?;
    if !landed {
        let what = "Not as told: without Highgate the stale write did not land, so this run shows nothing.";
        timeline.toned(Tone::Bad, what)?;
    }
    if !stopped {
        let what = "Not as told: through Highgate the stale write was not stopped as it should be.";
        timeline.toned(Tone::Bad, what)?;
    }
    if landed && stopped {
        let StaleWrite { invoice, token, .. } = stale;
        timeline.toned(
            Tone::Good,
            &format!("Highgate stopped leader A's late payment of {invoice} (token {token})."),
        )?;
        timeline
            .line("Without it the money moved twice; with it nothing of that write reached the ledger.")?;
    }
    Ok(())
}

/// What to do with a gateway that goes on.
fn invite(timeline: &Timeline, fenced: &Fenced) -> io::Result<()> {
    let (address, admin) = (fenced.address(), fenced.admin_address());
    let mark = lease::FIRST_TOKEN + 1;
    let post = |token| format!("curl -i -X POST -H 'X-Fencing-Token: {token}' http://{address}/transfer");
    timeline.line("")?;
    timeline.line(&format!("Live page: http://{admin}/"))?;
    timeline.line(&format!("Stale:     {}", post(mark - 1)))?;
    timeline.line(&format!("Passes:    {}", post(mark + 1)))?;
    timeline.line("Serving until Ctrl-C; then everything is removed.")
}

/// The signals that end the demo.
struct Endings {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Endings {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
