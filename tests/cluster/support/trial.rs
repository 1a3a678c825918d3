//! A whole trial: `trial("name").validity("4s").relayed().start()`.
//!
//! Three etcd nodes, three gateways on them and one recording upstream, each on ports of its own and all ended with
//! the trial. An operator has said that nobody used the prefix before, so no raise has to wait for the gateways of an era
//! before, unless the trial is about that. Tests begin with a cluster at rest.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use toml::{Table, Value};

use super::etcd::{Etcd, PREFIX};
use super::eventually;
use super::front::{Front, Speech};
use super::gateway::Gateway;
use super::judge::{self, Summary};
use super::line::Line;
use super::process::{self, highgate};
use super::turn::Turn;
use super::upstream::Upstream;
use super::writer::Answers;

/// The lock-delay D of a trial that does not say otherwise.
const LOCK_DELAY: Duration = Duration::from_millis(300);

pub(crate) struct Builder {
    test: &'static str,
    validity: Duration,
    lock_delay: Duration,
    routes: Table,
    listen: Table,
    store: Table,
    /// The folder of the keys of signed tokens.
    signing: Option<PathBuf>,
    relayed: bool,
    /// The gateways know of one address of etcd only.
    narrowed: bool,
    /// The lines can lose what watches tell.
    deaf: bool,
    /// Nobody has said that the prefix is new.
    is_unprepared: bool,
    alone: bool,
    shared: bool,
    environment: Vec<(String, String)>,
    program: Option<PathBuf>,
    stand_in: Option<StandIn>,
    /// How many seconds each gateway's clock is ahead.
    clocks: Vec<i64>,
    narrow: bool,
    speech: Speech,
    etcd_flags: &'static [&'static str],
}

/// Makes the command of a program that takes a gateway's place.
pub(crate) type StandIn = fn(&Place) -> process::Builder;

/// What a gateway has to know.
pub(crate) struct Place {
    pub(crate) name: String,
    /// Of etcd's nodes, or of the relays before them.
    pub(crate) etcd: Vec<u16>,
    /// With the path that only this gateway adds, so that the upstream knows who forwards.
    pub(crate) upstream: String,
}

/// What the gateways of a trial have in common beside etcd.
struct Setting<'a> {
    upstream: &'a Upstream,
    front: Option<&'a Front>,
    folder: &'a Path,
}

pub(crate) struct Trial {
    /// None if the gateways do not share anything.
    etcd: Option<Etcd>,
    /// The gateways know of each other.
    united: bool,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) upstream: Upstream,
    pub(crate) answers: Arc<Answers>,
    pub(crate) timing: Timing,
    pub(crate) folder: TempDir,
    _turn: Turn,
}

/// The protocol's times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// V: how long a gateway serves after it was last heard of.
    pub(crate) validity: Duration,
    /// D: how long an effect may come after an end that nobody saw.
    pub(crate) lock_delay: Duration,
}

impl Timing {
    /// X: after how long without progress a gateway is suspected.
    pub(crate) fn suspect(self) -> Duration {
        self.validity / 2
    }

    /// W: after how long a gateway that was evicted has noticed for sure.
    pub(crate) fn wait(self) -> Duration {
        self.validity.mul_f64(1.01) + Duration::from_millis(50)
    }

    /// How long a raise may take when a gateway is lost.
    pub(crate) fn bound(self) -> Duration {
        self.suspect() + self.wait() + self.lock_delay
    }
}

/// Three gateways that trust any token, with a short validity.
pub(crate) fn trial(test: &'static str) -> Builder {
    let client = Table::from_iter([("client".to_owned(), Value::from(true))]);
    let routes = [
        ("name", Value::from("ledger")),
        ("resource", client.into()),
        ("tokens", "trusted".into()),
        ("hold_timeout", "10s".into()),
        ("drain_timeout", "5s".into()),
    ];
    let routes = routes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let validity = Duration::from_secs(1);
    let builder = Builder {
        test,
        validity,
        lock_delay: LOCK_DELAY,
        routes,
        listen: Table::new(),
        store: Table::new(),
        signing: None,
        relayed: false,
        narrowed: false,
        deaf: false,
        is_unprepared: false,
        alone: false,
        shared: true,
        environment: Vec::new(),
        program: None,
        stand_in: None,
        clocks: Vec::new(),
        narrow: false,
        speech: Speech::default(),
        etcd_flags: &[],
    };
    builder.lock_delay(LOCK_DELAY)
}

impl Builder {
    pub(crate) fn validity(mut self, validity: Duration) -> Self {
        self.validity = validity;
        self
    }

    /// How long the upstream may go on after a cut, and the gateways wait for it.
    pub(crate) fn lock_delay(mut self, lock_delay: Duration) -> Self {
        self.lock_delay = lock_delay;
        self.route("lock_delay", format!("{}ms", lock_delay.as_millis()))
    }

    /// Sets a key of the route.
    pub(crate) fn route(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.routes.insert(key.to_owned(), value.into());
        self
    }

