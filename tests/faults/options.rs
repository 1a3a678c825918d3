//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Real faults: three gateways on three etcd nodes, writers that are elected, stopped, killed and go on as zombies,
/// and a nemesis. Needs HIGHGATE_TEST_SERVERS=1.
#[derive(Clone, Debug, Parser)]
#[command(name = "faults")]
pub(crate) struct Options {
    /// How long faults and calms follow each other, such as 60s or 10m
    #[arg(long, default_value = "20s", value_parser = span)]
    pub(crate) duration: Duration,
    /// Which faults there will be; another one each time unless given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Where logs and the picture go [default: target/faults]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// The gateways' validity [default: 1s or 2s, by the seed]
    #[arg(long, value_parser = span)]
    pub(crate) validity: Option<Duration>,
    /// What stands before the upstream; several run one after the other
    #[arg(long, value_delimiter = ',', default_value = "highgate")]
    pub(crate) peer: Vec<Peer>,
    /// A variable for the gateways' environment
    #[arg(long, value_name = "KEY=VALUE", value_parser = variable)]
    pub(crate) gateway_env: Vec<(String, String)>,
    /// Another build of the gateway, such as one with a rule broken
    #[arg(long, value_name = "FILE")]
    pub(crate) gateway: Option<PathBuf>,
    /// The gateways speak TLS to the upstream
    #[arg(long)]
    pub(crate) tls: bool,
    /// The gateways speak HTTP/2 to the upstream
    #[arg(long)]
    pub(crate) h2: bool,
    /// Succeeds only if the promise is broken, and says after how long; ends then
    #[arg(long)]
    pub(crate) expect_violation: bool,
    /// Breaks one rule after the other in the gateway, each in the faults in which it shows soonest: each has to be
    /// noticed. Needs the feature `controls`
    #[arg(long)]
    pub(crate) controls: bool,
    /// The same faults with no rule broken: nothing may be noticed
    #[arg(long, conflicts_with = "controls")]
    pub(crate) focuses: bool,
    /// Of --controls or --focuses only these
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) only: Vec<String>,
    /// Only this focus, with no rule broken unless --gateway-env says so
    #[arg(long, value_name = "NAME", conflicts_with_all = ["controls", "focuses"])]
    pub(crate) focus: Option<String>,
    /// What `cargo test` says to all test programs at once: this one runs if its name is meant
    #[arg(hide = true)]
    filters: Vec<String>,
    #[arg(long, short, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Peer {
    /// The gateway
    Highgate,
    /// Proxies that compare the token with the highest that each has seen itself, and forward
    Naive,
    /// The same with the highest token in etcd, by compare-and-swap
    NaiveEtcd,
}

impl Options {
    /// Whether this program is meant at all.
    pub(crate) fn is_asked(&self) -> bool {
        !self.list && (self.filters.is_empty() || self.filters.iter().any(|filter| "faults".contains(filter)))
    }

    /// Whether one of several is to be run.
    pub(crate) fn means(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// The validity of this run. Both lengths matter: one is shorter than an election in etcd, one is not always.
    pub(crate) fn validity(&self, seed: u64) -> Duration {
        self.validity.unwrap_or(Duration::from_secs(if seed.is_multiple_of(2) { 2 } else { 1 }))
    }

    /// The command that plans the same faults again.
    pub(crate) fn replay(&self, peer: Peer, seed: u64) -> String {
        let mut words = vec!["HIGHGATE_TEST_SERVERS=1 cargo test --release --test faults --".to_owned()];
        words.push(format!(
            "--duration {}ms --seed {seed} --peer {}",
            self.duration.as_millis(),
            peer.name()
        ));
        words.extend(self.focus.iter().map(|focus| format!("--focus {focus}")));
        words.extend(self.validity.map(|validity| format!("--validity {}ms", validity.as_millis())));
        words.extend(self.gateway.iter().map(|program| format!("--gateway {}", program.display())));
        words.extend(self.gateway_env.iter().map(|(name, value)| format!("--gateway-env {name}={value}")));
        words.extend(self.tls.then(|| "--tls".to_owned()));
        words.extend(self.h2.then(|| "--h2".to_owned()));
        words.extend(self.expect_violation.then(|| "--expect-violation".to_owned()));
        words.join(" ")
    }
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Highgate => "highgate",
            Self::Naive => "naive",
            Self::NaiveEtcd => "naive-etcd",
        }
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

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a variable is KEY=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
