//! Certificate files that change under a running gateway: without a lost request, and without a bad one taking over.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Setting, metric};
use crate::support::{
    Authority, Running, config_for, eventually, gateway_to, get, highgate, origin, post, secure, stays,
};

/// The certificate that a new connection is shown.
fn shown(gate: &Running, setting: &Setting) -> Vec<u8> {
    secure(gate.address, &setting.authority).connect().unwrap().certificate.to_vec()
}

#[test]
fn renewals_under_load_drop_nothing() {
    let setting = Arc::new(Setting::new());
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).start();
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = ["h2", "http/1.1"]
        .into_iter()
        .flat_map(|protocol| [(protocol, true), (protocol, false)])
        .map(|(protocol, kept)| {
            let (setting, stop, served, address) =
                (setting.clone(), stop.clone(), served.clone(), gate.address);
            thread::spawn(move || {
                let connect = || secure(address, &setting.authority).alpn(&[protocol]).connect().unwrap();
                let mut client = connect();
                while !stop.load(Ordering::Relaxed) {
                    if !kept {
                        client = connect();
                    }
                    client.ask(&post("/").token(7).body(vec![b'x'; 5000])).unwrap().is_ok();
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let (begun, first) = (Instant::now(), shown(&gate, &setting));
    let mut last = setting.renew();
    while begun.elapsed() < Duration::from_secs(4) {
        thread::sleep(Duration::from_millis(100));
        last = setting.renew();
    }
    eventually("the last certificate is in force", || shown(&gate, &setting) == last.cert.der().to_vec());
    assert_ne!(first, last.cert.der().to_vec());
    let before = served.load(Ordering::Relaxed);
    eventually("the load goes on", || served.load(Ordering::Relaxed) > before + 20);
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("a client all of whose requests passed"));
}

#[test]
fn a_swapped_symlink_is_a_renewal() {
    let setting = Setting::new();
    let path = |name: &str| setting.folder.path().join(name);
    let write = |version: &str| {
        std::fs::create_dir(path(version)).unwrap();
        let issued = setting.authority.server(&["localhost"]);
        issued.write(&path(version), "server");
        issued.cert.der().to_vec()
    };
    let link = |to: &str, at: &Path| std::os::unix::fs::symlink(to, at).unwrap();
    let old = write("..v1");
    link("..v1", &path("..data"));
    for name in ["server.pem", "server-key.pem"] {
        std::fs::remove_file(path(name)).unwrap();
        link(&format!("..data/{name}"), &path(name));
    }
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).start();
    let mut kept = secure(gate.address, &setting.authority).connect().unwrap();
    assert_eq!(kept.certificate.to_vec(), old);
    let new = write("..v2");
    link("..v2", &path("..data.new"));
    std::fs::rename(path("..data.new"), path("..data")).unwrap();
    eventually("what the link points to is in force", || shown(&gate, &setting) == new);
    kept.ask(&get("/")).unwrap().is_ok();
}

#[test]
fn a_bad_file_keeps_the_old_certificate_and_says_so() {
    let setting = Setting::new();
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).start();
    let old = shown(&gate, &setting);
    let taken = || {
        let series = "highgate_certificate_last_reload_successful{listener=\"data\"}";
        metric(&gate.admin("/metrics").text(), series)
    };
    let trouble = || gate.admin("/v1/replicas").json()["listeners"][0]["certificate_trouble"].clone();
    assert_eq!((taken(), trouble().is_null()), (Some(1.0), true));
    let other = Authority::new().server(&["localhost"]);
    let key = setting.folder.path().join("server-key.pem");
    for (bad, why) in [
        ("not a key", "holds no private key"),
        (other.key.serialize_pem().as_str(), "holds a private key that is not the one of"),
    ] {
        std::fs::write(&key, bad).unwrap();
        eventually("it is said", || trouble().as_str().is_some_and(|trouble| trouble.contains(why)));
        assert_eq!(taken(), Some(0.0));
        assert_eq!(shown(&gate, &setting), old);
    }
    let new = setting.renew();
    eventually("the repaired files are in force", || shown(&gate, &setting) == new.cert.der().to_vec());
    eventually("the metric says so", || taken() == Some(1.0) && trouble().is_null());
}

#[test]
fn the_log_says_what_became_of_new_files_and_when_a_certificate_ends() {
    let setting = Setting::new();
    let in_days = |days: u64| SystemTime::now() + Duration::from_secs(days * 86_400);
    setting.authority.server_until(&["localhost"], in_days(10)).write(setting.folder.path(), "server");
    let origin = origin().start();
    let folder = setting.folder.path();
    let config = folder.join("highgate.toml");
    let tls = format!("[listen.tls]\n{}", setting.tls(&[]));
    std::fs::write(&config, format!("{tls}\n{}", config_for(origin.address, ""))).unwrap();
    let gate = highgate().config(&config).data(&folder.join("data")).start();
    let said = |words: &str| eventually(words, || gate.said().contains(words));
    said("highgate listening on https://127.0.0.1:");
    said("warning: listen.tls: its certificate ends soon, at 20");
    said("event=\"certificate-ends\" listener=\"data\" expires=\"20");
    std::fs::write(folder.join("server.pem"), "nothing").unwrap();
    said("event=\"certificate-refused\" listener=\"data\"");
    setting.renew();
    said("event=\"certificate-renewed\" listener=\"data\"");
    stays("the end that was near is told once", || gate.said().matches("certificate-ends").count() == 1);
}

#[test]
fn the_end_of_a_certificate_is_a_metric() {
    let setting = Setting::new();
    let origin = origin().start();
    let end = SystemTime::now() + Duration::from_secs(40 * 86_400);
    setting.authority.server_until(&["localhost"], end).write(setting.folder.path(), "server");
    let gate = gateway_to(&origin).listen("tls", setting.tls(&[])).start();
    let series = "highgate_certificate_expiry_timestamp_seconds{listener=\"data\"}";
    let shown = || metric(&gate.admin("/metrics").text(), series).unwrap();
    let seconds = end.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((shown() - seconds).abs() < 1.5, "{} and {seconds}", shown());
    setting.renew();
    eventually("it follows the renewal", || shown() > seconds + 86_400.0);
}
