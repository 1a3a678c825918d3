//! Plays the gateways: one member, and a task that opens whatever is raised, after a while.

use std::time::{Duration, Instant};

use highgate_elector::Token;
use highgate_etcd::fence::{Fence, MemberValue, TombstoneValue};
use highgate_etcd::keys::{Key, Keys};
use highgate_etcd::url::EtcdUrl;
use highgate_etcd::{Client, Compare, Delete, KeyValue, Op, Put, Range, Txn, Watch, prefix_end};
use tokio::task::JoinHandle;

use super::resource;
use super::server::Cluster;

/// The prefix of the test's cluster as a gateway sees it. Dropped, nothing is opened any more.
pub(crate) struct Sealer {
    client: Client,
    keys: Keys,
    opening: Option<JoinHandle<()>>,
}

impl Sealer {
    /// A member that never opens anything.
    pub(crate) async fn idle(cluster: &Cluster) -> Self {
        let url = EtcdUrl::parse(&cluster.url()).unwrap();
        let (client, keys) = (Client::open(&url).unwrap(), Keys::new(&url.prefix));
        let sealer = Self { client, keys, opening: None };
        let member = MemberValue {
            name: "a test".to_owned(),
            watermark: 0,
            draining: Vec::new(),
            validity: Duration::from_secs(4),
            lock_delay: Duration::from_secs(5),
        };
        let join = Put::new(sealer.keys.member("one"), member.encode());
        sealer.change(join).await;
        sealer
    }

    /// A member that opens what is raised after `delay`.
    pub(crate) async fn start(cluster: &Cluster, delay: Duration) -> Self {
        let mut sealer = Self::idle(cluster).await;
        sealer.open_after(delay).await;
        sealer
    }

    /// From now on, also what is raised already.
    pub(crate) async fn open_after(&mut self, delay: Duration) {
        let all = self.client.range(Range::below(self.keys.fences())).await.unwrap();
        let (client, keys) = (self.client.clone(), self.keys.clone());
        let open = move |kv: KeyValue| {
            tokio::spawn(open(client.clone(), keys.clone(), delay, kv));
        };
        let (first, end) = (self.keys.fences(), prefix_end(self.keys.fences().as_bytes()));
        let next = all.header.revision + 1;
        let mut watch = Watch::from_revision(&self.client, first.as_bytes(), &end, next);
        self.opening = Some(tokio::spawn(async move {
            all.kvs.into_iter().for_each(&open);
            loop {
                watch.changes().await.unwrap().into_iter().map(|event| event.kv).for_each(&open);
            }
        }));
    }

    /// The gateways are gone.
    pub(crate) async fn leave(&self) {
        self.change(Delete::key(self.keys.member("one"))).await;
    }

    /// Somebody has evicted a gateway.
    pub(crate) async fn bury(&self, name: &str, tombstone: &TombstoneValue) {
        self.change(Put::new(self.keys.tombstone(name), tombstone.encode())).await;
    }

    pub(crate) async fn mark(&self, name: &str) -> Option<Fence> {
        let key = self.keys.fence(&resource(name));
        let found = self.client.range(Range::key(key)).await.unwrap().kvs;
        found.first().map(|kv| Fence::decode(&kv.value).expect("a mark"))
    }

    /// As an operator does.
    pub(crate) async fn set(&self, name: &str, mark: Fence) {
        self.change(Put::new(self.keys.fence(&resource(name)), mark.encode())).await;
    }

    /// Waits until the mark is like that.
    pub(crate) async fn mark_when(&self, name: &str, is_it: impl Fn(&Fence) -> bool) -> Fence {
        let started = Instant::now();
        loop {
            match self.mark(name).await {
                Some(mark) if is_it(&mark) => return mark,
                mark => assert!(started.elapsed() < Duration::from_secs(10), "not in time: {mark:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Whether the gateways pass exactly this token.
    pub(crate) async fn is_open(&self, name: &str, token: Token) -> bool {
        self.mark(name).await.is_some_and(|mark| mark.token == token.get() && !mark.raised)
    }

    /// RAISE, by whoever claims that this candidate leads with this revision; whether etcd did it.
    pub(crate) async fn raise(&self, name: &str, candidate: &str, revision: i64) -> bool {
        let resource = resource(name);
        let mark = Fence { token: revision.unsigned_abs(), raised: true, issued: true, ..Fence::default() };
        let raise = Txn::when(Compare::issued(&self.keys, &resource, candidate, revision))
            .then(Put::new(self.keys.fence(&resource), mark.encode()))
            .then(Put::new(self.keys.seq(), ""));
        self.client.txn(raise).await.unwrap().succeeded
    }

    /// How often the marks and members were changed.
    pub(crate) async fn changes(&self) -> i64 {
        self.client.range(Range::key(self.keys.seq())).await.unwrap().kvs[0].version
    }

    async fn change(&self, operation: impl Into<Op>) {
        let change = Txn::default().then(operation).then(Put::new(self.keys.seq(), ""));
        self.client.txn(change).await.unwrap();
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        if let Some(opening) = &self.opening {
            opening.abort();
        }
    }
}

/// Unless it is changed meanwhile.
async fn open(client: Client, keys: Keys, delay: Duration, kv: KeyValue) {
    let Some(mark) = Fence::decode(&kv.value).filter(|mark| mark.raised) else { return };
    assert!(matches!(keys.parse(&kv.key), Some(Key::Fence(_))));
    tokio::time::sleep(delay).await;
    let open = Txn::when([Compare::changed_at(kv.key.as_slice(), kv.mod_revision)])
        .then(Put::new(kv.key, Fence { raised: false, ..mark }.encode()))
        .then(Put::new(keys.seq(), ""));
    client.txn(open).await.unwrap();
}
