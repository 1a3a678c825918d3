//! The line from one gateway to etcd: a relay per node, cut and mended together.

use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

use super::relay::Relay;

pub(crate) struct Line {
    relays: Vec<Relay>,
    /// Dropped with the line; its thread ends then.
    _end: oneshot::Sender<()>,
}

impl Line {
    /// To the nodes on these ports.
    pub(crate) fn to(ports: Vec<u16>) -> Self {
        let (ready, relays) = mpsc::channel();
        let (end, ended) = oneshot::channel::<()>();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut relays = Vec::new();
                for port in ports {
                    relays.push(Relay::start(port).await);
                }
                ready.send(relays).expect("the line is being laid");
                // An error: the other end is dropped, which is what it is for.
                let _ = ended.await;
            });
        });
        Self { relays: relays.recv().expect("the relays start"), _end: end }
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.relays.iter().map(|relay| relay.port).collect()
    }

    /// Connections are closed, and so is every new one.
    pub(crate) fn cut(&self) {
        self.relays.iter().for_each(Relay::close);
    }

    /// Connections stand, and nothing that is said on them arrives.
    pub(crate) fn swallow(&self) {
        self.relays.iter().for_each(Relay::swallow_everything);
    }

    pub(crate) fn mend(&self) {
        self.relays.iter().for_each(Relay::heal);
    }
}
