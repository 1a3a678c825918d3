//! The line from one gateway to etcd: a relay per node, cut and mended together or one by one.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::deaf::Deaf;
use super::relay::Relay;

/// What befalls a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// Connections are closed, and so is every new one.
    Cut,
    /// Connections stand, and nothing that is said on them arrives.
    Swallow,
    /// The same on the connections that there are; new ones are fine.
    Lose,
    /// Nothing that the gateway says arrives; etcd's words do.
    SwallowRequests,
    /// Nothing that etcd says arrives; the gateway's words do.
    SwallowAnswers,
    /// Watches tell of nothing, but live; everything else is answered. On a line that can be deaf.
    LoseEvents,
    /// Watches tell of everything but one in so many of their messages. On a line that can be deaf.
    LoseSomeEvents(usize),
    /// Answers are later and later, then silence but for those that are on their way: how late at the end, and after
    /// how long that is, in milliseconds.
    FallSilent(u64, u64),
}

pub(crate) struct Line {
    relays: Vec<Relay>,
    /// Between the gateway and each relay, if it can be deaf.
    ears: Vec<Deaf>,
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
        Self { relays: relays.recv().expect("the relays start"), ears: Vec::new(), _end: end }
    }

    /// One that can lose what watches tell.
    pub(crate) fn that_can_be_deaf(mut self) -> Self {
        self.ears = self.relays.iter().map(|relay| Deaf::before(relay.port)).collect();
        self
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        if self.ears.is_empty() {
            return self.relays.iter().map(|relay| relay.port).collect();
        }
        self.ears.iter().map(|ear| ear.port).collect()
    }

    pub(crate) fn cut(&self) {
        self.suffers(Harm::Cut, None);
    }

    pub(crate) fn swallow(&self) {
        self.suffers(Harm::Swallow, None);
    }

    /// On the way to one node, or to all.
    pub(crate) fn suffers(&self, harm: Harm, node: Option<usize>) {
        let is_meant = |at: usize| node.is_none_or(|node| node == at);
        for (at, relay) in self.relays.iter().enumerate().filter(|(at, _)| is_meant(*at)) {
            match harm {
                Harm::Cut => relay.close(),
                Harm::Swallow => relay.swallow_everything(),
                Harm::Lose => relay.lose_connections(),
                Harm::SwallowRequests => relay.swallow_requests(),
                Harm::SwallowAnswers => relay.swallow_answers(),
                Harm::LoseEvents => self.ears[at].loses(1),
                Harm::LoseSomeEvents(one_in) => self.ears[at].loses(one_in),
                Harm::FallSilent(most, over) => {
                    relay.falls_silent(Duration::from_millis(most), Duration::from_millis(over));
                }
            }
        }
    }

    pub(crate) fn mend(&self) {
        self.ears.iter().for_each(|ear| ear.loses(0));
        self.relays.iter().for_each(Relay::heal);
    }
}
