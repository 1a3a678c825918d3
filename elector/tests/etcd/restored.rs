//! etcd comes back from a backup that still has the processes' leases: nobody is left waiting for what is not there
//! any more, and nobody leads by it.

use std::sync::Arc;
use std::time::Duration;

use highgate_elector::backend::RenewError;
use highgate_elector::backend::etcd::EtcdBackend;
use highgate_elector::backend::{Backend, Grant};

use super::relay::Relay;
use super::server::Cluster;
use super::{campaign, candidacy, connect, eventually, lead, next, renew, resource, within};

const TTL: u64 = 10;
/// Much less than it takes until everything has run out.
const SOON: Duration = Duration::from_secs(8);

struct Backup {
    file: tempfile::TempPath,
}

impl Backup {
    fn of(cluster: &Cluster) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        cluster.save_snapshot(&file);
        Self { file }
    }

    /// Brings it back after `count` revisions that it knows nothing of.
    fn is_restored_after(&self, cluster: &mut Cluster, count: usize) {
        pass(cluster, count);
        cluster.restore(&self.file);
    }
}

/// So many revisions, which everybody hears of.
fn pass(cluster: &Cluster, count: usize) {
    for round in 0..count {
        cluster.ask(&["put", "/test/e/other/1", &round.to_string()]);
    }
}

/// As the elector does, until it has an answer that says something.
async fn renewed(backend: &Arc<EtcdBackend>, grant: &Grant) -> Result<(), RenewError> {
    loop {
        match renew(backend, grant).await {
            Err(RenewError::Failed(_)) => tokio::time::sleep(Duration::from_millis(100)).await,
            answer => return answer,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_in_the_backup_hears_of_its_turn() {
    let Some(mut cluster) = Cluster::start("whoever_waits_in_the_backup_hears_of_its_turn", 1) else {
        return;
    };
    let (one, other) = (connect(&cluster.url()), connect(&cluster.url()));
    let first = lead(&one, candidacy("r", "one", TTL)).await;
    let mut seen = other.observe(&resource("r"));
    let waiting = campaign(&other, candidacy("r", "other", TTL));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;
    assert_eq!(next(&mut seen).await.unwrap().token, first.token);
    Backup::of(&cluster).is_restored_after(&mut cluster, 20);

    renewed(&one, &first).await.expect("the backup has its key");
    assert!(!waiting.is_finished());
    one.resign(&first).await.unwrap();
    let second = within(SOON, waiting).await.unwrap();
    assert!(second.token > first.token);
    assert_eq!(next(&mut seen).await.unwrap().token, second.token);
    renewed(&other, &second).await.expect("it leads");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_in_the_backup_hears_of_it_and_queues_up_again() {
    let name = "whoever_is_not_in_the_backup_hears_of_it_and_queues_up_again";
    let Some(mut cluster) = Cluster::start(name, 1) else { return };
    let (one, other) = (connect(&cluster.url()), connect(&cluster.url()));
    // Their leases are in the backup.
    let kept =
        [lead(&one, candidacy("a", "one", TTL)).await, lead(&other, candidacy("b", "other", TTL)).await];
    let backup = Backup::of(&cluster);
    let lost = lead(&one, candidacy("r", "one", TTL)).await;
    let waiting = campaign(&other, candidacy("r", "other", TTL));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;
    backup.is_restored_after(&mut cluster, 20);

    assert!(matches!(renewed(&one, &lost).await, Err(RenewError::Gone)), "etcd does not hold its token");
    let next = within(SOON, waiting).await.unwrap();
    renewed(&other, &next).await.expect("it leads");
    renewed(&one, &kept[0]).await.expect("the backup has its key");
    renewed(&other, &kept[1]).await.expect("the backup has its key");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_leads_in_the_backup_leads_again_in_the_next_era() {
    let name = "whoever_leads_in_the_backup_leads_again_in_the_next_era";
    let Some(mut cluster) = Cluster::start(name, 3) else { return };
    let backend = connect(&cluster.url());
    let first = lead(&backend, candidacy("r", "me", 3)).await;
    Backup::of(&cluster).is_restored_after(&mut cluster, 20);
    cluster.ask(&["put", "/test/era", "1"]);

    assert!(matches!(renewed(&backend, &first).await, Err(RenewError::Gone)), "its token is of another era");
    // The old key goes with that.
    let second = within(SOON, campaign(&backend, candidacy("r", "me", 3))).await.unwrap();
    assert!(second.token.get() > 1 << 48);
    renewed(&backend, &second).await.expect("it leads");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_has_caught_up_in_revisions_is_noticed_as_well() {
    let name = "a_backup_that_has_caught_up_in_revisions_is_noticed_as_well";
    let Some(mut cluster) = Cluster::start(name, 1) else { return };
    let relay = Relay::start(cluster.nodes[0].port).await;
    let direct = connect(&cluster.url());
    let relayed = connect(&format!("etcd://127.0.0.1:{}/test", relay.port));
    let kept = lead(&relayed, candidacy("a", "relayed", 60)).await;
    let backup = Backup::of(&cluster);
    let leading = lead(&direct, candidacy("r", "direct", 60)).await;
    let waiting = campaign(&relayed, candidacy("r", "relayed", 60));
    eventually("it is in line", || cluster.keys("/test/e/r/").len() == 2).await;

    relay.close();
    backup.is_restored_after(&mut cluster, 5);
    pass(&cluster, 30);
    assert!(matches!(renewed(&direct, &leading).await, Err(RenewError::Gone)));
    relay.heal();
    let next = within(SOON, waiting).await.unwrap();
    assert!(next.token > leading.token, "it has queued up again");
    renewed(&relayed, &next).await.expect("it leads");
    renewed(&relayed, &kept).await.expect("the backup has its key");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_an_earlier_life_that_a_backup_brings_back_blocks_nobody() {
    let name = "the_key_of_an_earlier_life_that_a_backup_brings_back_blocks_nobody";
    let Some(mut cluster) = Cluster::start(name, 1) else { return };
    let (one, other) = (connect(&cluster.url()), connect(&cluster.url()));
    let kept = lead(&one, candidacy("a", "one", TTL)).await;
    let early = lead(&one, candidacy("r", "one", TTL)).await;
    let backup = Backup::of(&cluster);
    one.resign(&early).await.unwrap();
    let late = lead(&one, candidacy("r", "one again", TTL)).await;
    assert_eq!((&kept.lease, &early.lease), (&late.lease, &late.lease), "one key, two lives");
    backup.is_restored_after(&mut cluster, 20);

    assert!(matches!(renewed(&one, &late).await, Err(RenewError::Gone)), "etcd does not hold its token");
    let waiting = campaign(&other, candidacy("r", "other", TTL));
    // The lease lives on, for another leadership.
    let keeping = tokio::spawn(async move {
        loop {
            renewed(&one, &kept).await.expect("the backup has its key");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let next = within(Duration::from_secs(TTL) + SOON, waiting).await.unwrap();
    renewed(&other, &next).await.expect("it leads");
    keeping.abort();
}
