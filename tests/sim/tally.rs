//! How often each thing happened: a run without trouble proves nothing.

use super::plan::Fault;

/// How often something happened in a batch.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) times: u64,
    /// It takes many runs to be sure that it happens.
    pub(crate) rare: bool,
}

macro_rules! tally {
    ($($field:ident: $name:literal $($rare:ident)?),* $(,)?) => {
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Tally {
            $(pub(crate) $field: u64,)*
        }

        impl Tally {
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            pub(crate) fn rows(&self) -> Vec<Row> {
                vec![$(Row { name: $name, times: self.$field, rare: concat!("" $(, stringify!($rare))?) == "rare" }),*]
            }
        }
    };
}

tally! {
    forwarded: "requests forwarded",
    stale: "stale requests refused",
    admitted: "requests admitted",
    not_sent: "requests admitted and not sent",
    chunks: "writes of requests that had begun",
    cut_uploads: "requests cut because their incarnation was over before their last write",
    unknown: "upstream connections broken",
    gateway_timeouts: "responses of 504 while the upstream went on",
    swept: "requests cut at the drain time-out",
    raises: "marks raised",
    seals: "marks sealed",
    seals_after_crash: "seals with a crash since the raise",
    seals_after_join: "seals with a join since the raise",
    seals_after_eviction: "seals with an eviction since the raise",
    seals_after_lapse: "seals with a lapse since the raise",
    seals_after_resync: "seals with a resync since the raise",
    joins: "joins",
    lapses: "validities that ended",
    fenced_expired: "fences: expired",
    fenced_evicted: "fences: evicted",
    fenced_refused: "fences: renewal refused",
    fenced_new_era: "fences: new era",
    fenced_went_back: "fences: etcd went back",
    evictions: "evictions",
    retirements: "retirements asked for",
    burials: "burials asked for",
    deletions: "members deleted by hand",
    forgotten: "tombstones forgotten",
    held_back: "gates held back for an earlier incarnation" rare,
    refused_proposals: "proposals refused",
    resyncs: "resyncs",
    compactions: "watches compacted",
    lost_revisions: "revisions lost by a watch",
    repeated_revisions: "revisions repeated by a watch",
    lost_answers: "answers lost",
    late_runs: "transactions run after their answer",
    late_commits: "of these, committed",
    eras: "eras begun",
    restores: "restores",
    crashes: "crashes",
    clean_stops: "clean stops",
    pauses: "process pauses",
    stalls: "driver stalls",
    etcd_pauses: "etcd pauses",
    freezes: "freezes",
    promises: "longer lock-delays",
    renames: "changes of names asked for",
    names_announced: "changes of names announced",
    names_finished: "changes of names finished",
    names_refused: "configs refused because of another change of names" rare,
    admitted_twice: "requests admitted under two names",
    claimed_again: "requests named again because names had changed while they waited",
    below_floor: "stale requests refused by the mark of an old name",
    elections: "elections won, and the job told",
    elector_raises: "marks raised by electors",
    sealed_terms: "of these jobs, told after the gateways had opened",
    unsealed_terms: "of these jobs, told without sealing",
    handovers: "elections won after a resignation",
    renewals: "leaderships renewed",
    resigned: "leaderships resigned",
    expired: "leaderships lost: not renewed in time",
    deposed: "leaderships lost: said by etcd",
    job_writes: "requests by leaders' jobs",
    zombie_writes: "requests by jobs that had lost their leadership",
    lost_campaigns: "candidacies that failed and began anew",
    read_back: "candidacies whose key was there already",
    expired_leases: "leases that expired",
    late_leases: "leases that expired late",
    early_leases: "leases revoked early by an old leader of etcd",
    wronged: "leaders whose key was taken early" rare,
    moved_in_time: "keys that had moved to another lease before",
    orphans: "candidates without anybody behind them, removed" rare,
    other_etcds: "electors that noticed a restored etcd",
    etcd_elections: "leaders of etcd elected",
    elector_crashes: "electors crashed",
    elector_pauses: "electors paused",
}

impl Tally {
    pub(crate) fn fence(&mut self, why: &str) {
        match why {
            "expired" => self.fenced_expired += 1,
            "evicted" => self.fenced_evicted += 1,
            "refused" => self.fenced_refused += 1,
            "new era" => self.fenced_new_era += 1,
            _ => self.fenced_went_back += 1,
        }
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Pause => self.pauses += 1,
            Fault::Stall => self.stalls += 1,
            Fault::PauseEtcd => self.etcd_pauses += 1,
            Fault::Retire => self.retirements += 1,
            Fault::Freeze => self.freezes += 1,
            Fault::Promise => self.promises += 1,
            _ => {}
        }
    }
}
