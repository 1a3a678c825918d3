//! An etcd that wants certificates and a user: the gateway shows both, and says what is wrong when it cannot.

use std::path::{Path, PathBuf};

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
