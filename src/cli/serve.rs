//! `highgate serve`: the gateway, until a signal or a failed store ends it.

mod example;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use highgate::config::{Config, LoadInput, Overrides, Store, Tokens};
use highgate::gateway::Gateway;
use highgate::tls::dev::{DevFiles, NAMES};
use highgate_elector::timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::logging::{self, Logs};
use super::reload::{Loaded, Reloader};

/// Bad usage or config.
const EXIT_USAGE: u8 = 2;
/// A process that a signal ended in the middle: 128 + SIGINT.
const EXIT_INTERRUPTED: i32 = 130;
/// How long the greeting waits for the replica to join.
const JOIN_PATIENCE: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The TOML file; without it, one route goes to --upstream
    #[arg(long, env = "HIGHGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

/// Tells whoever reads the standard output. Nobody may, any more: a gateway does not end because of that.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let input = LoadInput { file: args.config, overrides: args.overrides };
    let loaded = match Loaded::load(&input) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("{:#}", anyhow::Error::from(error));
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    let logs = logging::start(&loaded.config.log);
    raise_file_limit();
    super::block_on(serve(input, loaded, &logs))
}

/// Every connection is a file descriptor, and the usual soft limit of 1024 is far below what is configured.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit on open files; connections may be refused early");
    }
}

/// What a person needs to go on, on stdout; scripts read the first two lines.
fn greet(config: &Config, gateway: &Gateway) {
    let url = |tls: bool, address: SocketAddr| format!("{}://{address}", if tls { "https" } else { "http" });
    say(format_args!("highgate listening on {}", url(config.listen.tls.is_some(), gateway.address())));
    let admin = url(config.admin.tls.is_some(), gateway.admin_address());
    say(format_args!("highgate admin on {admin} (live page, /metrics, /readyz, /v1/)"));
    if let (Some(port), Some(elections)) = (&config.elections, gateway.elections_address()) {
        let at = url(port.tls.is_some(), elections);
        let scheme = if port.tls.is_some() { "highgates" } else { "highgate" };
        say(format_args!("highgate elections on {at} (jobs: {scheme}://{elections})"));
    }
    if let Some(dev) = &config.dev_tls {
        greet_of_dev_tls(config, dev, gateway);
    }
    match &config.store {
        Store::Embedded { path } => say(format_args!("marks are kept in {}", path.display())),
        Store::Etcd(etcd) => {
            say(format_args!("marks are kept in {}", etcd.url));
            greet_of_replicas(gateway);
        }
    }
    if let Some(delay) = gateway.inherited_delay() {
        say(format_args!(
            "the last process did not end cleanly: for {delay:?} no mark opens that was not open"
        ));
    }
    for route in config.routes.iter() {
        let tokens = match route.tokens {
            Tokens::Trusted => "trusted: any higher number raises the mark",
            Tokens::Issued => "issued: only the token of whoever was elected here passes",
            Tokens::Signed => "signed: only a token with the signature of one of its keys passes",
        };
        say(format_args!("route {}: tokens {tokens}; grade {}", route.name, route.grade()));
    }
    config.warnings().iter().for_each(|warning| say(format_args!("warning: {warning}")));
    if let Some(line) = example::line(config, gateway) {
        say(format_args!("{line}"));
    }
}

/// Whom to trust, and for what the certificate is not.
fn greet_of_dev_tls(config: &Config, dev: &DevFiles, gateway: &Gateway) {
    let names = NAMES.join(", ");
    say(format_args!(
        "TLS with a throw-away certificate for {names}, until {}",
        timestamp::format(dev.expires)
    ));
    let admin = example::reachable(gateway.admin_address());
    let ca = example::quoted(&dev.ca);
    say(format_args!("operators: highgate status --admin https://{admin} --ca {ca}"));
    let ports = [
        Some(config.listen.address),
        Some(config.admin.address),
        config.elections.as_ref().map(|port| port.address),
    ];
    for address in ports.into_iter().flatten().map(example::reachable) {
        if !NAMES.contains(&address.ip().to_string().as_str()) {
            say(format_args!("warning: --dev-tls: its certificate is not for {}", address.ip()));
        }
    }
}

/// Whether it takes part, and what it has to wait for. Etcd may take its time: then the log says when.
fn greet_of_replicas(gateway: &Gateway) {
    let began = Instant::now();
    let mut overview = gateway.overview();
    while !overview.valid && began.elapsed() < JOIN_PATIENCE {
        thread::sleep(Duration::from_millis(20));
        overview = gateway.overview();
    }
    match &overview.fenced_because {
        Some(why) => say(format_args!("nothing passes yet: {why}")),
        None => {
            say(format_args!("joined in era {}, one of {} replicas", overview.era, overview.replicas.len()));
        }
    }
    if let Some(longest) = overview.tombstones.iter().map(|tombstone| tombstone.left).max() {
        let seconds = longest.as_secs_f64();
        say(format_args!(
            "for {seconds:.1} s no mark opens that was not open: replicas from before may not know yet"
        ));
        if overview.tombstones.iter().any(|tombstone| tombstone.id == "era-0") {
            say(format_args!(
                "only you can know that a new prefix was never used; say so before: highgate backend init"
            ));
        }
    }
}

/// The signals that end the gateway.
struct Endings {
    terminate: Signal,
    interrupt: Signal,
}

impl Endings {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn serve(input: LoadInput, loaded: Loaded, logs: &Logs) -> anyhow::Result<ExitCode> {
    let config = loaded.config.clone();
    // Before anybody is told that it listens: a signal must not find the process without an ear for it.
    let mut endings = Endings::listen().context("cannot listen for signals")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let mut reloader = Reloader::new(input, loaded)?;
    let mut gateway = Gateway::start(config.clone())?;
    let mut failed = gateway.failed().context("the gateway's failure is already being waited for")?;
    gateway.count_dropped_lines(logs.dropped_lines());
    greet(&config, &gateway);
    loop {
        tokio::select! {
            Ok(error) = &mut failed => {
                // What may not be durable does not count; a restart reads what is.
                return Err(error).context("the store failed, so nothing passes; stopping");
            }
            () = endings.next() => break,
            _ = hangup.recv() => reloader.reload(&gateway, logs),
            () = reloader.changed() => reloader.reload(&gateway, logs),
        }
    }
    let (stopped, stopping) = oneshot::channel();
    thread::Builder::new().name("stop".into()).spawn(move || stopped.send(gateway.stop()))?;
    tokio::select! {
        clean = stopping => drop(clean?),
        () = endings.next() => std::process::exit(EXIT_INTERRUPTED),
    }
    Ok(ExitCode::SUCCESS)
}
