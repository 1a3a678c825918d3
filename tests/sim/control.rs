//! Rules broken on purpose. The judge has to report each of them, or its silence about the others says nothing.
//!
//! Each is a switch in the simulation's own parts, or changes what goes into and comes out of the real machine:
//! no production code knows of it. The names are those that every engine uses.

use super::plan::Focus;

macro_rules! controls {
    ($($control:ident = $name:literal),* $(,)?) => {
        /// One broken rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Control {
            $($control,)*
        }

        impl Control {
            pub(crate) const ALL: &[Self] = &[$(Self::$control),*];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$control => $name,)*
                }
            }
        }
    };
}

controls! {
    PerReplicaCache = "per-replica-cache",
    OpenOnApply = "open-on-apply",
    LoadBeforeRegister = "load-before-register",
    NoDrain = "no-drain",
    CheckThenAct = "check-then-act",
    ValidityFromKeepAlive = "validity-from-keep-alive",
    ValidityFromAnswer = "validity-from-the-answer",
    FenceWithoutCut = "fence-without-cutting",
    GuardDroppedAtHangUp = "guard-dropped-on-disconnect",
    GuardDroppedAtHead = "guard-dropped-at-the-head",
    GuardDroppedAtCut = "guard-dropped-at-the-cut",
    SealWithoutCompare = "seal-without-compare",
    ShortWait = "w-below-v",
    RetriesOn = "client-retries-on",
    DefaultLinger = "default-linger",
    IncarnationReuse = "incarnation-reuse",
    EvictWithoutTombstone = "eviction-without-tombstone",
    TombstoneAgeIgnored = "tombstone-age-ignored",
    WatermarkByAnyEvent = "watermark-by-any-event",
    DrainingOwnRaiseOnly = "draining-own-raise-only",
    JoinWithoutSeq = "join-without-seq",
    LeaveInFlight = "leave-with-requests-in-flight",
    OlderEraOpen = "older-era-open",
    EraWithoutTombstone = "era-without-tombstone",
    NoCheckBetweenChunks = "no-check-between-chunks",
    GatewayTimeoutIsAnAnswer = "a-gateway-timeout-is-an-answer",
    RenamedWithoutOldName = "renaming-without-the-old-name",
    // From here on the simulation's own.
    WildClocks = "clocks-beyond-the-assumed-error",
    PauseBeforeWrite = "pause-before-the-write",
    NamesKnownAtOnce = "old-name-given-up-at-once",
    NewNameFromNothing = "new-name-without-the-old-mark",
    GapIgnored = "gaps-in-seq-ignored",
    TombstoneFromSending = "tombstone-counted-from-sending",
    BlockedAtTheCut = "unknown-settled-at-the-cut",
    JudgedByOldEra = "answers-judged-by-an-older-etcd",
    RenewedByLateCopies = "renewal-run-again-after-a-later-one",
    ElectorFromAnswer = "elector-validity-from-the-answer",
    ToldUnsealed = "token-told-before-the-seal",
    DeletedBeforeTheEnd = "resign-before-the-work-stops",
}

impl Control {
    /// Whether it keeps something from opening rather than opening it too early.
    fn is_about_progress(self) -> bool {
        self == Self::JudgedByOldEra
    }

    /// Whether this is what it breaks: opening too late, what electors promise, or what gateways do.
    pub(crate) fn shows_as(self, what: &str) -> bool {
        let of_electors =
            ["told too early", "told down", "two leaders", "deposed while valid"].contains(&what);
        let breaks_elections =
            matches!(self, Self::ElectorFromAnswer | Self::ToldUnsealed | Self::DeletedBeforeTheEnd);
        match what {
            "liveness" => self.is_about_progress(),
            _ => !self.is_about_progress() && of_electors == breaks_elections,
        }
    }

    /// The kind of trouble in which it shows soonest. Runs without a control meet all kinds.
    pub(crate) fn focus(self) -> Focus {
        match self {
            Self::OlderEraOpen | Self::EraWithoutTombstone | Self::JudgedByOldEra => Focus::Eras,
            Self::WatermarkByAnyEvent | Self::GapIgnored | Self::JoinWithoutSeq => Focus::Watches,
            Self::LoadBeforeRegister | Self::LeaveInFlight => Focus::Restarts,
            Self::ValidityFromAnswer => Focus::Answers,
            Self::NoCheckBetweenChunks => Focus::Uploads,
            Self::TombstoneFromSending => Focus::Network,
            Self::RenewedByLateCopies => Focus::Joins,
            Self::BlockedAtTheCut => Focus::Operators,
            Self::IncarnationReuse => Focus::Lapses,
            Self::RenamedWithoutOldName | Self::NamesKnownAtOnce | Self::NewNameFromNothing => Focus::Names,
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
