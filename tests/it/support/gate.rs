//! A gateway in this process: `gateway_to(&origin).route("drain_timeout", "1s").start()`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use highgate::config::{Config, Overrides};
use highgate::gateway::Gateway;
use highgate::ledger::Ledger;
use highgate::names::NamesError;
use tempfile::TempDir;
use toml::{Table, Value};

use super::client::{Ask, Client, Pending, Response, get, post};
use super::{Origin, eventually};

pub(crate) struct Builder {
    listen: Table,
    store: Table,
    /// The secrets of the admin port and of the elections port, if there is one.
    secrets: Option<(&'static str, &'static str)>,
    /// TLS of the admin port and of the elections port.
    tls: [Option<Table>; 2],
    /// Who has a secret of its own, which is `NAME-s3cret`.
    bearers: Vec<&'static str>,
    grants: Vec<Table>,
    /// The folder of the keys of signed tokens.
    signing: Option<PathBuf>,
    routes: Vec<Table>,
    drain_limit: &'static str,
}

/// A running gateway with a store of its own. Stops when dropped.
pub(crate) struct Running {
    /// There until it is stopped.
    gateway: Option<Gateway>,
    pub(crate) address: SocketAddr,
    folder: TempDir,
}

/// A gateway with one route for everything: to this origin, any higher token raises, the client names the
/// resource or has `default`.
pub(crate) fn gateway_to(origin: &Origin) -> Builder {
    gateway(origin.address)
}

/// The same for an upstream that need not be there.
pub(crate) fn gateway(upstream: SocketAddr) -> Builder {
    let ([listen, store], routes) = ([Table::new(), Table::new()], vec![route(upstream)]);
    Builder {
        listen,
        store,
        secrets: None,
        tls: [None, None],
        bearers: Vec::new(),
        grants: Vec::new(),
        signing: None,
        routes,
        drain_limit: "1s",
    }
}

