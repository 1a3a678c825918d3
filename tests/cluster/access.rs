//! An etcd that wants certificates and a user: the gateway shows both, and says what is wrong when it cannot. And the
//! roles that docs/etcd.md gives to gateways and jobs: enough for what they do, and for nothing else.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::certificates::Certificates;
use crate::support::eventually;
use crate::support::process::{Highgate, highgate};
use crate::support::server::Cluster;

fn config(folder: &Path, cluster: &Cluster, tls: &Certificates, password: &str) -> PathBuf {
    let endpoints: Vec<_> =
        cluster.nodes.iter().map(|node| format!("\"https://127.0.0.1:{}\"", node.port)).collect();
    let [ca, cert, key] = ["ca", "cert", "key"].map(|name| tls.path(name));
    let (secret, file) = (folder.join("secret"), folder.join("highgate.toml"));
    std::fs::write(&secret, password).unwrap();
    let text = format!(
        "[store]\nkind = \"etcd\"\nendpoints = [{}]\nprefix = \"/test\"\nvalidity = \"1s\"\npath = {:?}\n\
         tls = {{ ca = {ca:?}, cert = {cert:?}, key = {key:?} }}\nuser = {{ name = \"gate\", password_file = {secret:?} }}\n\
         [[routes]]\nname = \"r\"\nupstream = \"http://127.0.0.1:9\"\nresource = \"r\"\ntokens = \"trusted\"\n",
        endpoints.join(", "),
        folder.join("data"),
    );
    std::fs::write(&file, text).unwrap();
    file
}

fn start(file: &Path) -> Highgate {
    highgate().config(file).start()
}

