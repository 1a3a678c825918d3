//! What a run is about: how many replicas, which times, which troubles and how often. Drawn from the seed.

use std::time::Duration;

use highgate::replica::Timing;

use super::clock::{MAX_PPM, MILLI, Nanos, SECOND, nanos};
use super::control::Control;
use super::dice::Dice;

/// The kind of trouble that a run has most of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Focus {
    Any,
    /// None at all, but handovers.
    Calm,
    Restarts,
    /// Pauses and partitions, so that validities end and members are evicted.
    Lapses,
    /// Pauses while most requests are in the middle of an upload.
    Uploads,
    Watches,
    Network,
    /// Answers that are very late, and then nothing at all.
    Answers,
    /// Joins that are run late and twice, and members that are evicted again and again.
    Joins,
    Eras,
    Operators,
    /// Configs that call resources something else, gateway after gateway.
    Names,
}

/// What may go wrong, or be done by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process does nothing for a while.
    Pause,
    /// Its store's thread does nothing; requests and the warden go on.
    Stall,
    Crash,
    /// An orderly end.
    Stop,
    /// Nothing goes between a replica and etcd.
    Unplug,
    /// A watch says nothing for a while.
    Deafen,
    /// Nobody is answered.
    PauseEtcd,
    Compact,
    BumpEra,
    /// etcd from an older backup, then a new era.
    Restore,
    Retire,
    Freeze,
    /// Somebody deletes the key of a member that is dead for long.
    DeleteByHand,
    /// A route with a longer lock-delay.
    Promise,
    /// The next gateway's config calls the resources something else.
    Rename,
    /// etcd elects a new leader, and the old one may revoke leases that it had extended.
    ElectEtcd,
    PauseElector,
    CrashElector,
    UnplugElector,
}

/// How badly the network behaves, in times of a thousand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) slow: u64,
    pub(crate) lost: u64,
    pub(crate) answer_lost: u64,
    pub(crate) answer_slow: u64,
    pub(crate) twice: u64,
    pub(crate) watch_loses: u64,
    pub(crate) watch_repeats: u64,
}

impl Network {
    pub(crate) const QUIET: Self =
        Self { slow: 0, lost: 0, answer_lost: 0, answer_slow: 0, twice: 0, watch_loses: 0, watch_repeats: 0 };
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) hosts: usize,
    pub(crate) timing: Timing,
    pub(crate) ppm: Vec<i64>,
    /// Trouble ends then, and what has to open opens.
    pub(crate) chaos: Nanos,
    pub(crate) fault_every: Nanos,
    /// Each as often as it is likely.
    pub(crate) faults: Vec<Fault>,
    pub(crate) network: Network,
    pub(crate) request_every: Nanos,
    /// How many of the clients' acts are a change of the leader, and how many of the others a zombie's.
    pub(crate) handover: u64,
    pub(crate) zombie: u64,
    /// How long the upstream takes, typically.
    pub(crate) service: Nanos,
    pub(crate) hold: Nanos,
    /// How many of a thousand requests are written in several parts, and how long it typically takes to the next.
    pub(crate) uploads: u64,
    pub(crate) upload_pause: Nanos,
    /// Per resource: whether elections issue its tokens, and whether unknown outcomes block it.
    pub(crate) issued: Vec<bool>,
    pub(crate) blocks: Vec<bool>,
    /// Lock-delays change while it runs.
    pub(crate) uneven: bool,
    /// The clocks of the electors' machines, and of etcd's.
    pub(crate) elector_ppm: Vec<i64>,
    pub(crate) etcd_ppm: i64,
    /// Of the electors' leases.
    pub(crate) ttl: Duration,
    /// Electors wait for the gateways before a job is told its token.
    pub(crate) sealed: bool,
}

