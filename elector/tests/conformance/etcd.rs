//! The suite over a real etcd of one node.

use std::time::Duration;

use super::fixture::Fixture;
use super::server::Cluster;

pub(crate) struct Etcd(Cluster);

impl Fixture for Etcd {
    // The shortest that etcd grants with its usual election time-out.
    const TTL: Duration = Duration::from_secs(2);
    const FIFO: bool = true;

    async fn start() -> Option<Self> {
        Cluster::start("conformance", 1).map(Self)
    }

    async fn restart(&mut self) {
        self.0.restart();
    }

    fn url(&self) -> String {
        self.0.url()
    }
}
