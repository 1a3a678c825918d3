//! Settings: how many of what there is, and how much may go wrong. Each is explored to its end.

mod renames;

use crate::action::Action;
use crate::sights::Sight;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A gateway's process is killed.
    Crash,
    /// A gateway's process stands still for a while.
    Stop,
    /// A gateway's watch is silent for a while, and nobody notices.
    Lag,
    /// A gateway's watch loses a revision.
    Miss,
    /// A call is run later, and answered then.
    Late,
    /// The sender of a call is told that nobody knows; it may be run later, or never.
    Ambiguous,
    /// A call is run once more, later.
    Twice,
    /// The answer of a renewal comes later.
    SlowAnswer,
    /// The upstream breaks a connection off.
    Break,
    /// A load balancer before the upstream answers 504, and the upstream goes on.
    GatewayTimeout,
    /// An operator begins an era.
    NewEra,
    /// etcd is restored from a backup without members, and an era begins.
    Restore,
}

pub(crate) const FAULTS: usize = 12;

/// How much of each; or how much of it has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    /// Requests that are forwarded.
    pub(crate) requests: u8,
    /// How often a token asks a gateway for a mark; as often as it likes, if none is said.
    pub(crate) asks: Option<u8>,
    /// How often gateways are given the other config, which calls the resource something else.
    pub(crate) reloads: u8,
    /// Faults of all kinds.
    pub(crate) total: u8,
    of: [u8; FAULTS],
}

impl Fault {
    const ALL: [(&'static str, Self); FAULTS] = [
        ("crash", Self::Crash),
        ("stop", Self::Stop),
        ("lag", Self::Lag),
        ("miss", Self::Miss),
        ("late", Self::Late),
        ("ambiguous", Self::Ambiguous),
        ("twice", Self::Twice),
        ("slow-answer", Self::SlowAnswer),
        ("break", Self::Break),
        ("gateway-timeout", Self::GatewayTimeout),
        ("new-era", Self::NewEra),
        ("restore", Self::Restore),
    ];
}

impl Limits {
    pub(crate) const fn new(requests: u8, total: u8) -> Self {
        Self { requests, asks: None, reloads: 0, total, of: [0; FAULTS] }
    }

    pub(crate) const fn with(mut self, fault: Fault, most: u8) -> Self {
        self.of[fault as usize] = most;
        self
    }

    /// What is counted, when nothing has happened. What has no limit is not counted: it would only tell states apart.
    pub(crate) fn unspent(&self) -> Self {
        Self { asks: self.asks.map(|_| 0), ..Self::default() }
    }

    pub(crate) fn allow_asking(&self, spent: &Self) -> bool {
        self.asks.is_none() || spent.asks < self.asks
    }

    pub(crate) fn of(&self, fault: Fault) -> u8 {
        self.of[fault as usize]
    }

    pub(crate) fn spend(&mut self, fault: Fault) {
        self.total += 1;
        self.of[fault as usize] += 1;
    }
}

/// What a setting and all smaller ones take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Size {
    #[default]
    Moment,
    Minute,
    Minutes,
    Hour,
}

impl Size {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Moment => "a moment",
            Self::Minute => "seconds",
            Self::Minutes => "minutes",
            Self::Hour => "long",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) gateways: usize,
    /// How many of them are members when it begins.
    pub(crate) up: usize,
    /// It begins with a request of the first token under way at the last of them.
    pub(crate) aloft: bool,
    /// In how many writes a request goes to the upstream: its head, and what of its body comes after it.
    pub(crate) writes: u8,
    /// What happens first.
    pub(crate) prelude: &'static [Action],
    /// How many of them are asked to raise a mark.
    pub(crate) claims: usize,
    /// Leaders one after the other.
    pub(crate) tokens: usize,
    /// Tokens are those of candidates in etcd, and proved; else they are trusted.
    pub(crate) issued: bool,
    /// Whoever is elected has its own mark raised.
    pub(crate) electors: bool,
    /// How long it lasts, in halves of a validity.
    pub(crate) halves: u8,
    /// How often a gateway may join, the first time included.
    pub(crate) joins: u8,
    pub(crate) limits: Limits,
    pub(crate) sights: &'static [Sight],
    pub(crate) size: Size,
}

impl Setting {
    /// The same with other numbers.
    pub(crate) fn with_all(self, numbers: &[(&str, u8)]) -> Self {
        numbers.iter().fold(self, |setting, (what, number)| {
            setting.with(what, *number).unwrap_or_else(|| panic!("there is no {what} in a setting"))
        })
    }

    /// None if there is no such thing.
    pub(crate) fn with(mut self, what: &str, number: u8) -> Option<Self> {
        match what {
            "gateways" => self.gateways = number.into(),
            "aloft" => self.aloft = number > 0,
            "writes" => self.writes = number,
            "up" => self.up = number.into(),
            "claims" => self.claims = number.into(),
            "tokens" => self.tokens = number.into(),
            "halves" => self.halves = number,
            "electors" => self.electors = number > 0,
            "joins" => self.joins = number,
            "requests" => self.limits.requests = number,
            "asks" => self.limits.asks = Some(number),
            "reloads" => self.limits.reloads = number,
            "faults" => self.limits.total = number,
            fault => {
                let (_, fault) = Fault::ALL.iter().find(|(name, _)| *name == fault)?;
                self.limits = self.limits.with(*fault, number);
            }
        }
        Some(self)
    }
}

