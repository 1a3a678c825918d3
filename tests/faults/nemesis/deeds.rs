//! How each fault is done, and how it is taken back.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Deed, Nemesis};
use crate::network::Loss;
use crate::plan::{Kind, Plan};

/// How long every sync of a slow disk takes, in microseconds.
const SLOW_SYNC: &str = "250000";

/// What takes a fault back.
pub(super) enum Undo {
    StartGateways(Vec<usize>),
    /// After it has ended in order.
    StartEndedGateway(usize),
    ResumeGateway(usize),
    MendLine(usize),
    Deliver(Loss),
    StartWriter(usize),
    ResumeWriter(usize),
    StartNode(usize),
    ResumeNodes(Vec<usize>),
    /// The tracer that makes a disk slow.
    EndTracer(Child),
    Thaw(String),
    /// The line of a gateway, and the network of a node.
    LeaveIsland(usize, Loss),
    /// A gateway takes its config, which it may have refused; so often it had taken one before.
    TakeConfig(usize, usize),
    Nothing,
}

pub(super) type Done = Result<Deed, String>;

pub(super) fn deed(victim: impl Into<String>, undo: Undo) -> Done {
    Ok(Deed { victim: victim.into(), undo })
}

fn writer(number: usize) -> String {
    format!("writer-{number}")
}

fn line(number: usize) -> String {
    format!("line-{number}")
}

impl Nemesis {
    pub(super) fn gateway(&self, plan: Plan) -> usize {
        plan.victim % self.trial.gateways.len()
    }

    pub(super) fn gateway_name(&self, number: usize) -> String {
        self.trial.gateways[number].name.clone()
    }

    /// What a fault needs for itself.
    pub(super) fn occupied_by(&self, plan: Plan) -> Vec<String> {
        let gateway = self.gateway(plan);
        match plan.kind {
            Kind::StopGateway | Kind::KillGateway | Kind::EndGateway | Kind::Rename => {
                vec![self.gateway_name(gateway)]
            }
            Kind::KillAllGateways | Kind::Backup => {
                self.trial.gateways.iter().map(|gateway| gateway.name.clone()).collect()
            }
            Kind::Island => vec![line(gateway), "etcd".to_owned()],
            Kind::Restore => vec!["etcd".to_owned(), "operator".to_owned()],
            Kind::Line(_) | Kind::NodeLine(_) | Kind::Packets(_) | Kind::NodePackets(_) => {
                vec![line(gateway)]
            }
            Kind::StopWriter | Kind::KillWriter => vec![writer(plan.victim % self.crew.len())],
            Kind::StopNode | Kind::KillNode | Kind::StopQuorum | Kind::SlowDisk | Kind::Compact => {
                vec!["etcd".to_owned()]
            }
            Kind::Retire | Kind::Freeze | Kind::Evict | Kind::BumpEra => vec!["operator".to_owned()],
        }
    }

    pub(super) fn bring_about(&mut self, plan: Plan) -> Done {
        if plan.kind.is_order() && !self.takes_orders {
            return Err("only Highgate understands that".to_owned());
        }
        match plan.kind {
            Kind::StopGateway => self.stop_gateway(self.gateway(plan)),
            Kind::KillGateway => self.kill_gateways(vec![self.gateway(plan)]),
            Kind::KillAllGateways => self.kill_gateways((0..self.trial.gateways.len()).collect()),
            Kind::EndGateway => self.end_gateway(self.gateway(plan)),
            Kind::Line(harm) => self.harm_line(plan, harm, None),
            Kind::NodeLine(harm) => self.harm_line(plan, harm, Some(plan.detail % 3)),
            Kind::Packets(way) => self.lose_packets(plan, way, None),
            Kind::NodePackets(way) => self.lose_packets(plan, way, Some(plan.detail % 3)),
            Kind::StopWriter => self.stop_writer(plan.victim % self.crew.len()),
            Kind::KillWriter => self.kill_writer(plan.victim % self.crew.len()),
            Kind::StopNode => self.stop_nodes(vec![self.node(plan)?]),
            Kind::StopQuorum => self.node(plan).and_then(|node| self.stop_nodes(vec![node, (node + 1) % 3])),
            Kind::KillNode => self.kill_node(plan),
            Kind::SlowDisk => self.slow_disk(plan),
            Kind::Compact => self.compact(),
            Kind::Retire => self.retire(plan),
            Kind::Freeze => self.freeze(plan),
            Kind::Evict => self.evict(plan),
            Kind::BumpEra => self.bump_era(),
            Kind::Island => self.strand(plan),
            Kind::Backup => self.back_up(),
            Kind::Restore => self.restore(),
            Kind::Rename => self.rename(self.gateway(plan)),
        }
    }

