//! Faults of etcd that a gateway may not hear of: a node that is cut off together with it, and data that is lost.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::Nemesis;
use super::deeds::{Done, Undo, deed};
use crate::plan::Plan;
use crate::support::etcd::PREFIX;
use crate::support::line::Harm;
use crate::support::{Gateway, eventually};

/// How long the operator tries to begin a new era.
const BUMP: Duration = Duration::from_secs(10);

impl Nemesis {
    /// Leaves a gateway alone with a node that does not lead, and that with it.
    pub(super) fn strand(&mut self, plan: Plan) -> Done {
        let leader = self.trial.etcd().nodes.iter().position(|node| node.is_raft_leader());
        let alone = (leader.ok_or("etcd had no leader just then")? + 1) % 3;
        let number = self.gateway(plan);
        let peer_port = |node: usize| {
            let url = self.trial.etcd().nodes[node].argument("--listen-peer-urls");
            url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
        };
        let others: Vec<usize> = (0..3).filter(|node| *node != alone).collect();
        let (own, peers): (u16, Vec<u16>) =
            (peer_port(alone), others.iter().map(|node| peer_port(*node)).collect());
        let pid = self.trial.etcd().nodes[alone].pid();
        let network = self.network.as_mut().map_err(|why| format!("no packets are lost here: {why}"))?;
        let loss = network.isolate(pid, own, &peers).ok_or("tc failed")?;
        for node in others {
            self.trial.gateways[number].line().suffers(Harm::Cut, Some(node));
        }
        deed(format!("{} and etcd-{alone}", self.gateway_name(number)), Undo::LeaveIsland(number, loss))
    }

    /// A backup in which no gateway is a member and nobody a candidate, but marks are open.
    pub(super) fn back_up(&mut self) -> Done {
        self.trial.gateways.iter().for_each(|gateway| gateway.signal(Signal::TERM));
        for gateway in &mut self.trial.gateways {
            gateway.ends();
        }
        self.crew.doors().rest();
        eventually("nobody is a candidate", || self.trial.etcd().keys(&format!("{PREFIX}/e/")).is_empty());
        let file = self.trial.folder.path().join("backup");
        self.trial.etcd().save_snapshot(&file);
        self.backup = Some(file);
        self.crew.doors().reconnect();
        self.trial.gateways.iter_mut().for_each(Gateway::start_again);
        deed("etcd", Undo::Nothing)
    }

    pub(super) fn restore(&mut self) -> Done {
        let file = self.backup.clone().ok_or("there is no backup")?;
        self.trial.etcd_mut().restore(&file);
        self.crew.doors().reconnect();
        let deadline = Instant::now() + BUMP;
        while Instant::now() < deadline {
            let running = (0..self.trial.gateways.len()).filter(|at| self.trial.gateways[*at].is_running());
            if running.into_iter().any(|gateway| self.order(gateway, "era-bump", &json!({})).is_ok()) {
                return deed("etcd", Undo::Nothing);
            }
        }
        Err("no gateway began a new era".to_owned())
    }
}