    /// The route wants tokens that were signed with a key of this folder.
    #[allow(dead_code, reason = "for the tests of several gateways, which share this file")]
    pub(crate) fn signed_by(mut self, keys: &Path) -> Self {
        self.signing = Some(keys.to_owned());
        self.route("tokens", "signed")
    }

    /// Sets a key of the data ports.
    pub(crate) fn listen(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.listen.insert(key.to_owned(), value.into());
        self
    }

    /// Sets a key of the store.
    pub(crate) fn store(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.store.insert(key.to_owned(), value.into());
        self
    }

    /// Every gateway has a line to etcd that can be cut.
    pub(crate) fn relayed(mut self) -> Self {
        self.relayed = true;
        self
    }

    /// Every gateway has a line to one node, as if that were the address of all.
    pub(crate) fn with_one_address(mut self) -> Self {
        (self.relayed, self.narrowed) = (true, true);
        self
    }

    /// Every gateway has a line to etcd that can lose what watches tell.
    pub(crate) fn that_can_be_deaf(mut self) -> Self {
        (self.relayed, self.deaf) = (true, true);
        self
    }

    /// No operator says that nobody has used the prefix before, so the gateways have to wait for whoever may have.
    pub(crate) fn unprepared(mut self) -> Self {
        self.is_unprepared = true;
        self
    }

    /// Nothing else runs meanwhile, as far as these tests are concerned.
    pub(crate) fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Each gateway has an embedded store: what the others do is nothing to it.
    pub(crate) fn unshared(mut self) -> Self {
        self.shared = false;
        self
    }

    /// Every gateway finds this variable in its environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The gateways are of another build.
    pub(crate) fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Another program takes the gateways' place.
    pub(crate) fn stand_in(mut self, program: StandIn) -> Self {
        self.stand_in = Some(program);
        self
    }

    /// Each gateway lives in a time namespace with its clocks so many seconds ahead.
    pub(crate) fn clocks(mut self, ahead: &[i64]) -> Self {
        self.clocks = ahead.to_vec();
        self
    }

    /// The upstream's kernel takes little that the upstream has not read.
    pub(crate) fn narrow(mut self) -> Self {
        self.narrow = true;
        self
    }

    /// What the gateways speak to the upstream.
    pub(crate) fn speaking(mut self, speech: Speech) -> Self {
        self.speech = speech;
        self
    }

    /// etcd's nodes are started with these flags, too.
    pub(crate) fn etcd_flags(mut self, flags: &'static [&'static str]) -> Self {
        self.etcd_flags = flags;
        self
    }

    /// Nothing if there is no etcd, which has been said then.
    pub(crate) fn start(self) -> Option<Trial> {
        let turn = Turn::take(self.alone);
        let etcd = if self.shared { Some(Etcd::start_with(self.test, self.etcd_flags)?) } else { None };
        if let Some(etcd) = etcd.as_ref().filter(|_| !self.is_unprepared && self.stand_in.is_none()) {
            let url = format!("etcd://127.0.0.1:{}{PREFIX}", etcd.ports()[0]);
            let mut command = Command::new(env!("CARGO_BIN_EXE_highgate"));
            let init = command.args(["backend", "init", &url]).output().expect("it was built");
            assert!(init.status.success(), "{init:?}");
        }
        let upstream = Upstream::start(self.lock_delay, self.narrow);
        let folder = tempfile::Builder::new().prefix("cluster-test-").tempdir().expect("a temporary folder");
        let answers = Arc::new(Answers::default());
        let front = upstream.speaking(self.speech, self.narrow, folder.path());
        let setting = Setting { upstream: &upstream, front: front.as_ref(), folder: folder.path() };
        let gateway = |number| self.gateway(number, etcd.as_ref(), &setting, &answers);
        let gateways: Vec<_> = (0..3).map(gateway).collect();
        let timing = Timing { validity: self.validity, lock_delay: self.lock_delay };
        let united = etcd.is_some() && self.stand_in.is_none();
        let trial = Trial { etcd, united, gateways, upstream, answers, timing, folder, _turn: turn };
        trial.comes_to_rest();
        Some(trial)
    }

    fn gateway(
        &self,
        number: usize,
        etcd: Option<&Etcd>,
        setting: &Setting<'_>,
        answers: &Arc<Answers>,
    ) -> Gateway {
        let name = format!("gateway-{number}");
        let line = etcd.filter(|_| self.relayed).map(|etcd| Line::to(etcd.ports()));
        let line = if self.deaf { line.map(Line::that_can_be_deaf) } else { line };
        let mut ports = line.as_ref().map(Line::ports).or(etcd.map(|etcd| etcd.ports())).unwrap_or_default();
        ports.truncate(if self.narrowed { 1 } else { usize::MAX });
        let upstream = format!("http://{}/{name}", setting.upstream.address);
        let place = Place { name: name.clone(), etcd: ports, upstream };
        let command = self.stand_in.map_or_else(|| self.highgate(&place, setting), |make| make(&place));
        let command = command.under(&self.shift(number));
        let with = |command: process::Builder, (name, value): &(String, String)| command.env(name, value);
        Gateway::start(name, self.environment.iter().fold(command, with), line, answers.clone())
    }

    /// What starts a gateway with its own clocks; nothing if they are the machine's.
    fn shift(&self, number: usize) -> Vec<String> {
        let ahead = self.clocks.get(number).copied().filter(|ahead| *ahead != 0);
        ahead.map_or_else(Vec::new, |ahead| {
            let (boot, monotonic) = (format!("--boottime={ahead}"), format!("--monotonic={ahead}"));
            ["unshare", "--time", &boot, &monotonic, "--"].map(str::to_owned).to_vec()
        })
    }

    fn highgate(&self, place: &Place, setting: &Setting<'_>) -> process::Builder {
        let (name, folder) = (&place.name, setting.folder);
        let mut store = section(&[("path", &folder.join(name).to_string_lossy())]);
        if self.shared {
            let endpoint = |port: &u16| Value::from(format!("http://127.0.0.1:{port}"));
            store.insert("kind".into(), "etcd".into());
            store.insert("prefix".into(), PREFIX.into());
            store.insert("validity".into(), format!("{}ms", self.validity.as_millis()).into());
            store.insert("endpoints".into(), place.etcd.iter().map(endpoint).collect::<Vec<_>>().into());
        }
        store.extend(self.store.clone());
        let mut route = self.routes.clone();
        match setting.front {
            Some(front) => front.lead_here(&mut route, name),
            None => drop(route.insert("upstream".into(), place.upstream.clone().into())),
        }
        let mut config = Table::new();
        config.insert("listen".into(), self.listen.clone().into());
        config.insert("store".into(), store.into());
        if let Some(keys) = &self.signing {
            config.insert("signing".into(), section(&[("dir", &keys.to_string_lossy())]).into());
        }
        config.insert("log".into(), section(&[("access", "off")]).into());
        config
            .insert("shutdown".into(), section(&[("unready_delay", "500ms"), ("drain_limit", "5s")]).into());
        config.insert("routes".into(), vec![route].into());
        let file = folder.join(format!("{name}.toml"));
        std::fs::write(&file, toml::to_string(&config).expect("a table is TOML")).expect("a file of ours");
        let command = highgate().config(&file);
        self.program.as_deref().map_or(command.clone(), |program| command.program(program))
    }
}