    fn stop_gateway(&mut self, number: usize) -> Done {
        let gateway = &self.trial.gateways[number];
        self.trial.upstream.stops(&gateway.name);
        gateway.signal(Signal::STOP);
        deed(&gateway.name, Undo::ResumeGateway(number))
    }

    fn kill_gateways(&mut self, numbers: Vec<usize>) -> Done {
        let names: Vec<_> = numbers.iter().map(|number| self.gateway_name(*number)).collect();
        numbers.iter().for_each(|number| self.trial.gateways[*number].kill());
        deed(names.join(", "), Undo::StartGateways(numbers))
    }

    fn end_gateway(&mut self, number: usize) -> Done {
        self.trial.gateways[number].signal(Signal::TERM);
        deed(self.gateway_name(number), Undo::StartEndedGateway(number))
    }

    fn harm_line(&mut self, plan: Plan, harm: crate::support::line::Harm, node: Option<usize>) -> Done {
        let number = self.gateway(plan);
        self.trial.gateways[number].line().suffers(harm, node);
        deed(self.line_name(number, node), Undo::MendLine(number))
    }

    fn lose_packets(&mut self, plan: Plan, way: crate::network::Way, node: Option<usize>) -> Done {
        let number = self.gateway(plan);
        let ports = self.trial.gateways[number].line().ports();
        let ports = node.map_or(ports.clone(), |node| vec![ports[node]]);
        let network = self.network.as_mut().map_err(|why| format!("no packets are lost here: {why}"))?;
        let loss = network.lose(&ports, way).ok_or("tc failed")?;
        deed(self.line_name(number, node), Undo::Deliver(loss))
    }

    fn line_name(&self, gateway: usize, node: Option<usize>) -> String {
        let gateway = self.gateway_name(gateway);
        node.map_or(gateway.clone(), |node| format!("{gateway} to etcd-{node}"))
    }

    fn stop_writer(&mut self, number: usize) -> Done {
        self.crew.signal(number, Signal::STOP);
        deed(self.crew.name(number), Undo::ResumeWriter(number))
    }

    fn kill_writer(&mut self, number: usize) -> Done {
        self.crew.kill(number);
        deed(self.crew.name(number), Undo::StartWriter(number))
    }

    /// A node of etcd, its leader most of the time.
    fn node(&self, plan: Plan) -> Result<usize, String> {
        let leader = self.trial.etcd().nodes.iter().position(|node| node.is_raft_leader());
        let leader = leader.ok_or("etcd had no leader just then")?;
        Ok(if plan.detail.is_multiple_of(3) { (leader + 1) % 3 } else { leader })
    }

    fn stop_nodes(&mut self, nodes: Vec<usize>) -> Done {
        nodes.iter().for_each(|node| self.trial.etcd().nodes[*node].signal(Signal::STOP));
        let names: Vec<_> = nodes.iter().map(|node| format!("etcd-{node}")).collect();
        deed(names.join(", "), Undo::ResumeNodes(nodes))
    }

    fn kill_node(&mut self, plan: Plan) -> Done {
        let node = self.node(plan)?;
        self.trial.etcd_mut().nodes[node].kill();
        deed(format!("etcd-{node}"), Undo::StartNode(node))
    }

