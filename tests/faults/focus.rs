//! Directed trouble: for a broken rule the faults, the load and the times in which it shows soonest.
//!
//! All of it is within the protocol's assumptions, so the same focus runs clean with the rule unbroken
//! (`--focuses`): else what a control finds would prove nothing. The usual run meets these kinds of trouble by chance.

use std::time::Duration;

use crate::chance::Chance;
use crate::load::{Load, Manner};
use crate::plan::{Kind, Plan};
use crate::support::line::Harm;

pub(crate) struct Focus {
    pub(crate) name: &'static str,
    /// In milliseconds, as the others.
    validity: u64,
    lock_delay: u64,
    pub(crate) drain_timeout: u64,
    /// The upstream's kernel takes little that it has not read.
    pub(crate) narrow: bool,
    pub(crate) load: fn() -> Load,
    /// All gateways have one name for everything, which their configs may change; and tokens are trusted.
    pub(crate) one_name: bool,
    /// Again and again.
    pub(crate) steps: &'static [Step],
}

/// One fault of a focus. Times in milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    kind: Kind,
    /// Any, or always the same.
    victim: Option<usize>,
    length: u64,
    /// After which time all leaders resign.
    handover: Option<u64>,
    /// Until the next one.
    pause: u64,
}

impl Focus {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|focus| focus.name == name)
    }

    pub(crate) fn validity(&self) -> Duration {
        Duration::from_millis(self.validity)
    }

    pub(crate) fn lock_delay(&self) -> Duration {
        Duration::from_millis(self.lock_delay)
    }
}

impl Step {
    pub(crate) fn plan(self, chance: &mut Chance) -> Plan {
        let (victim, detail) = (self.victim.unwrap_or_else(|| chance.below(1 << 16)), chance.below(1 << 16));
        Plan {
            kind: self.kind,
            victim,
            detail,
            length: Duration::from_millis(self.length),
            handover: self.handover.map(Duration::from_millis),
            pause: Duration::from_millis(self.pause),
        }
    }
}

const fn step(kind: Kind, length: u64, handover: Option<u64>, pause: u64) -> Step {
    Step { kind, victim: None, length, handover, pause }
}

const fn step_for(victim: usize, kind: Kind, length: u64, pause: u64) -> Step {
    Step { kind, victim: Some(victim), length, handover: None, pause }
}