fn section(keys: &[(&str, &str)]) -> Table {
    keys.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect()
}

impl Trial {
    pub(crate) fn etcd(&self) -> &Etcd {
        self.etcd.as_ref().expect("the gateways share an etcd")
    }

    pub(crate) fn etcd_mut(&mut self) -> &mut Etcd {
        self.etcd.as_mut().expect("the gateways share an etcd")
    }

    /// All gateways are ready, know of each other, and wait for none that came before them.
    fn comes_to_rest(&self) {
        self.gateways.iter().for_each(Gateway::becomes_ready);
        if !self.united {
            return;
        }
        let is_complete = |gateway: &Gateway| {
            let overview = gateway.overview();
            let count = |list: &str| overview[list].as_array().map(Vec::len);
            (count("replicas"), count("tombstones")) == (Some(self.gateways.len()), Some(0))
        };
        eventually("the gateways have found each other", || self.gateways.iter().all(is_complete));
    }

    /// Raises a resource through the first gateway, and waits until all of them pass the token.
    pub(crate) fn raises(&self, resource: &str, token: u64) {
        let outcome = self.gateways[0].write(resource, token).send();
        assert!(outcome.passed(), "{outcome:?}");
        self.gateways.iter().for_each(|gateway| gateway.opens(resource, token));
    }

    /// What every gateway answers to a write with this token: passes.
    pub(crate) fn passes_everywhere(&self, resource: &str, token: u64) {
        for gateway in &self.gateways {
            let outcome = gateway.write(resource, token).send();
            assert!(outcome.passed(), "{} answers {token} with {outcome:?}", gateway.name);
        }
    }

    /// What every gateway answers to a write with this token: a refusal.
    pub(crate) fn is_refused_everywhere(&self, resource: &str, token: u64, status: u16, reason: &str) {
        for gateway in &self.gateways {
            let outcome = gateway.write(resource, token).send();
            assert!(outcome.is_refused(status, reason), "{} answers {token} with {outcome:?}", gateway.name);
        }
    }

    /// Runs `highgate` as an operator of this gateway would.
    pub(crate) fn operate(&self, gateway: usize, arguments: &[&str]) -> Output {
        let admin = self.gateways[gateway].door.admin().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_highgate"));
        let output = command.args(arguments).args(["--admin", &admin]).output().expect("it was built");
        println!("$ highgate {}\n{}", arguments.join(" "), String::from_utf8_lossy(&output.stdout).trim());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        judge::violations(&self.upstream.record().entries(), &self.answers.told())
    }

    /// The promise was kept. Says what it was tried with.
    pub(crate) fn is_kept(&self) -> Summary {
        let violations = self.violations();
        assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
        let summary = judge::summary(&self.upstream.record().entries(), &self.answers.told());
        println!("{summary}");
        summary
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for gateway in &self.gateways {
                println!("\n{} said last:\n{}", gateway.name, gateway.last_words());
            }
        }
    }
}