impl Plan {
    pub(crate) fn draw(dice: &mut Dice, focus: Option<Focus>, control: Option<Control>) -> Self {
        let kinds = [
            Focus::Any,
            Focus::Any,
            Focus::Any,
            Focus::Calm,
            Focus::Restarts,
            Focus::Lapses,
            Focus::Lapses,
            Focus::Uploads,
            Focus::Watches,
            Focus::Network,
            Focus::Answers,
            Focus::Joins,
            Focus::Eras,
            Focus::Operators,
            Focus::Names,
        ];
        let drawn = dice.pick(&kinds);
        let focus = focus.unwrap_or(drawn);
        let timing = timing(focus, dice);
        let (validity, delay) = (nanos(timing.validity), nanos(timing.lock_delay));
        let hosts = dice.pick(&[2, 3, 3, 3, 4]);
        let resources = if focus == Focus::Joins { 1 } else { dice.pick(&[1, 1, 2, 3]) };
        // What electors do takes time from what a run with a certain kind of trouble is about.
        let elected = match focus {
            Focus::Joins => 0,
            Focus::Restarts | Focus::Operators | Focus::Answers | Focus::Uploads | Focus::Names => 200,
            _ => 500,
        };
        let faults = faults(focus, dice);
        let restored = faults.contains(&Fault::Restore);
        let blocking = if focus == Focus::Operators { 700 } else { 120 };
        let limit = if control == Some(Control::WildClocks) { 60_000 } else { MAX_PPM };
        Self {
            hosts,
            timing,
            ppm: (0..hosts).map(|_| rate(dice, limit)).collect(),
            chaos: dice.between(12, 24) * validity + 6 * delay,
            fault_every: match focus {
                Focus::Joins => dice.between(validity / 3, 3 * validity / 2),
                Focus::Names => dice.between(validity / 16, validity / 4),
                _ => dice.between(validity / 3, 2 * validity),
            },
            network: network(focus, dice),
            request_every: match focus {
                // Names matter most that nobody writes under for a while.
                Focus::Names => dice.pick(&[validity / 20, validity / 5, validity / 2, validity]),
                _ => dice.between(validity / 40, validity / 6),
            },
            handover: if focus == Focus::Names { dice.between(200, 500) } else { dice.between(30, 250) },
            zombie: if focus == Focus::Names { dice.between(300, 700) } else { dice.between(50, 500) },
            service: dice.pick(&[5 * MILLI, 30 * MILLI, validity / 8, validity / 2, validity, 3 * validity]),
            hold: dice.pick(&[validity / 4, validity, 2 * validity]),
            uploads: if focus == Focus::Uploads { 900 } else { dice.pick(&[0, 200, 500]) },
            upload_pause: match focus {
                Focus::Uploads => dice.pick(&[validity / 2, 2 * validity]),
                _ => dice.pick(&[5 * MILLI, validity / 8, validity / 2]),
            },
            issued: (0..resources).map(|_| dice.chance(elected)).collect(),
            // After a restore nobody knows of a lock-delay that is longer than that of who begins the era, nor that
            // outcomes were left to an operator.
            blocks: (0..resources).map(|_| !restored && dice.chance(blocking)).collect(),
            uneven: !restored && dice.chance(if focus == Focus::Joins { 600 } else { 200 }),
            elector_ppm: (0..dice.between(2, 3)).map(|_| rate(dice, limit)).collect(),
            etcd_ppm: rate(dice, limit),
            ttl: Duration::from_secs(dice.pick(&[1, 2, 2, 3, 5])),
            sealed: dice.chance(750),
            faults,
        }
    }

    /// How long everything may take to open once trouble has ended: evictions one after the other, the wait for
    /// tombstones, drains, and what is still on its way to etcd.
    pub(crate) fn patience(&self) -> Nanos {
        let Timing { validity, lock_delay, drain_timeout } = self.timing;
        let longest = 4 * nanos(lock_delay);
        12 * nanos(validity)
            + 4 * longest
            + 4 * nanos(drain_timeout)
            + 2 * self.hold
            + 6 * nanos(self.ttl)
            + 40 * SECOND
    }
}

