//! Rules of the protocol that can be broken on purpose, to show that the checks would notice.
//!
//! Only with the feature `controls`, which does not build without debug assertions: no release can have it.
//! Without the feature every question here is the constant `false`, and the compiler removes what follows from it.
//! Which rule is broken is said by `HIGHGATE_CONTROL`; `scripts/prove controls` runs them all.

#[cfg(feature = "controls")]
pub(crate) mod keep_alive;

#[cfg(all(feature = "controls", not(debug_assertions)))]
compile_error!("the feature `controls` breaks the fence on purpose; it is for debug builds only");

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $rule:ident = $name:literal,)+) => {
        /// A rule that can be broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $($(#[doc = $doc])+ $rule,)+
        }

        impl Rule {
            /// All of them, with the names that `HIGHGATE_CONTROL` takes.
            pub const ALL: &'static [(&'static str, Self)] = &[$(($name, Self::$rule),)+];
        }
    };
}

rules! {
    /// Marks are kept by each replica for itself.
    SharedMarks = "per-replica-cache",
    /// A raised mark opens only when every member has drained.
    Seal = "open-on-apply",
    /// A replica is a member before it reads the marks. Broken, it reads them, takes its time, and joins; and its gates
    /// follow a mark whose raise they have missed, which they refuse by themselves otherwise.
    LoadAfterJoin = "load-before-register",
    /// A replica says for which raises it has lower requests under way.
    Drain = "no-drain",
    /// A request is counted as under way from its admission on.
    Guard = "check-then-act",
    /// Only a renewal that etcd commits extends the validity; broken, so does any word of any node.
    ValidityFromRenewal = "validity-from-keep-alive",
    /// Validity counts from before a renewal is sent.
    ValidityFromSending = "validity-from-the-answer",
    /// A fence resets upstream connections.
    Cut = "fence-without-cutting",
    /// Every write to an upstream asks whether the request's incarnation is still valid; broken, only its admission does.
    CheckEveryWrite = "no-check-between-chunks",
    /// A client that hangs up does not end its request.
    GuardWithoutClient = "guard-dropped-on-disconnect",
    /// A request ends with the last byte of its response.
    GuardToTheEnd = "guard-dropped-at-the-head",
    /// A complete answer that says "I do not know", such as a 504, ends no request.
    UnknownStatuses = "a-gateway-timeout-is-an-answer",
    /// What was cut may take effect for the lock-delay.
    LockDelay = "guard-dropped-at-the-cut",
    /// A mark is sealed only if it is still the one that was judged. Broken, seals are also slow now and then, and
    /// gates follow a mark that goes down, which they refuse by themselves otherwise.
    SealCompare = "seal-without-compare",
    /// An evicted member is waited for longer than its validity.
    Wait = "w-below-v",
    /// Nothing is sent twice.
    SendOnce = "client-retries-on",
    /// A connection that is cut drops what is still buffered.
    NoLinger = "default-linger",
    /// Every incarnation has a name of its own.
    FreshName = "incarnation-reuse",
    /// An evicted member leaves a tombstone.
    Tombstone = "eviction-without-tombstone",
    /// A tombstone counts until it is old enough.
    TombstoneAge = "tombstone-age-ignored",
    /// A gate that is not empty yet drains for every raise since.
    DrainForAll = "draining-own-raise-only",
    /// A member leaves when nothing of it is under way.
    LeaveEmpty = "leave-with-requests-in-flight",
    /// A mark of an older era is never open.
    MarkOfEra = "older-era-open",
    /// A request that a change of the config renames is checked under its old name, too, until the change is finished.
    OldName = "renaming-without-the-old-name",
    /// An era begins with a tombstone.
    EraTombstone = "era-without-tombstone",
}

/// Whether this rule is broken on purpose.
#[cfg(not(feature = "controls"))]
#[inline(always)]
pub const fn breaks(_: Rule) -> bool {
    false
}

/// Whether this rule is broken on purpose.
#[cfg(feature = "controls")]
pub fn breaks(rule: Rule) -> bool {
    static BROKEN: std::sync::OnceLock<Option<Rule>> = std::sync::OnceLock::new();
    let named = || {
        let name = std::env::var("HIGHGATE_CONTROL").ok().filter(|name| !name.is_empty())?;
        let known = Rule::ALL.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule);
        Some(known.unwrap_or_else(|| panic!("HIGHGATE_CONTROL: there is no rule {name}")))
    };
    *BROKEN.get_or_init(named) == Some(rule)
}
