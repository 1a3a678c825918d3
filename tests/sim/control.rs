//! Rules broken on purpose. The judge has to report each of them, or its silence about the others says nothing.
//!
//! Each is a switch in the simulation's own parts, or changes what goes into and comes out of the real machine:
//! no production code knows of it.

use super::plan::Focus;

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    PerReplicaCache,
    OpenOnApply,
    LoadBeforeRegister,
    NoDrain,
    CheckThenAct,
    ValidityFromKeepAlive,
    ValidityFromAnswer,
    FenceWithoutCut,
    GuardDroppedAtHangUp,
    GuardDroppedAtHead,
    GuardDroppedAtCut,
    SealWithoutCompare,
    ShortWait,
    RetriesOn,
    DefaultLinger,
    IncarnationReuse,
    EvictWithoutTombstone,
    TombstoneAgeIgnored,
    TombstoneFromSending,
    WatermarkByAnyEvent,
    GapIgnored,
    DrainingOwnRaiseOnly,
    JoinWithoutSeq,
    LeaveInFlight,
    OlderEraOpen,
    EraWithoutTombstone,
    WildClocks,
    PauseBeforeWrite,
    JoinOverTombstone,
    BlockedAtTheCut,
    JudgedByOldEra,
}

impl Control {
    pub(crate) const ALL: [Self; 31] = [
        Self::PerReplicaCache,
        Self::OpenOnApply,
        Self::LoadBeforeRegister,
        Self::NoDrain,
        Self::CheckThenAct,
        Self::ValidityFromKeepAlive,
        Self::ValidityFromAnswer,
        Self::FenceWithoutCut,
        Self::GuardDroppedAtHangUp,
        Self::GuardDroppedAtHead,
        Self::GuardDroppedAtCut,
        Self::SealWithoutCompare,
        Self::ShortWait,
        Self::RetriesOn,
        Self::DefaultLinger,
        Self::IncarnationReuse,
        Self::EvictWithoutTombstone,
        Self::TombstoneAgeIgnored,
        Self::TombstoneFromSending,
        Self::WatermarkByAnyEvent,
        Self::GapIgnored,
        Self::DrainingOwnRaiseOnly,
        Self::JoinWithoutSeq,
        Self::LeaveInFlight,
        Self::OlderEraOpen,
        Self::EraWithoutTombstone,
        Self::WildClocks,
        Self::PauseBeforeWrite,
        Self::JoinOverTombstone,
        Self::BlockedAtTheCut,
        Self::JudgedByOldEra,
    ];

    /// As it is called in the list of the protocol's controls.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PerReplicaCache => "per-replica cache",
            Self::OpenOnApply => "open on apply",
            Self::LoadBeforeRegister => "load before register",
            Self::NoDrain => "no drain",
            Self::CheckThenAct => "check then act",
            Self::ValidityFromKeepAlive => "validity from lease keep-alive",
            Self::ValidityFromAnswer => "validity counted from the answer",
            Self::FenceWithoutCut => "fence without cutting",
            Self::GuardDroppedAtHangUp => "guard dropped on client disconnect",
            Self::GuardDroppedAtHead => "guard dropped at the response head",
            Self::GuardDroppedAtCut => "guard dropped at the cut",
            Self::SealWithoutCompare => "seal without compare",
            Self::ShortWait => "W < V",
            Self::RetriesOn => "client retries on",
            Self::DefaultLinger => "default linger",
            Self::IncarnationReuse => "incarnation reuse",
            Self::EvictWithoutTombstone => "eviction without tombstone",
            Self::TombstoneAgeIgnored => "tombstone age ignored",
            Self::TombstoneFromSending => "tombstone counted from sending",
            Self::WatermarkByAnyEvent => "watermark moved by events without seq",
            Self::GapIgnored => "gaps in seq ignored",
            Self::DrainingOwnRaiseOnly => "draining lists only its own raise",
            Self::JoinWithoutSeq => "JOIN that does not learn seq",
            Self::LeaveInFlight => "leave with requests in flight",
            Self::OlderEraOpen => "mark of an older era treated as open",
            Self::EraWithoutTombstone => "era bump without its tombstone",
            Self::WildClocks => "clocks beyond the assumed error",
            Self::PauseBeforeWrite => "pause between the check and the write",
            Self::JoinOverTombstone => "JOIN run again after the eviction",
            Self::BlockedAtTheCut => "unknown outcome settled before D",
            Self::JudgedByOldEra => "answers judged by what an older etcd said",
        }
    }

    /// Whether it keeps something from opening rather than opening it too early.
    pub(crate) fn is_about_progress(self) -> bool {
        self == Self::JudgedByOldEra
    }

    /// The kind of trouble in which it shows soonest. Runs without a control meet all kinds.
    pub(crate) fn focus(self) -> Focus {
        match self {
            Self::OlderEraOpen | Self::EraWithoutTombstone | Self::JudgedByOldEra => Focus::Eras,
            Self::WatermarkByAnyEvent | Self::GapIgnored | Self::JoinWithoutSeq => Focus::Watches,
            Self::LoadBeforeRegister | Self::LeaveInFlight => Focus::Restarts,
            Self::ValidityFromAnswer => Focus::Answers,
            Self::TombstoneFromSending | Self::JoinOverTombstone => Focus::Network,
            Self::BlockedAtTheCut => Focus::Operators,
            Self::IncarnationReuse => Focus::Lapses,
            Self::ShortWait
            | Self::EvictWithoutTombstone
            | Self::TombstoneAgeIgnored
            | Self::ValidityFromKeepAlive
            | Self::FenceWithoutCut
            | Self::WildClocks
            | Self::PauseBeforeWrite => Focus::Lapses,
            _ => Focus::Any,
        }
    }
}