/// Late answers matter most where little else is waited for, and tombstones where they stay for long.
fn timing(focus: Focus, dice: &mut Dice) -> Timing {
    let validity = Duration::from_millis(match focus {
        Focus::Answers => dice.pick(&[1000, 2000, 4000]),
        Focus::Joins => 500,
        Focus::Names => dice.pick(&[1000, 4000, 4000]),
        _ => dice.pick(&[500, 1000, 1000, 2000, 4000]),
    });
    let short = Duration::from_millis(100);
    let lock_delay = match focus {
        Focus::Answers | Focus::Uploads => dice.pick(&[Duration::ZERO, Duration::ZERO, short]),
        Focus::Joins | Focus::Operators => dice.pick(&[validity, 2 * validity]),
        _ => dice.pick(&[Duration::ZERO, short, validity / 3, validity / 2, validity, 2 * validity]),
    };
    let drain_timeout = dice.pick(&[short / 2, 2 * short, validity / 2, validity]);
    Timing { validity, lock_delay, drain_timeout }
}

/// Often at the limit: there it is tight.
fn rate(dice: &mut Dice, limit: i64) -> i64 {
    let within = i64::try_from(dice.below(2 * limit.unsigned_abs() + 1)).expect("small") - limit;
    dice.pick(&[-limit, limit, within])
}

fn faults(focus: Focus, dice: &mut Dice) -> Vec<Fault> {
    use Fault::*;
    let usual = [
        Pause,
        Pause,
        Stall,
        Crash,
        Stop,
        Unplug,
        Deafen,
        PauseEtcd,
        Compact,
        Retire,
        Freeze,
        DeleteByHand,
        Promise,
        Rename,
        BumpEra,
        ElectEtcd,
        PauseElector,
        CrashElector,
        UnplugElector,
    ];
    let more: &[Fault] = match focus {
        Focus::Calm => return Vec::new(),
        Focus::Any => &[],
        Focus::Restarts => &[Crash, Crash, Crash, Stop, Stop, DeleteByHand],
        Focus::Lapses => &[Pause, Pause, Stall, Stall, Unplug, Unplug, Unplug, PauseEtcd],
        Focus::Uploads => &[Pause, Pause, Pause, Pause],
        Focus::Watches => &[Deafen, Deafen, Deafen, Compact, Stall],
        Focus::Network => &[Unplug, PauseEtcd, Unplug],
        Focus::Answers => &[Unplug, Unplug, Unplug, Unplug],
        Focus::Joins => &[Crash, Crash, Unplug, Unplug, Pause, Stall, Promise],
        Focus::Eras => &[BumpEra, Restore, Restore, Restore, Deafen, Unplug],
        Focus::Operators => &[Retire, Retire, Freeze, Freeze, BumpEra, Promise],
        Focus::Names => &[Rename, Rename, Rename, Rename, Rename, Crash, Unplug],
    };
    let mut faults = more.repeat(3);
    faults.extend(usual);
    if dice.chance(150) {
        faults.push(Restore);
    }
    faults
}

fn network(focus: Focus, dice: &mut Dice) -> Network {
    if focus == Focus::Calm {
        return Network::QUIET;
    }
    if focus == Focus::Joins {
        let (slow, lost) = (dice.between(50, 250), dice.between(60, 350));
        let twice = dice.between(200, 500);
        return Network { slow, answer_lost: lost, twice, ..Network::QUIET };
    }
    let mut up_to = |usual: u64, bad: Focus, worst: u64| {
        let limit = if focus == bad { worst } else { usual };
        dice.below(limit + 1)
    };
    Network {
        slow: up_to(20, Focus::Network, 250),
        lost: up_to(10, Focus::Network, 80),
        answer_lost: up_to(20, Focus::Network, 120),
        answer_slow: up_to(20, Focus::Answers, 700),
        twice: up_to(20, Focus::Network, 200),
        watch_loses: up_to(10, Focus::Watches, 150),
        watch_repeats: up_to(5, Focus::Watches, 40),
    }
}
