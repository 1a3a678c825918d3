//! Jobs that know several gateways: `highgate://a,b,c` goes on at another when the one that was asked fails.

use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use highgate_elector::backend::{BackendError, Observation};
use highgate_elector::{Elector, Leadership, Resource, connect};
use rustix::process::Signal;
use serde_json::json;
use tokio_stream::StreamExt as _;

use crate::support::{A_WHILE, PATIENCE, Trial, eventually, stays, trial};

/// Longer than these tests wait for anything, so that nothing is won because a lease ran out.
const LONG: Duration = Duration::from_secs(60);

/// Who leads, as an observer hears of it.
type Told = Result<Option<String>, BackendError>;

fn issued(name: &'static str) -> Option<Trial> {
    trial(name).route("tokens", "issued").start()
}

/// A job that knows all gateways.
struct Job {
    elector: Elector,
    runtime: tokio::runtime::Runtime,
}

impl Job {
    fn new(trial: &Trial, ttl: Duration) -> Self {
        let addresses: Vec<_> =
            trial.gateways.iter().map(|gateway| gateway.door.admin().to_string()).collect();
        let backend = connect(&format!("highgate://{}", addresses.join(","))).expect("a URL");
        let elector = Elector::builder(backend, Resource::parse("ledger").expect("a name")).ttl(ttl);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { elector: elector.build().expect("a heart"), runtime }
    }

    fn campaign(&self) -> Leadership {
        let campaign = async { tokio::time::timeout(PATIENCE, self.elector.campaign()).await };
        self.runtime.block_on(campaign).expect("its turn comes soon").expect("nothing refuses it")
    }
}

/// A leader that was elected at one gateway; its lease.
fn leads(trial: &Trial) -> String {
    let wish = json!({ "resource": "ledger", "holder": "first", "ttl_seconds": LONG.as_secs() });
    let told = trial.gateways[0].post_admin("/v1/elections/campaign", &wish);
    assert_eq!(told.status, 200, "{told:?}");
    told.json()["lease"].as_str().expect("a lease").to_owned()
}

fn resigns(trial: &Trial, gateway: usize, lease: &str) {
    let held = json!({ "resource": "ledger", "lease": lease });
    let answer = trial.gateways[gateway].post_admin("/v1/elections/resign", &held);
    assert_eq!(answer.status, 204, "{answer:?}");
}

/// The candidates in line, as keys of etcd.
fn line(trial: &Trial) -> Vec<String> {
    trial.etcd().keys("/highgate/test/e/ledger/")
}

/// The gateway that somebody is connected to.
fn asked(trial: &Trial) -> usize {
    let mut found = None;
    eventually("one gateway is asked", || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("Linux has it");
        let port_of = |gateway: usize| format!(":{:04X}", trial.gateways[gateway].door.admin().port());
        let is_asked =
            |gateway: &usize| sockets.lines().any(|socket| is_established(socket, &port_of(*gateway)));
        let running = (0..trial.gateways.len()).filter(|gateway| trial.gateways[*gateway].is_running());
        let all: Vec<_> = running.filter(is_asked).collect();
        found = (all.len() == 1).then(|| all[0]);
        found.is_some()
    });
    found.expect("it was awaited")
}

fn is_established(socket: &str, local_port: &str) -> bool {
    let mut fields = socket.split_whitespace().skip(1);
    let (local, _remote, state) = (fields.next(), fields.next(), fields.next());
    local.is_some_and(|local| local.ends_with(local_port)) && state == Some("01")
}

fn another(than: usize) -> usize {
    (than + 1) % 3
}