#[test]
fn a_gateway_shows_its_certificate_and_its_password() {
    let name = "a_gateway_shows_its_certificate_and_its_password";
    let (ours, others) = (Certificates::make(), Certificates::make());
    let [ca, cert, key] = ["ca", "cert", "key"].map(|name| ours.path(name));
    let tls = ["--client-cert-auth", "--trusted-ca-file", &ca, "--cert-file", &cert, "--key-file", &key];
    let Some(cluster) = Cluster::start_with(name, 3, &tls) else { return };
    let secure = ["--cacert", &ca, "--cert", &cert, "--key", &key];
    for command in [
        &["user", "add", "root:root"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "gate:p@ss"],
        &["role", "add", "gates"],
        &["role", "grant-permission", "--prefix=true", "gates", "readwrite", "/test/"],
        &["user", "grant-role", "gate", "gates"],
        &["auth", "enable"],
    ] {
        cluster.ask(&[&secure[..], command].concat());
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(&config(folder.path(), &cluster, &ours, "p@ss\n"));
    eventually("it is ready", || gateway.admin("/readyz").status == 200);
    drop(gateway);

    for (tls, password, says) in [(&ours, "wrong", "authentication failed"), (&others, "p@ss", "")] {
        let folder = tempfile::tempdir().unwrap();
        let gateway = start(&config(folder.path(), &cluster, tls, password));
        eventually("it says why it cannot join", || {
            let ready = gateway.admin("/readyz");
            assert_eq!(ready.status, 503, "{}", ready.text());
            !ready.text().contains("not joined yet") && ready.text().contains(says)
        });
        assert_eq!(gateway.admin("/healthz").status, 200, "but it is alive");
        assert!(!gateway.said().contains("p@ss"), "secrets are not printed");
    }
}

const DOCS: &str = include_str!("../../docs/etcd.md");
const PREFIX: &str = "/highgate/default";

/// The commands that make the roles and users, as the docs have them. Every user's password is `pw`.
fn commands_of_the_docs() -> Vec<Vec<String>> {
    let lines =
        DOCS.lines().filter(|line| line.starts_with("etcdctl role") || line.starts_with("etcdctl user"));
    let words = |command: &str| -> Vec<String> {
        let mut words: Vec<_> = command.split_whitespace().skip(1).map(str::to_owned).collect();
        if words[..2] == ["user", "add"] {
            words[2].push_str(":pw");
        }
        words
    };
    lines.flat_map(|line| line.split(" && ")).map(words).collect()
}

/// The same without what only sealed leadership needs, for a user `plain`.
fn without_seals(command: &[String]) -> Option<Vec<String>> {
    let line = command.join(" ");
    if !line.contains("job") || line.ends_with("/seq") || line.contains("/f/") {
        return None;
    }
    let line = line.replace("ledger-jobs", "plain-jobs").replace("add job:", "add plain:");
    Some(line.replace("grant-role job ", "grant-role plain ").split(' ').map(str::to_owned).collect())
}

fn with_roles_of_the_docs(test: &str) -> Option<Cluster> {
    let cluster = Cluster::start(test, 1)?;
    let ask = |command: &[String]| drop(cluster.ask(&command.iter().map(String::as_str).collect::<Vec<_>>()));
    let commands = commands_of_the_docs();
    assert!(commands.len() >= 12, "{commands:?}");
    commands.iter().for_each(|command| ask(command));
    commands.iter().filter_map(|command| without_seals(command)).for_each(|command| ask(&command));
    for command in
        [&["user", "add", "root:pw"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
    {
        cluster.ask(command);
    }
    Some(cluster)
}

/// `highgate run` as this user, on this resource.
fn run(cluster: &Cluster, login: &str, resource: &str, query: &str) -> Output {
    let backend = format!("etcd://{login}:pw@127.0.0.1:{}{PREFIX}{query}", cluster.nodes[0].port);
    let mut command = Command::new(env!("CARGO_BIN_EXE_highgate"));
    command.args(["run", "--backend", &backend, "--resource", resource, "--once", "k", "--", "true"]);
    command.output().unwrap()
}

#[test]
fn the_roles_of_the_docs_are_enough_for_gateways_and_jobs_and_for_nothing_else() {
    let name = "the_roles_of_the_docs_are_enough_for_gateways_and_jobs_and_for_nothing_else";
    let Some(cluster) = with_roles_of_the_docs(name) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (secret, file) = (folder.path().join("secret"), folder.path().join("highgate.toml"));
    std::fs::write(&secret, "pw\n").unwrap();
    let text = format!(
        "[store]\nkind = \"etcd\"\nendpoints = [\"http://127.0.0.1:{}\"]\nvalidity = \"1s\"\ncompact = \"10s\"\n\
         path = {:?}\nuser = {{ name = \"gateway\", password_file = {secret:?} }}\n\
         [[routes]]\nname = \"r\"\nupstream = \"http://127.0.0.1:9\"\nresource = \"r\"\nlock_delay = \"300ms\"\n",
        cluster.nodes[0].port,
        folder.path().join("data"),
    );
    std::fs::write(&file, text).unwrap();
    let gateway = start(&file);
    eventually("it is ready", || gateway.admin("/readyz").status == 200);

    let output = run(&cluster, "job", "ledger", "");
    assert!(output.status.success(), "{output:?}");
    let plain = run(&cluster, "plain", "ledger", "?sealed=no");
    assert!(plain.status.success(), "{plain:?}");
    for (user, query) in [("job", ""), ("plain", "?sealed=no")] {
        let elsewhere = run(&cluster, user, "other", query);
        assert!(!elsewhere.status.success(), "{elsewhere:?}");
        assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("permission denied"), "{elsewhere:?}");
    }
    let own = [("plain", "f/ledger"), ("plain", "seq")];
    let others = ["m/x", "t/x", "era", "names", "x/last", "x/once", "f/other", "e/other/1", "o/other/1"];
    for (user, key) in others.iter().flat_map(|key| [("job", *key), ("plain", *key)]).chain(own) {
        let (login, key) = (format!("{user}:pw"), format!("{PREFIX}/{key}"));
        for command in [&["put", &key, "x"][..], &["del", &key]] {
            let output = cluster.ctl(&[&["--user", &login][..], command].concat()).output().unwrap();
            let says = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(says.contains("permission denied"), "{user}: {command:?}: {says}");
        }
    }
    // Only root may compact: it is said once, and etcd is left alone.
    let warns = || gateway.admin("/v1/replicas").text().contains("does not let this gateway compact");
    eventually("it says that it may not compact", warns);
    assert_eq!(gateway.said().matches("does not let this gateway compact").count(), 1);
    assert_eq!(gateway.admin("/readyz").status, 200, "and goes on");
}