pub(crate) static ALL: &[Focus] = &[
    // Leaders come and go as fast as they can, with writes of all lengths under way. Nothing is harmed.
    Focus {
        name: "handovers",
        validity: 1000,
        lock_delay: 1000,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: Load::hasty,
        steps: &[],
    },
    // One leader after the other while the first one's writes are still under way.
    Focus {
        name: "overtakes",
        validity: 1000,
        lock_delay: 1000,
        drain_timeout: 5000,
        narrow: false,
        one_name: false,
        load: || Load {
            terms: (60, 250),
            sealed: false,
            ..Load::hasty().with(&[(40, (0, 50)), (60, (500, 1500))])
        },
        steps: &[],
    },
    // Writes that take longer than a successor waits are cut, and take effect after that.
    Focus {
        name: "cuts",
        validity: 1000,
        lock_delay: 1000,
        drain_timeout: 200,
        narrow: false,
        one_name: false,
        load: || Load::hasty().with(&[(40, (0, 50)), (60, (300, 1500))]),
        steps: &[],
    },
    Focus {
        name: "hang-ups",
        validity: 1000,
        lock_delay: 1000,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: || {
            let hasty = Load::hasty().with(&[(40, (0, 50)), (60, (200, 800))]);
            hasty.with_manners(&[(1, Manner::Plain), (2, Manner::HangsUp)])
        },
        steps: &[],
    },
    Focus {
        name: "heads-first",
        validity: 1000,
        lock_delay: 1000,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: || {
            let hasty = Load::hasty().with(&[(40, (0, 50)), (60, (200, 800))]);
            hasty.with_manners(&[(1, Manner::Plain), (3, Manner::HeadFirst)])
        },
        steps: &[],
    },
    Focus {
        name: "break-offs",
        validity: 1000,
        lock_delay: 300,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: || Load::hasty().with_manners(&[(3, Manner::Plain), (1, Manner::BreaksOff)]),
        steps: &[],
    },
    // Somebody before the upstream answers 504, and the upstream goes on.
    Focus {
        name: "give-ups",
        validity: 1000,
        lock_delay: 1000,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: || {
            let hasty = Load::hasty().with(&[(40, (0, 50)), (60, (200, 700))]);
            hasty.with_manners(&[(1, Manner::Plain), (1, Manner::GivenUp)])
        },
        steps: &[],
    },
    // Bodies wait in the gateway's kernel for an upstream that reads them bit by bit.
    Focus {
        name: "slow-reads",
        validity: 1000,
        lock_delay: 1000,
        drain_timeout: 200,
        narrow: true,
        one_name: false,
        load: || {
            let slow = Load::hasty().with(&[(1, (2000, 3000))]);
            slow.with_manners(&[(2, Manner::Plain), (1, Manner::ReadSlowly)])
        },
        steps: &[],
    },
    // A gateway is stopped in the middle of uploads, their last bytes come meanwhile, and it goes on when the next
    // leader has written elsewhere.
    Focus {
        name: "uploads",
        validity: 1000,
        lock_delay: 300,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: || {
            let slow = Load::steady().with(&[(40, (0, 50)), (60, (500, 3000))]);
            slow.with_manners(&[(1, Manner::Plain), (2, Manner::UploadedSlowly)])
        },
        steps: &[step(Kind::StopGateway, 4000, Some(50), 6500)],
    },
    // A gateway loses etcd for longer than its validity, and leadership changes hands at once.
    Focus {
        name: "lapses",
        validity: 2000,
        lock_delay: 300,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: Load::steady,
        steps: &[
            step(Kind::Line(Harm::Cut), 4000, Some(50), 6500),
            step(Kind::Line(Harm::Swallow), 4000, Some(50), 6500),
        ],
    },
    // The last words of etcd reach a gateway late, and then nothing does.
    Focus {
        name: "late-answers",
        validity: 2000,
        lock_delay: 200,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: Load::steady,
        steps: &[step(Kind::Line(Harm::FallSilent(2400, 4000)), 9000, Some(4020), 12_000)],
    },
    // A gateway and one etcd node hear only each other.
    Focus {
        name: "islands",
        validity: 1000,
        lock_delay: 300,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: Load::steady,
        steps: &[step(Kind::Island, 5000, Some(100), 7500)],
    },
    // Gateways join while leaders come and go.
    Focus {
        name: "restarts",
        validity: 1000,
        lock_delay: 300,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: || Load { terms: (400, 1500), ..Load::hasty().with(&[(80, (0, 50)), (20, (50, 300))]) },
        steps: &[step(Kind::EndGateway, 10, None, 2500)],
    },
    // Gateways are taken out, by an operator or in order, with writes under way.
    Focus {
        name: "departures",
        validity: 1000,
        lock_delay: 800,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: || Load { threads: 2, any_door: 2, ..Load::hasty().with(&[(1, (0, 50)), (1, (500, 900))]) },
        steps: &[step(Kind::Retire, 10, Some(50), 1700), step(Kind::EndGateway, 10, Some(550), 2500)],
    },
    // A gateway loses etcd until its validity is over, and comes back before anybody minds; leadership changes hands
    // when what it had under way before is about to end.
    Focus {
        name: "returns",
        validity: 1000,
        lock_delay: 1200,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: || Load { threads: 3, ..Load::steady().with(&[(1, (0, 50)), (1, (400, 900))]) },
        steps: &[step(Kind::Line(Harm::Cut), 1300, Some(1950), 4500)],
    },
    // etcd is lost and comes back as it once was, while a gateway that hears of nothing is still valid.
    Focus {
        name: "restores",
        validity: 8000,
        lock_delay: 300,
        drain_timeout: 1000,
        narrow: false,
        one_name: false,
        load: || Load {
            haunts: true,
            zombie: 30_000,
            fresh: 30_000,
            terms: (300, 1000),
            ..Load::hasty().with(&[(80, (0, 50)), (20, (50, 300))])
        },
        steps: &[
            step(Kind::Backup, 10, None, 4500),
            step_for(2, Kind::Line(Harm::Cut), 12_000, 0),
            step_for(0, Kind::KillGateway, 2000, 100),
            step(Kind::Restore, 10, None, 25_000),
        ],
    },
    // Gateways get another name for the resource, one after the other; meanwhile others join with the old one.
    Focus {
        name: "renames",
        validity: 1000,
        lock_delay: 300,
        drain_timeout: 1000,
        narrow: false,
        one_name: true,
        load: || Load { terms: (300, 1200), ..Load::hasty().with(&[(50, (0, 50)), (50, (300, 900))]) },
        steps: &[
            step_for(0, Kind::Rename, 400, 1500),
            step_for(2, Kind::EndGateway, 10, 3000),
            step_for(1, Kind::Rename, 400, 900),
            step_for(2, Kind::Rename, 400, 4500),
            step_for(1, Kind::Rename, 400, 900),
            step_for(0, Kind::KillGateway, 300, 3500),
            step_for(2, Kind::Rename, 400, 900),
            step_for(0, Kind::Rename, 400, 4500),
        ],
    },
];
