//! Users, passwords, certificates, and an etcd that is not there.

use std::time::{Duration, Instant};

use highgate_elector::backend::{Backend, BackendError, RenewError};

use super::certificates::Certificates;
use super::server::Cluster;
use super::{candidacy, connect, lead, renew};

#[tokio::test(flavor = "multi_thread")]
async fn a_user_leads_with_the_right_password_only() {
    let Some(cluster) = Cluster::start("a_user_leads_with_the_right_password_only", 1) else { return };
    for command in [
        &["user", "add", "root:root"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "job:p@ss"],
        &["role", "add", "jobs"],
        &["role", "grant-permission", "--prefix=true", "jobs", "readwrite", "/test/"],
        &["user", "grant-role", "job", "jobs"],
        &["auth", "enable"],
    ] {
        cluster.ask(command);
    }
    let with = |login: &str| cluster.url().replace("etcd://", &format!("etcd://{login}"));
    let job = connect(&with("job:p%40ss@"));
    let grant = lead(&job, candidacy("r", "job", 10)).await;
    renew(&job, &grant).await.unwrap();
    // A change of users makes every token of before stale.
    cluster.ask(&["--user=root:root", "user", "add", "another:one"]);
    renew(&job, &grant).await.expect("it logs in again");
    job.resign(&grant).await.unwrap();

    for login in ["job:wrong@", "nobody:p%40ss@", ""] {
        let refused = connect(&with(login)).campaign(&candidacy("r", "x", 10)).await.unwrap_err();
        assert!(matches!(refused, BackendError::Refused { .. }), "{login}: {refused}");
        assert!(!refused.to_string().contains("wrong"), "{refused}");
    }
    let elsewhere = with("job:p%40ss@").replace("/test", "/forbidden");
    let refused = connect(&elsewhere).campaign(&candidacy("r", "x", 10)).await.unwrap_err();
    assert!(refused.to_string().contains("permission denied"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_show_certificates_of_an_authority_they_trust() {
    let name = "both_sides_show_certificates_of_an_authority_they_trust";
    let (ours, others) = (Certificates::make(), Certificates::make());
    let [ca, cert, key] = ["ca", "cert", "key"].map(|name| ours.path(name));
    let tls = ["--client-cert-auth", "--trusted-ca-file", &ca, "--cert-file", &cert, "--key-file", &key];
    let Some(cluster) = Cluster::start_with(name, 1, &tls) else { return };
    let backend = connect(&format!("{}?ca={ca}&cert={cert}&key={key}", cluster.url()));
    let grant = lead(&backend, candidacy("r", "me", 10)).await;
    renew(&backend, &grant).await.unwrap();

    for wrong in [
        format!("ca={}&cert={cert}&key={key}", others.path("ca")),
        format!("ca={ca}&cert={}&key={}", others.path("cert"), others.path("key")),
        format!("ca={ca}"),
    ] {
        let wary = connect(&format!("{}?{wrong}", cluster.url()));
        assert!(wary.campaign(&candidacy("r", "me", 10)).await.is_err(), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_is_away_is_unavailable_and_not_the_end() {
    let Some(cluster) = Cluster::start("an_etcd_that_is_away_is_unavailable_and_not_the_end", 1) else {
        return;
    };
    let backend = connect(&cluster.url());
    let grant = lead(&backend, candidacy("r", "me", 60)).await;
    cluster.nodes[0].signal(rustix::process::Signal::STOP);
    let started = Instant::now();
    let failed = renew(&backend, &grant).await;
    assert!(matches!(failed, Err(RenewError::Failed(BackendError::Unavailable { .. }))), "{failed:?}");
    assert!(started.elapsed() < Duration::from_secs(7), "every call has a deadline: {:?}", started.elapsed());
    cluster.nodes[0].signal(rustix::process::Signal::CONT);
    renew(&backend, &grant).await.expect("the lease is long");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_is_nowhere_is_named_with_its_reason() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let backend = connect(&format!("etcd://me:secret@127.0.0.1:{port}"));
    let error = backend.campaign(&candidacy("r", "me", 10)).await.unwrap_err();
    assert!(matches!(error, BackendError::Unavailable { .. }), "{error}");
    let line = error.to_string();
    println!("{line}");
    assert!(line.contains(&port.to_string()) && line.contains("Connection refused"), "{line}");
    assert!(!line.contains("secret"), "{line}");
}
