//! Rules broken on purpose: each has to be caught, or the silence about the others says nothing.

use crate::action::Action;
use crate::setting::{Fault, Setting, named};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    PerReplicaCache,
    OpenOnApply,
    LoadBeforeRegister,
    NoDrain,
    CheckThenAct,
    ValidityFromKeepAlive,
    ValidityFromTheAnswer,
    FenceWithoutCutting,
    GuardDroppedOnDisconnect,
    GuardDroppedAtTheHead,
    GuardDroppedAtTheCut,
    SealWithoutCompare,
    ShortWait,
    ClientRetriesOn,
    DefaultLinger,
    IncarnationReuse,
    EvictionWithoutTombstone,
    TombstoneAgeIgnored,
    WatermarkByAnyEvent,
    DrainingOwnRaiseOnly,
    JoinWithoutSeq,
    LeaveWithRequestsInFlight,
    OlderEraOpen,
    EraWithoutTombstone,
    GapsIgnored,
    NoCheckBetweenChunks,
    GatewayTimeoutIsAnAnswer,
    RenamedWithoutOldName,
    NamesKnownAtOnce,
    NewNameFromNothing,
}

impl Control {
    pub(crate) const ALL: &'static [(&'static str, Self)] = &[
        ("per-replica-cache", Self::PerReplicaCache),
        ("open-on-apply", Self::OpenOnApply),
        ("load-before-register", Self::LoadBeforeRegister),
        ("no-drain", Self::NoDrain),
        ("check-then-act", Self::CheckThenAct),
        ("validity-from-keep-alive", Self::ValidityFromKeepAlive),
        ("validity-from-the-answer", Self::ValidityFromTheAnswer),
        ("fence-without-cutting", Self::FenceWithoutCutting),
        ("guard-dropped-on-disconnect", Self::GuardDroppedOnDisconnect),
        ("guard-dropped-at-the-head", Self::GuardDroppedAtTheHead),
        ("guard-dropped-at-the-cut", Self::GuardDroppedAtTheCut),
        ("seal-without-compare", Self::SealWithoutCompare),
        ("w-below-v", Self::ShortWait),
        ("client-retries-on", Self::ClientRetriesOn),
        ("default-linger", Self::DefaultLinger),
        ("incarnation-reuse", Self::IncarnationReuse),
        ("eviction-without-tombstone", Self::EvictionWithoutTombstone),
        ("tombstone-age-ignored", Self::TombstoneAgeIgnored),
        ("watermark-by-any-event", Self::WatermarkByAnyEvent),
        ("draining-own-raise-only", Self::DrainingOwnRaiseOnly),
        ("join-without-seq", Self::JoinWithoutSeq),
        ("leave-with-requests-in-flight", Self::LeaveWithRequestsInFlight),
        ("older-era-open", Self::OlderEraOpen),
        ("era-without-tombstone", Self::EraWithoutTombstone),
        ("gaps-in-seq-ignored", Self::GapsIgnored),
        ("no-check-between-chunks", Self::NoCheckBetweenChunks),
        ("a-gateway-timeout-is-an-answer", Self::GatewayTimeoutIsAnAnswer),
        ("renaming-without-the-old-name", Self::RenamedWithoutOldName),
        ("old-name-given-up-at-once", Self::NamesKnownAtOnce),
        ("new-name-without-the-old-mark", Self::NewNameFromNothing),
    ];

    /// Where it shows soon: a part of a setting that is explored with all rules kept.
    pub(crate) fn setting(self) -> Setting {
        let (name, part): (_, &[(&str, u8)]) = match self {
            Self::PerReplicaCache
            | Self::OpenOnApply
            | Self::NoDrain
            | Self::CheckThenAct
            | Self::GuardDroppedOnDisconnect
            | Self::GuardDroppedAtTheHead
            | Self::GuardDroppedAtTheCut => ("calm", &[]),
            Self::DefaultLinger | Self::ClientRetriesOn => ("slow", ALOFT),
            Self::LoadBeforeRegister => ("joiner", &[]),
            Self::ValidityFromKeepAlive | Self::FenceWithoutCutting => ("lag", &[]),
            Self::LeaveWithRequestsInFlight => ("lag", &[("halves", 3)]),
            Self::ValidityFromTheAnswer => ("out-of-touch", &[]),
            Self::SealWithoutCompare => ("late-seal", &[]),
            Self::ShortWait => ("out-of-touch", &[("halves", 4), ("slow-answer", 0)]),
            Self::IncarnationReuse => ("rejoin", &[("halves", 1)]),
            Self::EvictionWithoutTombstone | Self::TombstoneAgeIgnored => {
                ("crash", &[("aloft", 1), ("requests", 1), ("halves", 2)])
            }
            Self::DrainingOwnRaiseOnly => ("three-tokens", &[]),
            Self::GapsIgnored | Self::JoinWithoutSeq => ("joiner-misses", &[]),
            Self::WatermarkByAnyEvent => ("miss", ALOFT),
            Self::NoCheckBetweenChunks => ("stopped-upload", &[]),
            Self::GatewayTimeoutIsAnAnswer => ("gateway-timeout", &[]),
            Self::RenamedWithoutOldName | Self::NamesKnownAtOnce => ("rename", &[("asks", 1)]),
            Self::NewNameFromNothing => ("rename-below", &[]),
            Self::OlderEraOpen => ("restore", &[("halves", 1)]),
            Self::EraWithoutTombstone => {
                ("restore", &[("aloft", 1), ("requests", 1), ("tokens", 1), ("crash", 0)])
            }
        };
        let setting = named(name).expect("controls name settings that there are");
        Setting { prelude: self.prelude(setting.prelude), ..setting.with_all(part) }
    }

    /// What happens first, where the broken rule would else take long to show.
    fn prelude(self, usual: &'static [Action]) -> &'static [Action] {
        match self {
            Self::ValidityFromKeepAlive | Self::FenceWithoutCutting | Self::LeaveWithRequestsInFlight => {
                &[Action::Harm(Fault::Lag, 1), RAISE]
            }
            // Until the first gateway has waited long enough for the second.
            Self::ShortWait => &[Action::Harm(Fault::Lag, 1), RAISE, Action::Tick, Action::Tick],
            Self::ValidityFromTheAnswer => {
                &[Action::Harm(Fault::Lag, 1), Action::Tick, RAISE, Action::Tick, Action::Tick, Action::Tick]
            }
            Self::EraWithoutTombstone => &[Action::Harm(Fault::Restore, 0)],
            Self::OlderEraOpen
            | Self::WatermarkByAnyEvent
            | Self::ClientRetriesOn
            | Self::DefaultLinger
            | Self::IncarnationReuse => &[RAISE],
            _ => usual,
        }
    }
}

/// The first request is there from the beginning.
const ALOFT: &[(&str, u8)] = &[("aloft", 1), ("requests", 1)];

/// The second token is brought to the first gateway.
const RAISE: Action = Action::Claim(0, 2);