    /// Every sync of this node takes long: its tracer sees to that.
    fn slow_disk(&mut self, plan: Plan) -> Done {
        let node = self.node(plan)?;
        let pid = self.trial.etcd().nodes[node].pid().to_string();
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-f", "-p", &pid, "-o", "/dev/null", "-e", "trace=fdatasync,fsync"]);
        strace.args(["-e", &format!("inject=fdatasync,fsync:delay_enter={SLOW_SYNC}")]);
        strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut tracer = strace.spawn().map_err(|error| format!("no strace: {error}"))?;
        thread::sleep(Duration::from_millis(100));
        if tracer.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Err("strace may not attach here".to_owned());
        }
        deed(format!("etcd-{node}"), Undo::EndTracer(tracer))
    }

    fn compact(&mut self) -> Done {
        let etcd = self.trial.etcd();
        let asked = etcd.ctl(&["get", "-w", "json", "x"]).output().map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_slice(&asked.stdout).map_err(|_| "etcd did not answer")?;
        let revision = answer["header"]["revision"].to_string();
        for (node, arguments) in
            [(0, &["compact", revision.as_str()][..]), (0, &["defrag"]), (1, &["defrag"]), (2, &["defrag"])]
        {
            let output = etcd.ctl_at(node, arguments).output().map_err(|error| error.to_string())?;
            if !output.status.success() {
                return Err(format!("etcdctl {} failed", arguments[0]));
            }
        }
        deed("etcd", Undo::Nothing)
    }

    fn retire(&mut self, plan: Plan) -> Done {
        let number = self.gateway(plan);
        let overview = self.trial.gateways[number].door.probe("/v1/replicas").ok_or("it did not answer")?;
        let overview: Value = serde_json::from_slice(&overview.body).map_err(|error| error.to_string())?;
        let me = overview["me"].as_str().ok_or("it was no member just then")?;
        self.ask((number + 1) % 3, "retire", &json!({ "replica": me }))?;
        deed(self.gateway_name(number), Undo::Nothing)
    }

    fn freeze(&mut self, plan: Plan) -> Done {
        let resource = self.resources[plan.victim % self.resources.len()].clone();
        // Whatever the answer: it may still happen, and has to be taken back.
        let _answer = self.order(plan.detail % 3, "freeze", &json!({ "resource": resource }));
        deed(resource.clone(), Undo::Thaw(resource))
    }

    fn evict(&mut self, plan: Plan) -> Done {
        let resource = self.resources[plan.victim % self.resources.len()].clone();
        self.ask(plan.detail % 3, "evict", &json!({ "resource": resource }))?;
        deed(resource, Undo::Nothing)
    }

    fn bump_era(&mut self) -> Done {
        self.ask(0, "era-bump", &json!({}))?;
        deed("all", Undo::Nothing)
    }

    pub(super) fn order(&self, gateway: usize, order: &str, body: &Value) -> Result<(), String> {
        let answer = self.trial.gateways[gateway].door.order(&format!("/v1/operator/{order}"), body);
        match answer {
            Some(answer) if answer.status == 200 => Ok(()),
            Some(answer) => Err(format!("the gateway answered {}", answer.status)),
            None => Err("the gateway did not answer".to_owned()),
        }
    }

    /// Gives an order that cannot be taken back. Unless the gateway has refused it, it may still happen.
    fn ask(&self, gateway: usize, order: &str, body: &Value) -> Result<(), String> {
        self.order(gateway, order, body)
            .or_else(|why| if why.contains("answered 4") { Err(why) } else { Ok(()) })
    }

    /// Takes a fault back; returns it if that has to be tried again.
    pub(super) fn undo(&mut self, undo: Undo) -> Option<Undo> {
        match undo {
            Undo::StartGateways(numbers) => {
                numbers.into_iter().for_each(|number| self.trial.gateways[number].start_again());
            }
            Undo::StartEndedGateway(number) => {
                if !self.trial.gateways[number].has_ended() {
                    return Some(undo);
                }
                self.trial.gateways[number].kill();
                self.trial.gateways[number].start_again();
            }
            Undo::ResumeGateway(number) => {
                // Said first: what it sends from now on comes from a gateway that goes on.
                self.trial.upstream.resumes(&self.trial.gateways[number].name);
                self.trial.gateways[number].signal(Signal::CONT);
            }
            Undo::MendLine(number) => self.trial.gateways[number].line().mend(),
            Undo::Deliver(loss) => {
                self.network.as_mut().expect("it has lost something").restore(loss);
            }
            Undo::StartWriter(number) => self.crew.start_one(number),
            Undo::ResumeWriter(number) => self.crew.signal(number, Signal::CONT),
            Undo::StartNode(node) => self.trial.etcd_mut().start_node(node),
            Undo::ResumeNodes(nodes) => {
                nodes.iter().for_each(|node| self.trial.etcd().nodes[*node].signal(Signal::CONT));
            }
            Undo::EndTracer(tracer) => end(tracer),
            Undo::Thaw(resource) => {
                let body = json!({ "resource": resource });
                let thawed =
                    (0..self.trial.gateways.len()).any(|gateway| self.order(gateway, "thaw", &body).is_ok());
                return (!thawed).then_some(Undo::Thaw(resource));
            }
            Undo::LeaveIsland(number, loss) => {
                self.network.as_mut().expect("it has lost something").restore(loss);
                self.trial.gateways[number].line().mend();
            }
            Undo::TakeConfig(number, taken) => {
                return (!self.takes_config(number, taken)).then_some(undo);
            }
            Undo::Nothing => {}
        }
        None
    }
}

/// Lets go of what it traces first, which a killed tracer might not.
fn end(mut tracer: Child) {
    kill_process(Pid::from_child(&tracer), Signal::INT).expect("a child that was not waited for");
    tracer.wait().expect("a child of ours");
}
