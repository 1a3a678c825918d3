//! Which faults there are, and the draw of the next one: what befalls whom, for how long.
//!
//! The draw depends on the seed alone, not on what the cluster does meanwhile: the same seed plans the same faults.

use std::fmt;
use std::time::Duration;

use crate::chance::Chance;
use crate::course::TTL;
use crate::network::Way;
use crate::support::Timing;
use crate::support::line::Harm;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    StopGateway,
    KillGateway,
    KillAllGateways,
    /// SIGTERM, as in a rolling update.
    EndGateway,
    /// Its line to etcd.
    Line(Harm),
    /// Its line to one node.
    NodeLine(Harm),
    /// Packets of its line to etcd are lost.
    Packets(Way),
    /// Packets of its line to one node.
    NodePackets(Way),
    StopWriter,
    KillWriter,
    StopNode,
    KillNode,
    /// Two of three nodes.
    StopQuorum,
    SlowDisk,
    /// Compaction and defragmentation.
    Compact,
    Retire,
    Freeze,
    Evict,
    BumpEra,
    /// A gateway is left alone with one node, which is cut off from the other nodes.
    Island,
    /// All gateways end in order, etcd is backed up, and they start again.
    Backup,
    /// etcd is killed, restored from the backup, and a new era begins.
    Restore,
    /// A gateway's config calls the resource something else. Only where all gateways have one name for everything.
    Rename,
}

/// A fault to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    /// To be taken modulo the number of those that it may befall.
    pub(crate) victim: usize,
    /// For a second choice.
    pub(crate) detail: usize,
    pub(crate) length: Duration,
    /// After which time leadership changes hands because of it, if it is to.
    pub(crate) handover: Option<Duration>,
    /// Until the next fault is due.
    pub(crate) pause: Duration,
}

const WEIGHTS: [(usize, Kind); 20] = [
    (18, Kind::StopGateway),
    (9, Kind::KillGateway),
    (1, Kind::KillAllGateways),
    (3, Kind::EndGateway),
    (16, Kind::Line(Harm::Cut)),
    (5, Kind::NodeLine(Harm::Cut)),
    (12, Kind::Packets(Way::Both)),
    (4, Kind::NodePackets(Way::Both)),
    (3, Kind::Island),
    (10, Kind::StopWriter),
    (7, Kind::KillWriter),
    (6, Kind::StopNode),
    (5, Kind::KillNode),
    (2, Kind::StopQuorum),
    (4, Kind::SlowDisk),
    (4, Kind::Compact),
    (3, Kind::Retire),
    (3, Kind::Freeze),
    (3, Kind::Evict),
    (1, Kind::BumpEra),
];

const HARMS: [Harm; 4] = [Harm::Cut, Harm::Swallow, Harm::SwallowRequests, Harm::SwallowAnswers];
const WAYS: [Way; 3] = [Way::Both, Way::Requests, Way::Answers];

impl Plan {
    pub(crate) fn draw(chance: &mut Chance, timing: Timing) -> Self {
        let (kind, validity) = (chance.weighted(&WEIGHTS), timing.validity);
        let (victim, detail) = (chance.below(1 << 16), chance.below(1 << 16));
        let (shortest, longest) = kind.lengths(timing)[chance.below(3)];
        let length = chance.spread(shortest, longest);
        let pause = chance.between(Duration::from_millis(200), Duration::from_millis(1500));
        // The dangerous moment is a handover while a gateway is lost that does not know it yet.
        let (wanted, after) = (!chance.one_in(3), chance.between(Duration::ZERO, validity.mul_f64(0.6)));
        let handover = (wanted && kind.is_loss()).then_some(after);
        let kind = match kind {
            Kind::Line(_) => Kind::Line(HARMS[detail % HARMS.len()]),
            Kind::NodeLine(_) => Kind::NodeLine(HARMS[detail % HARMS.len()]),
            Kind::Packets(_) => Kind::Packets(WAYS[detail % WAYS.len()]),
            Kind::NodePackets(_) => Kind::NodePackets(WAYS[detail % WAYS.len()]),
            kind => kind,
        };
        Self { kind, victim, detail: detail / 16, length, handover, pause }
    }
}

impl Kind {
    /// Short ones, ones around the time that matters to the victim, and ones after which nobody waits for it any
    /// more: each as likely.
    fn lengths(self, timing: Timing) -> [(Duration, Duration); 3] {
        let (validity, least) = (timing.validity, Duration::from_millis(100));
        let gone = match self {
            Self::StopWriter | Self::KillWriter => (TTL, TTL + Duration::from_secs(2)),
            _ if self.is_loss() => (timing.bound(), timing.bound() + validity),
            _ => (2 * validity, 3 * validity),
        };
        [(least, validity / 2), (validity / 2, 2 * validity), gone]
    }

    /// Whether a gateway is lost by it.
    fn is_loss(self) -> bool {
        let is_stop = matches!(self, Self::StopGateway | Self::KillGateway | Self::EndGateway);
        is_stop || matches!(self, Self::Line(_) | Self::Packets(_) | Self::Island)
    }

    /// Whether it is an order of an operator, which only Highgate understands.
    pub(crate) fn is_order(self) -> bool {
        matches!(self, Self::Retire | Self::Freeze | Self::Evict | Self::BumpEra | Self::Restore)
            || self == Self::Rename
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let harm = |harm| match harm {
            Harm::Cut => "cut",
            Harm::Swallow => "swallows all",
            Harm::Lose => "is lost",
            Harm::SwallowRequests => "swallows requests",
            Harm::SwallowAnswers => "swallows answers",
            Harm::LoseEvents => "watches tell of nothing",
            Harm::LoseSomeEvents(_) => "watches that do not tell of everything",
            Harm::FallSilent(..) => "late answers, then silence",
        };
        let way = |way| match way {
            Way::Both => "all packets lost",
            Way::Requests => "requests' packets lost",
            Way::Answers => "answers' packets lost",
        };
        match *self {
            Self::StopGateway => f.write_str("gateway stopped"),
            Self::KillGateway => f.write_str("gateway killed"),
            Self::KillAllGateways => f.write_str("all gateways killed"),
            Self::EndGateway => f.write_str("gateway restarted in order"),
            Self::Line(what) => write!(f, "line to etcd: {}", harm(what)),
            Self::NodeLine(what) => write!(f, "line to one node: {}", harm(what)),
            Self::Packets(what) => write!(f, "line to etcd: {}", way(what)),
            Self::NodePackets(what) => write!(f, "line to one node: {}", way(what)),
            Self::StopWriter => f.write_str("writer stopped"),
            Self::KillWriter => f.write_str("writer killed"),
            Self::StopNode => f.write_str("etcd node stopped"),
            Self::KillNode => f.write_str("etcd node killed"),
            Self::StopQuorum => f.write_str("two etcd nodes stopped"),
            Self::SlowDisk => f.write_str("slow etcd disk"),
            Self::Compact => f.write_str("etcd compacted, defragmented"),
            Self::Retire => f.write_str("replica retired"),
            Self::Freeze => f.write_str("resource frozen"),
            Self::Evict => f.write_str("leader evicted"),
            Self::BumpEra => f.write_str("era bumped"),
            Self::Island => f.write_str("alone with one etcd node"),
            Self::Backup => f.write_str("all gateways restarted, etcd backed up"),
            Self::Restore => f.write_str("etcd restored, era bumped"),
            Self::Rename => f.write_str("resource renamed by a config"),
        }
    }
}