const PLAIN: Setting = Setting {
    name: "calm",
    gateways: 2,
    up: 2,
    aloft: false,
    writes: 1,
    prelude: &[],
    claims: 2,
    tokens: 2,
    issued: false,
    electors: false,
    halves: 1,
    joins: 1,
    limits: Limits::new(2, 0),
    sights: &[Sight::TopSealed],
    size: Size::Minute,
};

/// One fault, while one gateway is asked for the next mark: long enough for whoever is lost to be waited for.
const LOSS: Setting = Setting { claims: 1, halves: 5, sights: AFTER_LOSS, ..PLAIN };

/// The same with the first request under way from the beginning.
const ALOFT: Setting = Setting { aloft: true, ..LOSS };

/// Its gateway stands still in the middle of it, and the other one is asked for the next mark.
const STOPPED: &[Action] = &[Action::Harm(Fault::Stop, 1), Action::Claim(0, 2)];

const AFTER_CRASH: &[Sight] = &[Sight::TopSealed, Sight::SealedAfterCrash, Sight::SealedAfterEviction];
const AFTER_REJOIN: &[Sight] = &[Sight::TopSealed, Sight::SealedAfterCrash, Sight::SealedAfterRejoin];
const AFTER_LOSS: &[Sight] = &[Sight::TopSealed, Sight::SealedAfterEviction];

const CRASH: Limits = Limits::new(1, 1).with(Fault::Crash, 1);
const STOP: Limits = Limits::new(1, 1).with(Fault::Stop, 1);
const LAG: Limits = Limits::new(1, 1).with(Fault::Lag, 1);
const MISS: Limits = Limits::new(2, 1).with(Fault::Miss, 1);
const LATE: Limits = Limits::new(1, 1).with(Fault::Late, 1);
const AMBIGUOUS: Limits = Limits::new(2, 1).with(Fault::Ambiguous, 1).with(Fault::Twice, 1);
const GAVE_UP: Limits = Limits::new(2, 1).with(Fault::GatewayTimeout, 1).with(Fault::Break, 1);
const RESTORE: Limits = Limits::new(2, 2).with(Fault::Restore, 1).with(Fault::Crash, 1);
const OUT_OF_TOUCH: Limits =
    Limits::new(1, 3).with(Fault::Lag, 1).with(Fault::Stop, 1).with(Fault::SlowAnswer, 1);
/// Two of anything, era and restore apart.
const TWO: Limits = Limits::new(1, 2)
    .with(Fault::Crash, 2)
    .with(Fault::Stop, 2)
    .with(Fault::Lag, 2)
    .with(Fault::Miss, 2)
    .with(Fault::Late, 2)
    .with(Fault::Ambiguous, 2)
    .with(Fault::Twice, 2)
    .with(Fault::SlowAnswer, 2)
    .with(Fault::Break, 2)
    .with(Fault::GatewayTimeout, 2);

/// The large ones last.
const SETTINGS: &[Setting] = &[
    Setting { name: "one-request", limits: Limits::new(1, 0), size: Size::Moment, ..PLAIN },
    PLAIN,
    Setting { name: "three-tokens", claims: 1, tokens: 3, ..PLAIN },
    Setting { name: "three-gateways", gateways: 3, up: 3, claims: 1, limits: Limits::new(1, 0), ..PLAIN },
    Setting { name: "elected", issued: true, electors: true, claims: 0, ..PLAIN },
    Setting { name: "slow", claims: 1, halves: 3, ..PLAIN },
    Setting { name: "joiner", up: 1, ..PLAIN },
    Setting { name: "crash", limits: Limits { requests: 2, ..CRASH }, sights: AFTER_CRASH, ..LOSS },
    Setting { name: "late-seal", claims: 1, tokens: 3, limits: LATE, ..PLAIN },
    Setting { name: "miss", halves: 2, limits: Limits { requests: 1, ..MISS }, ..PLAIN },
    Setting { name: "stop-brief", limits: Limits { requests: 0, ..STOP }, ..ALOFT },
    Setting { name: "lag-brief", limits: Limits { requests: 0, ..LAG }, ..ALOFT },
    Setting { name: "upload", writes: 2, claims: 1, halves: 3, ..PLAIN },
    Setting { name: "stopped-upload", writes: 2, prelude: STOPPED, limits: STOP, ..ALOFT },
    Setting { name: "gateway-timeout", claims: 1, halves: 3, limits: GAVE_UP, ..PLAIN },
    Setting { name: "joiner-misses", up: 1, limits: MISS, size: Size::Minutes, ..PLAIN },
    Setting { name: "ambiguous", claims: 1, halves: 2, limits: AMBIGUOUS, size: Size::Minutes, ..PLAIN },
    Setting { name: "stop", limits: STOP, size: Size::Hour, ..ALOFT },
    Setting { name: "slow-upload", writes: 2, limits: STOP, size: Size::Hour, ..ALOFT },
    Setting { name: "lag", limits: LAG, size: Size::Hour, ..ALOFT },
    Setting { name: "rejoin", joins: 2, limits: CRASH, sights: AFTER_REJOIN, size: Size::Hour, ..ALOFT },
    Setting { name: "restore", claims: 1, joins: 2, halves: 2, limits: RESTORE, size: Size::Hour, ..PLAIN },
    Setting { name: "out-of-touch", limits: OUT_OF_TOUCH, size: Size::Hour, ..ALOFT },
    Setting { name: "two-faults", joins: 2, limits: TWO, size: Size::Hour, ..ALOFT },
];

pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(renames::SETTINGS)
}

pub(crate) fn named(name: &str) -> Option<Setting> {
    all().find(|setting| setting.name == name).copied()
}