#[test]
fn a_candidate_keeps_its_place_in_line_when_its_gateway_is_killed() {
    let name = "a_candidate_keeps_its_place_in_line_when_its_gateway_is_killed";
    let Some(mut trial) = issued(name) else { return };
    let first = leads(&trial);
    let job = Job::new(&trial, LONG);
    let waiting = thread::spawn(move || (job.campaign(), job));
    eventually("it is in line", || line(&trial).len() == 2);
    let (before, dead) = (line(&trial), asked(&trial));
    trial.gateways[dead].kill();
    resigns(&trial, another(dead), &first);
    // Without its name, the place that the dead gateway kept would lead for a minute, and for nobody.
    let (leadership, job) = waiting.join().expect("a leadership");
    let mine = format!("/highgate/test/e/ledger/{}", leadership.grant().lease);
    assert!(before.contains(&mine), "{mine} is not the place in line: {before:?}");
    assert_eq!(line(&trial), [mine], "nobody else is in line");
    trial.gateways[another(dead)].opens("ledger", leadership.token().get());
    job.runtime.block_on(leadership.resign()).expect("a gateway answers");
    eventually("nobody is left", || line(&trial).is_empty());
    trial.is_kept();
}

#[test]
fn a_leader_stays_leader_while_one_gateway_after_the_other_is_killed() {
    let name = "a_leader_stays_leader_while_one_gateway_after_the_other_is_killed";
    let Some(mut trial) = issued(name) else { return };
    let ttl = Duration::from_secs(3);
    let job = Job::new(&trial, ttl);
    let leadership = job.campaign();
    let token = leadership.token().get();
    for _ in 0..2 {
        let dead = asked(&trial);
        trial.gateways[dead].kill();
        stays("it leads", ttl * 2, || leadership.is_valid());
    }
    let left = asked(&trial);
    let shown = trial.gateways[left].admin("/v1/elections?resource=ledger").json();
    assert_eq!(shown["leader"]["token"], token, "{shown}");
    job.runtime.block_on(leadership.resign()).expect("a gateway answers");
    eventually("nobody is left", || line(&trial).is_empty());
    trial.is_kept();
}

#[test]
fn a_stopped_gateway_is_left_and_takes_nothing_away_when_it_wakes() {
    let name = "a_stopped_gateway_is_left_and_takes_nothing_away_when_it_wakes";
    let Some(trial) = issued(name) else { return };
    let first = leads(&trial);
    let job = Job::new(&trial, LONG);
    let waiting = thread::spawn(move || (job.campaign(), job));
    eventually("it is in line", || line(&trial).len() == 2);
    let stopped = asked(&trial);
    trial.gateways[stopped].signal(Signal::STOP);
    let moved = Instant::now();
    eventually("it queues up elsewhere", || line(&trial).len() == 3);
    println!("left a stopped gateway after {:?}", moved.elapsed());
    trial.gateways[stopped].signal(Signal::CONT);
    eventually("the place that was left is given back", || line(&trial).len() == 2);
    resigns(&trial, another(stopped), &first);
    let (leadership, job) = waiting.join().expect("a leadership");
    trial.gateways[stopped].becomes_ready();
    stays("it leads", A_WHILE * 5, || leadership.is_valid());
    job.runtime.block_on(leadership.resign()).expect("a gateway answers");
    trial.is_kept();
}

#[test]
fn an_observer_goes_on_at_another_gateway() {
    let name = "an_observer_goes_on_at_another_gateway";
    let Some(mut trial) = issued(name) else { return };
    let (first, observer) = (leads(&trial), Job::new(&trial, LONG));
    let (tell, told) = std::sync::mpsc::channel();
    let observed = observer.elector.observe();
    thread::spawn(move || {
        observer.runtime.block_on(follow(observed, |item| {
            if tell.send(item).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }));
    });
    // A backend that is unavailable is an item of its own, and none of these may be one.
    let next = || told.recv_timeout(PATIENCE).expect("something is told").expect("another gateway is there");
    assert_eq!(next().as_deref(), Some("first"));
    let dead = asked(&trial);
    trial.gateways[dead].kill();
    resigns(&trial, another(dead), &first);
    assert_eq!(next(), None);
    let second = json!({ "resource": "ledger", "holder": "second", "ttl_seconds": LONG.as_secs() });
    assert_eq!(trial.gateways[another(dead)].post_admin("/v1/elections/campaign", &second).status, 200);
    assert_eq!(next().as_deref(), Some("second"));
}

/// Tells of every leader's name.
async fn follow(mut observed: Observation, mut tell: impl FnMut(Told) -> ControlFlow<()>) {
    while let Some(item) = observed.next().await {
        if tell(item.map(|leader| leader.map(|leader| leader.holder))).is_break() {
            return;
        }
    }
}
