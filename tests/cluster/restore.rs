//! etcd comes back from a backup and has forgotten what it said: nothing passes until an operator bumps the era.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Gateway, Trial, eventually, stays, trial};

/// The first token of the first era after the beginning.
const NEXT_ERA: u64 = 1 << 48;

fn nobody_is_ready(trial: &Trial) -> bool {
    !trial.gateways.iter().any(|gateway| gateway.door.says_ready())
}

#[test]
fn after_a_restore_everything_is_fenced_until_the_era_is_bumped() {
    let name = "after_a_restore_everything_is_fenced_until_the_era_is_bumped";
    let Some(mut trial) = trial(name).start() else { return };
    trial.raises("ledger", 7);
    let snapshot = trial.folder.path().join("snapshot");
    trial.etcd().save_snapshot(&snapshot);
    // The backup knows nothing of this one.
    trial.raises("ledger", 8);
    trial.raises("other", 3);
    trial.etcd_mut().restore(&snapshot);

    eventually("no gateway is ready", || nobody_is_ready(&trial));
    says_what_to_do(&trial);
    // One that comes back remembers as well.
    trial.gateways[2].signal(Signal::TERM);
    trial.gateways[2].ends();
    trial.gateways[2].start_again();
    let long = trial.timing.wait() + trial.timing.lock_delay + Duration::from_secs(1);
    stays("no gateway is ready", long, || nobody_is_ready(&trial));
    says_what_to_do(&trial);

    trial.operate(0, &["era", "bump", "--yes"]);
    for gateway in &trial.gateways {
        gateway.becomes_ready();
        assert_eq!(gateway.overview()["era"], 1, "{}", gateway.name);
    }
    for (resource, token) in [("ledger", 6), ("ledger", 7), ("ledger", 8), ("ledger", 1000), ("other", 3)] {
        trial.is_refused_everywhere(resource, token, 412, "stale");
    }
    trial.raises("ledger", NEXT_ERA + 1);
    trial.passes_everywhere("ledger", NEXT_ERA + 1);
    trial.raises("other", NEXT_ERA + 1);
    trial.is_kept().is_worth(3, 8);
}

/// The gateways are away while etcd is restored, and come back to one whose revision is higher than any that they saw:
/// only the number of changes is lower than they remember.
fn is_noticed_after_a_restart(mut trial: Trial, restore: impl FnOnce(&mut Trial, &Path)) {
    trial.raises("ledger", 7);
    let snapshot = trial.folder.path().join("snapshot");
    trial.etcd().save_snapshot(&snapshot);
    trial.raises("ledger", 8);
    trial.raises("ledger", 9);
    let before = trial.etcd().revision();
    for gateway in &mut trial.gateways {
        gateway.signal(Signal::TERM);
        gateway.ends();
    }
    restore(&mut trial, &snapshot);
    assert!(trial.etcd().revision() > before + 10, "it is as far as it was");
    trial.gateways.iter_mut().for_each(|gateway| gateway.start_again());
    let long = trial.timing.wait() + trial.timing.lock_delay + Duration::from_secs(1);
    stays("no gateway is ready", long, || nobody_is_ready(&trial));
    for gateway in &trial.gateways {
        assert!(!gateway.write("ledger", 8).send().passed(), "a mark of 9 was there");
        let because = gateway.overview()["fenced_because"].to_string();
        println!("{}: {because}", gateway.name);
        assert!(because.contains("changes") && because.contains("era bump"), "{because}");
    }
    trial.operate(0, &["era", "bump", "--yes"]);
    trial.gateways.iter().for_each(Gateway::becomes_ready);
    trial.is_refused_everywhere("ledger", 10, 412, "stale");
    trial.raises("ledger", NEXT_ERA + 1);
    trial.passes_everywhere("ledger", NEXT_ERA + 1);
    trial.is_kept();
}

#[test]
fn a_restored_etcd_that_has_caught_up_is_noticed_after_a_restart() {
    let name = "a_restored_etcd_that_has_caught_up_is_noticed_after_a_restart";
    let Some(trial) = trial(name).start() else { return };
    is_noticed_after_a_restart(trial, |trial, snapshot| {
        trial.etcd_mut().restore(snapshot);
        trial.etcd().commit_times(500);
    });
}

#[test]
fn a_restore_that_bumps_revisions_is_noticed_after_a_restart() {
    let Some(trial) = trial("a_restore_that_bumps_revisions_is_noticed_after_a_restart").start() else {
        return;
    };
    is_noticed_after_a_restart(trial, |trial, snapshot| {
        trial.etcd_mut().restore_with(snapshot, &["--bump-revision", "1000000", "--mark-compacted"]);
    });
}

/// An operator's mistake: the key is not there any more, but every gateway remembers that it was.
#[test]
fn an_era_that_was_deleted_is_not_begun_from_zero() {
    let Some(trial) = trial("an_era_that_was_deleted_is_not_begun_from_zero").start() else { return };
    trial.raises("ledger", 7);
    trial.operate(0, &["era", "bump", "--yes"]);
    eventually("every gateway knows the era", || {
        trial.gateways.iter().all(|gateway| gateway.overview()["era"] == 1 && gateway.door.says_ready())
    });
    trial.raises("ledger", NEXT_ERA + 1);
    trial.etcd().ask(&["del", "/highgate/test/era"]);
    eventually("no gateway is ready", || nobody_is_ready(&trial));
    let long = trial.timing.wait() + trial.timing.lock_delay + Duration::from_secs(1);
    stays("no gateway is ready", long, || nobody_is_ready(&trial));
    assert!(trial.etcd().keys("/highgate/test/era").is_empty(), "nobody begins one by itself");
    trial.operate(1, &["era", "bump", "--yes"]);
    trial.gateways.iter().for_each(Gateway::becomes_ready);
    assert!(trial.gateways.iter().all(|gateway| gateway.overview()["era"] == 2));
    trial.is_refused_everywhere("ledger", NEXT_ERA + 1, 412, "stale");
    trial.is_kept();
}

/// Every gateway refuses both tokens, says why, and what an operator has to do.
fn says_what_to_do(trial: &Trial) {
    for gateway in &trial.gateways {
        for token in [7, 8, 9] {
            let refusal = gateway.write("ledger", token).refusal();
            let said = (refusal.status, refusal.reason());
            // What is stale by what the gateway has known since its start is so whatever else holds.
            let stale = token < 8 && said == (412, Some("stale"));
            assert!(stale || said == (503, Some("fenced")), "{said:?}");
        }
        let ready = gateway.admin("/readyz");
        let because = gateway.overview()["fenced_because"].to_string();
        println!("{}: {} / {because}", gateway.name, ready.text().trim());
        assert!(because.contains("era bump"), "{because}");
        assert!(ready.text().contains("era bump"), "{ready:?}");
        assert!(gateway.is_alive());
    }
}

#[test]
fn an_era_can_be_bumped_while_everything_is_well() {
    let Some(trial) = trial("an_era_can_be_bumped_while_everything_is_well").start() else { return };
    trial.raises("ledger", 7);
    trial.operate(1, &["era", "bump", "--yes"]);
    eventually("every gateway knows the era", || {
        trial.gateways.iter().all(|gateway| gateway.overview()["era"] == 1 && gateway.door.says_ready())
    });
    trial.is_refused_everywhere("ledger", 7, 412, "stale");
    trial.is_refused_everywhere("ledger", 8, 412, "stale");
    trial.raises("ledger", NEXT_ERA + 1);
    trial.passes_everywhere("ledger", NEXT_ERA + 1);
    trial.is_kept().is_worth(1, 4);
}
