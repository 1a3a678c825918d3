//! What clients may cost an etcd that several gateways share: so many names, and so many tokens to be looked up.

use std::time::Instant;

use crate::support::etcd::PREFIX;
use crate::support::{Client, post, trial};

#[test]
fn names_that_one_gateway_has_made_count_on_all() {
    let Some(trial) = trial("names_that_one_gateway_has_made_count_on_all").store("max_resources", 4).start()
    else {
        return;
    };
    for name in ["a", "b", "c", "d"] {
        trial.raises(name, 7);
        trial.passes_everywhere(name, 7);
    }
    for token in 1..20 {
        trial.is_refused_everywhere(&format!("new/{token}"), token, 503, "overloaded");
    }
    assert_eq!(trial.etcd().keys(&format!("{PREFIX}/f/")).len(), 4, "nothing was asked of etcd");
    trial.raises("a", 8);
    trial.passes_everywhere("a", 8);
    trial.is_refused_everywhere("b", 6, 412, "stale");
    trial.is_kept();
}

/// Tokens just beyond the last revision could be true, so somebody has to ask; but not for who brings too many.
#[test]
fn nothing_is_looked_up_for_a_client_whose_tokens_were_bogus_too_often() {
    let name = "nothing_is_looked_up_for_a_client_whose_tokens_were_bogus_too_often";
    let builder = trial(name).route("tokens", "issued").listen("refusals_per_second", 1);
    let Some(trial) = builder.listen("refusals_burst", 5).start() else { return };
    let leader = trial.etcd().elect("ledger", "me");
    trial.gateways.iter().for_each(|gateway| gateway.opens("ledger", leader.token));
    let mut client = Client::connect(trial.gateways[0].door.data());
    let write = |resource: &str, token: u64| post("/").resource(resource).token(token);
    let (before, began) = (trial.etcd().requests(), Instant::now());
    let statuses: Vec<_> = (0..400)
        .map(|number| client.ask(&write(&format!("near/{number}"), leader.token + 10_000)).status)
        .collect();
    let (asked, seconds) = (trial.etcd().requests().since(before).all(), began.elapsed().as_secs_f64());
    let refused = statuses.iter().filter(|status| **status == 403).count();
    println!("{asked} requests in {seconds:.2} s; {refused} were looked up and refused");
    assert!(statuses.iter().all(|status| [403, 503].contains(status)), "{statuses:?}");
    assert!(refused as f64 <= 6.0 + seconds, "{refused} in {seconds} s");
    // Beside these, what three gateways ask for by themselves.
    assert!((asked as f64) < 30.0 + 15.0 * seconds, "{asked} in {seconds} s");
    client.ask(&write("ledger", leader.token)).is_ok();
    client.ask(&write("ledger", leader.token - 1)).is_refused(412, "stale");
    trial.passes_everywhere("ledger", leader.token);
    trial.is_kept();
}
