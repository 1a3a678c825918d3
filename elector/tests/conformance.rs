//! What every backend has to do: one suite, instantiated for each.
//!
//! The cases are functions over a [`Fixture`]; `suite!` makes tests of them. They use short leases and real time,
//! and no case depends on how fast the machine is, only on what came before what.
#![allow(clippy::unwrap_used)]

mod conformance {
    pub(crate) mod crowds;
    #[cfg(feature = "etcd")]
    pub(crate) mod etcd;
    pub(crate) mod fixture;
    pub(crate) mod gateway;
    pub(crate) mod handover;
    pub(crate) mod ledger;
    pub(crate) mod loss;
    pub(crate) mod processes;
    pub(crate) mod script;
    #[cfg(feature = "etcd")]
    #[path = "../etcd/server.rs"]
    #[allow(dead_code, reason = "shared with the tests of the etcd backend, which need more of it")]
    pub(crate) mod server;
    pub(crate) mod several;
    pub(crate) mod views;
}

/// All cases as tests of one backend.
macro_rules! suite {
    ($backend:ident, $fixture:ty, { $($module:ident :: $case:ident),* $(,)? }) => {
        mod $backend {
            use super::conformance::fixture::Fixture;

            $(
                #[tokio::test]
                async fn $case() {
                    match <$fixture>::start().await {
                        Some(fixture) => super::conformance::$module::$case(fixture).await,
                        None => eprintln!("skipped: there is no {} here", stringify!($backend)),
                    }
                }
            )*
        }
    };
    ($backend:ident, $fixture:ty) => {
        suite!($backend, $fixture, {
            handover::tokens_grow_over_two_hundred_handovers_with_crashes,
            handover::candidates_lead_in_the_order_in_which_they_came,
            handover::resigning_hands_over_at_once,
            handover::whoever_knows_the_grant_can_resign,
            handover::a_withdrawn_candidate_is_not_in_the_way,
            loss::loss_is_noticed_before_anybody_else_leads,
            loss::a_leader_survives_a_restart_of_the_backend,
            loss::a_blocked_runtime_keeps_leading,
            loss::a_blocked_runtime_gives_up_by_the_watchdog,
            crowds::never_are_two_leaderships_valid_at_once,
            crowds::a_thousand_elections_share_one_renewer,
            views::observers_see_every_change,
            views::a_campaign_tells_who_leads,
            ledger::what_was_completed_is_not_run_again,
            ledger::a_departed_leader_completes_nothing,
            ledger::a_key_belongs_to_the_resource_that_is_led,
            processes::another_process_takes_over_after_a_kill,
        });
    };
}

suite!(highgate, crate::conformance::gateway::Gateway);
#[cfg(feature = "etcd")]
suite!(etcd, crate::conformance::etcd::Etcd);

// Over TLS it is the same but for the connections.
#[cfg(feature = "tls")]
suite!(encrypted, crate::conformance::gateway::Encrypted, {
    handover::candidates_lead_in_the_order_in_which_they_came,
    handover::resigning_hands_over_at_once,
    handover::a_withdrawn_candidate_is_not_in_the_way,
    loss::loss_is_noticed_before_anybody_else_leads,
    loss::a_leader_survives_a_restart_of_the_backend,
    views::observers_see_every_change,
    ledger::what_was_completed_is_not_run_again,
});

// What only the gateway's HTTP API can be asked.
suite!(http, crate::conformance::gateway::Gateway, {
    script::a_shell_job_leads_with_nothing_but_curl,
    script::a_shell_job_that_is_deposed_is_stopped,
    several::gateways_with_elections_of_their_own_are_not_taken_for_one,
});