fn route(upstream: SocketAddr) -> Table {
    let client: Table =
        [("client".into(), true.into()), ("default".into(), "default".into())].into_iter().collect();
    [
        ("name", Value::from("ledger")),
        ("upstream", format!("http://{upstream}").into()),
        ("resource", client.into()),
        ("tokens", "trusted".into()),
        ("hold_timeout", "8s".into()),
        ("lock_delay", "300ms".into()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

impl Builder {
    /// Sets a key of the latest route.
    pub(crate) fn route(mut self, key: &str, value: impl Into<Value>) -> Self {
        let route = self.routes.last_mut().expect("there is always a route");
        route.insert(key.to_owned(), value.into());
        self
    }

    /// The latest route takes this path only, and names its resource so.
    pub(crate) fn path(self, path: &str, resource: &str) -> Self {
        let matcher: Table = [("path".to_owned(), path.into())].into_iter().collect();
        self.route("match", matcher).route("resource", resource)
    }

    /// Sets a key of the first route.
    pub(crate) fn first(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.routes[0].insert(key.to_owned(), value.into());
        self
    }

    /// One more route to the same upstream, below the others.
    pub(crate) fn and_route(mut self) -> Self {
        let mut next = self.routes.last().expect("there is always a route").clone();
        next.remove("match");
        self.routes.push(next);
        self.route("resource", "other")
    }

    /// Sets a key of the data port.
    pub(crate) fn listen(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.listen.insert(key.to_owned(), value.into());
        self
    }

    /// Sets a key of the store.
    pub(crate) fn store(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.store.insert(key.to_owned(), value.into());
        self
    }

    /// Gives the admin port this secret, and the jobs a port of their own with that one.
    pub(crate) fn secrets(mut self, operators: &'static str, jobs: &'static str) -> Self {
        self.secrets = Some((operators, jobs));
        self
    }

    /// Has the admin port speak TLS.
    pub(crate) fn admin_tls(mut self, table: Table) -> Self {
        self.tls[0] = Some(table);
        self
    }

    /// Has the elections port speak TLS, which is there with secrets.
    pub(crate) fn elections_tls(mut self, table: Table) -> Self {
        self.tls[1] = Some(table);
        self
    }

    /// Grants somebody these rights, separated by spaces, to these resources. Its secret is its name and `-s3cret`.
    pub(crate) fn grant(mut self, name: &'static str, may: &str, resources: &str) -> Self {
        self.bearers.push(name);
        self.grant_to(&format!("bearer:{name}"), may, resources)
    }

    /// The same for any identity.
    pub(crate) fn grant_to(mut self, who: &str, may: &str, resources: &str) -> Self {
        let list = |words: &str| Value::from(words.split(' ').collect::<Vec<_>>());
        let grant = [("who", list(who)), ("may", list(may)), ("resources", list(resources))];
        self.grants.push(grant.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
        self
    }

    /// The latest route wants tokens that were signed with a key of this folder.
    pub(crate) fn signed_by(mut self, keys: &Path) -> Self {
        self.signing = Some(keys.to_owned());
        self.route("tokens", "signed")
    }

    /// How long a stop waits for what is under way.
    pub(crate) fn drain_limit(mut self, limit: &'static str) -> Self {
        self.drain_limit = limit;
        self
    }

    fn config(&self, folder: &Path) -> Config {
        let mut listen = self.listen.clone();
        listen.insert("address".into(), "127.0.0.1:0".into());
        listen.entry("workers").or_insert(2.into());
        let section = |key: &str, value: &str| Table::from_iter([(key.to_owned(), Value::from(value))]);
        let mut shutdown = section("unready_delay", "0s");
        shutdown.insert("drain_limit".into(), self.drain_limit.into());
        let mut config = Table::new();
        config.insert("listen".into(), listen.into());
        let port = |secret: Option<(&str, &str)>, tls: &Option<Table>| {
            let mut table = section("address", "127.0.0.1:0");
            table.extend(tls.clone().map(|tls| ("tls".to_owned(), tls.into())));
            if let Some((name, secret)) = secret {
                let file = folder.join(name);
                std::fs::write(&file, secret).expect("a file for the secret");
                table.insert("auth".into(), section("bearer_file", &file.to_string_lossy()).into());
            }
            table
        };
        config.insert(
            "admin".into(),
            port(self.secrets.map(|(secret, _)| ("operators", secret)), &self.tls[0]).into(),
        );
        if let Some((_, secret)) = self.secrets {
            config.insert("elections".into(), port(Some(("jobs", secret)), &self.tls[1]).into());
        }
        if !self.grants.is_empty() {
            let file = folder.join("secrets");
            let names: std::collections::BTreeSet<_> = self.bearers.iter().collect();
            let lines: String = names.into_iter().map(|name| format!("{name} {name}-s3cret\n")).collect();
            std::fs::write(&file, lines).expect("a file for the secrets");
            config.insert("secrets".into(), section("file", &file.to_string_lossy()).into());
            config.insert("grants".into(), self.grants.clone().into());
        }
        if let Some(keys) = &self.signing {
            config.insert("signing".into(), section("dir", &keys.to_string_lossy()).into());
        }
        let mut store = section("path", &folder.to_string_lossy());
        store.extend(self.store.clone());
        config.insert("store".into(), store.into());
        config.insert("shutdown".into(), shutdown.into());
        config.insert("routes".into(), self.routes.clone().into());
        let text = toml::to_string(&config).expect("a table is TOML");
        Config::parse(&text, Path::new("test.toml"), &Overrides::default())
            .unwrap_or_else(|error| panic!("{error}\nin\n{text}"))
    }

    /// One more route, below the others, like the first but for its name.
    pub(crate) fn another(mut self) -> Self {
        let mut route = self.routes[0].clone();
        route.insert("name".into(), format!("route-{}", self.routes.len()).into());
        self.routes.push(route);
        self
    }

    pub(crate) fn start(self) -> Running {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let gateway = Gateway::start(self.config(folder.path())).expect("a gateway on free ports");
        let address = gateway.address();
        Running { gateway: Some(gateway), address, folder }
    }
}

impl Running {
    fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().expect("it is stopped only by what ends this")
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        self.gateway().ledger()
    }

    /// Replaces its routes by those of the builder.
    pub(crate) fn reload(&self, builder: &Builder) -> Result<(), NamesError> {
        self.gateway().reload(builder.config(self.folder.path()).routes)
    }

    /// Replaces its grants by those of the builder.
    pub(crate) fn grant(&self, builder: &Builder) {
        let Config { grants, secrets, .. } = builder.config(self.folder.path());
        self.gateway().grant(grants, secrets);
    }

    /// Whether requests are checked under old and new names.
    pub(crate) fn change_of_names_under_way(&self) -> bool {
        self.gateway().change_of_names().is_some()
    }

    /// Stops it; whether the store was left clean.
    pub(crate) fn stop(mut self) -> bool {
        self.gateway.take().is_some_and(Gateway::stop)
    }

    /// Asks on a connection of its own.
    pub(crate) fn ask(&self, ask: &Ask) -> Response {
        self.connect().ask(ask)
    }

    /// Asks on a connection and thread of its own.
    pub(crate) fn begin(&self, ask: Ask) -> Pending {
        let address = self.address;
        Pending::new(move || Client::connect(address).ask(&ask))
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// How many have met a limit.
    pub(crate) fn limited(&self, limit: &str) -> u64 {
        let series = format!("highgate_limited_total{{limit=\"{limit}\"}} ");
        let metrics = self.admin("/metrics").text().to_owned();
        let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {series}"))
    }

    pub(crate) fn admin(&self, path: &str) -> Response {
        Client::connect(self.gateway().admin_address()).ask(&get(path).header("Connection", "close"))
    }

    /// An operator's order for a resource.
    pub(crate) fn operate(&self, order: &str, resource: &str) -> Response {
        Client::connect(self.gateway().admin_address()).order(order, resource)
    }

    /// Posts JSON to the admin port on a connection of its own.
    pub(crate) fn post_admin(&self, path: &str, body: &serde_json::Value) -> Response {
        Client::connect(self.gateway().admin_address()).ask(&json_post(path, body))
    }

    /// The same on a thread of its own.
    pub(crate) fn begin_admin(&self, path: &'static str, body: serde_json::Value) -> Pending {
        let address = self.gateway().admin_address();
        Pending::new(move || Client::connect(address).ask(&json_post(path, &body)))
    }

    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.gateway().admin_address()
    }

    pub(crate) fn elections_address(&self) -> SocketAddr {
        self.gateway().elections_address().expect("a gateway with a port for jobs")
    }

    pub(crate) fn mark(&self, resource: &str) -> u64 {
        self.ledger().get(resource).map_or(0, |cell| cell.mark())
    }

    /// Waits until a token has reached the fence of `default` as the highest.
    pub(crate) fn raises_to(&self, token: u64) {
        eventually(&format!("the mark is {token}"), || self.mark("default") == token);
    }

    /// Waits until nothing is in flight.
    pub(crate) fn comes_to_rest(&self) {
        eventually("nothing is in flight", || self.ledger().in_flight() == 0);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.gateway.take().map(Gateway::stop);
    }
}

pub(crate) fn json_post(path: &str, body: &serde_json::Value) -> Ask {
    let ask = post(path).header("Content-Type", "application/json").header("Connection", "close");
    ask.body(body.to_string())
}
