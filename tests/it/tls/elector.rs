//! The elector library over TLS: the certificate that it shows is who campaigns.

use std::time::Duration;

use highgate_elector::backend::BackendError;
use highgate_elector::{BuildError, CampaignError, ClientTls, Elector, Once, Waiting};
use tokio::runtime::Runtime;

use super::Setting;
use crate::support::{Authority, Running, gateway_to, origin, replace};

/// A port of the jobs that wants a certificate, and lets `spiffe://corp/job-a` campaign for what is below `a/`.
fn guarded(setting: &Setting) -> Running {
    let origin = origin().start();
    setting.authority.client("spiffe://corp/job-a").write(setting.folder.path(), "job-a");
    setting.authority.client("spiffe://corp/job-b").write(setting.folder.path(), "job-b");
    let table = setting.tls(&[("client_ca", "ca.pem"), ("client_auth", "required")]);
    gateway_to(&origin)
        .secrets("operators", "jobs")
        .elections_tls(table)
        .grant_to("spiffe://corp/job-a", "campaign observe", "a/*")
        .start()
}

fn files(setting: &Setting, name: &str) -> ClientTls {
    let at = |name: String| Some(setting.folder.path().join(name));
    ClientTls { ca: at("ca.pem".into()), cert: at(format!("{name}.pem")), key: at(format!("{name}-key.pem")) }
}

fn elector(gate: &Running, resource: &str, tls: ClientTls) -> Result<Elector, BuildError> {
    let url = format!("highgate://{}", gate.elections_address());
    Elector::named(resource).backend(url).tls(tls).ttl(Duration::from_secs(30)).build()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_certificate_is_who_campaigns_and_for_nothing_but_its_own() {
    let setting = Setting::new();
    let gate = guarded(&setting);
    runtime().block_on(async {
        let own = elector(&gate, "a/1", files(&setting, "job-a")).unwrap();
        let leadership = own.campaign().await.unwrap();
        assert_eq!(leadership.token().get(), 1);
        match Once::begin(&leadership, "k").await.unwrap() {
            Once::Run(run) => run.complete().await.unwrap(),
            Once::AlreadyCompleted { .. } => panic!("nobody else has this ledger"),
        }
        leadership.resign().await.unwrap();
        for (resource, name) in [("b/1", "job-a"), ("a/1", "job-b")] {
            let refused = elector(&gate, resource, files(&setting, name)).unwrap().campaign().await;
            let Err(CampaignError::Refused(error)) = refused else { panic!("{resource} for {name}") };
            assert!(error.to_string().contains("403"), "{error}");
        }
    });
}

#[test]
fn a_url_may_name_the_files_itself() {
    let setting = Setting::new();
    let gate = guarded(&setting);
    let at = |name: &str| setting.folder.path().join(name).display().to_string();
    let url = format!(
        "highgates://{}?ca={}&cert={}&key={}",
        gate.elections_address(),
        at("ca.pem"),
        at("job-a.pem"),
        at("job-a-key.pem")
    );
    let elector = Elector::named("a/1").backend(url).build().unwrap();
    runtime().block_on(async { elector.campaign().await.unwrap().resign().await.unwrap() });
}

/// What a campaign fails with that goes on.
fn trouble(gate: &Running, url: &str, tls: ClientTls) -> String {
    let (tell, told) = std::sync::mpsc::channel();
    let elector = Elector::named("a/1")
        .backend(format!("{url}{}", gate.elections_address()))
        .tls(tls)
        .on_wait(move |waiting| {
            if let Waiting::Backend { error: BackendError::Unavailable { detail, .. }, .. } = waiting {
                let _ = tell.send(detail.clone());
            }
        })
        .build()
        .unwrap();
    runtime().block_on(async {
        let limit = tokio::time::timeout(crate::support::PATIENCE, async {
            tokio::select! {
                led = elector.campaign() => match led {
                    Err(CampaignError::Refused(error)) => error.to_string(),
                    other => panic!("{other:?}"),
                },
                detail = async { loop {
                    if let Ok(detail) = told.try_recv() { break detail }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                } } => detail,
            }
        });
        limit.await.expect("it fails soon")
    })
}

#[test]
fn whatever_fails_says_what_to_do() {
    let setting = Setting::new();
    let gate = guarded(&setting);
    let strange = Authority::new();
    strange.write(setting.folder.path(), "strange.pem");
    let own = files(&setting, "job-a");
    let uncertified = ClientTls { cert: None, key: None, ..own.clone() };
    let untrusting = ClientTls { ca: Some(setting.folder.path().join("strange.pem")), ..own.clone() };
    for (url, tls, expected) in [
        ("highgate://", ClientTls::default(), "speaks TLS: name it highgates://"),
        ("highgate://", uncertified, "--cert FILE --key FILE"),
        ("highgates://", untrusting, "name the one that signed it: --ca FILE"),
    ] {
        let detail = trouble(&gate, url, tls);
        assert!(detail.contains(expected), "{detail}");
    }
    let plain = gateway_to(&origin().start()).secrets("operators", "jobs").start();
    let detail = trouble(&plain, "highgate://", own);
    assert!(detail.contains("does not speak TLS") && detail.contains("highgate://"), "{detail}");
}

#[test]
fn files_that_are_renewed_in_place_are_taken_with_the_next_connection() {
    let setting = Setting::new();
    let gate = guarded(&setting);
    // A job that was started before its authority was rolled out.
    let ca = setting.folder.path().join("job-ca.pem");
    replace(&ca, &Authority::new().pem());
    let tls = ClientTls { ca: Some(ca.clone()), ..files(&setting, "job-a") };
    let (tell, told) = std::sync::mpsc::channel();
    let elector = Elector::named("a/1")
        .backend(format!("highgate://{}", gate.elections_address()))
        .tls(tls)
        .on_wait(move |_| {
            let _ = tell.send(());
        })
        .build()
        .unwrap();
    let led = std::thread::spawn(move || {
        runtime().block_on(async { tokio::time::timeout(Duration::from_secs(60), elector.campaign()).await })
    });
    told.recv_timeout(crate::support::PATIENCE).expect("it has failed once");
    replace(&ca, &setting.authority.pem());
    assert!(led.join().unwrap().expect("it is tried again").is_ok());
}
