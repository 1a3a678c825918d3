//! `highgate run` over TLS: by its certificate it is somebody, and its guardian is the same.

use std::fs;

use rustix::process::Signal;

use crate::authority::Authority;
use crate::support::{Gateway, eventually, run_on};

const MINE: [&str; 2] = ["--resource", "a/1"];

/// The elections of a gateway that wants certificates, and grants `a/*` to `spiffe://corp/job-a`.
struct Guarded {
    gateway: Gateway,
    authority: Authority,
}

impl Guarded {
    fn start() -> Self {
        let authority = Authority::new();
        let gateway = Gateway::with_config(|folder| {
            authority.write(folder, "ca.pem");
            authority.server(&["localhost", "127.0.0.1"]).write(folder, "server");
            for name in ["job-a", "job-b"] {
                authority.client(&format!("spiffe://corp/{name}")).write(folder, name);
            }
            let at = |name: &str| folder.join(name);
            format!(
                "[elections]\naddress = \"127.0.0.1:0\"\n\
                 tls = {{ cert = {:?}, key = {:?}, client_ca = {:?} }}\n\
                 [[grants]]\nwho = [\"spiffe://corp/job-a\"]\nmay = [\"campaign\", \"observe\"]\nresources = [\"a/*\"]\n",
                at("server.pem"),
                at("server-key.pem"),
                at("ca.pem")
            )
        });
        Self { gateway, authority }
    }

    fn at(&self, name: &str) -> String {
        self.gateway.folder.path().join(name).display().to_string()
    }

    /// Flags that show the certificate of this job.
    fn flags(&self, job: &str) -> [String; 6] {
        let (cert, key) = (self.at(&format!("{job}.pem")), self.at(&format!("{job}-key.pem")));
        ["--ca".into(), self.at("ca.pem"), "--cert".into(), cert, "--key".into(), key]
    }
}

fn with<'a>(args: &[&'a str], flags: &'a [String]) -> Vec<&'a str> {
    args.iter().copied().chain(flags.iter().map(String::as_str)).collect()
}

#[test]
fn a_certificate_opens_its_own_elections_and_no_others() {
    let guarded = Guarded::start();
    let gateway = &guarded.gateway;
    let (own, other) = (guarded.flags("job-a"), guarded.flags("job-b"));
    assert_eq!(gateway.run("own", &with(&MINE, &own)).sh("echo $FENCING_TOKEN").code(), 0);
    assert_eq!(gateway.read("own.out"), "1\n");
    let mut refused = gateway.run("other", &with(&MINE, &other)).sh("echo never");
    assert_eq!(refused.code(), 69);
    refused.says("403");
    let mut elsewhere = gateway.run("elsewhere", &with(&["--resource", "b/1"], &own)).sh("echo never");
    assert_eq!(elsewhere.code(), 69);
    let mut nobody = gateway.run("nobody", &with(&MINE, &own[..2])).sh("echo never");
    assert_eq!(nobody.code(), 69);
    nobody.says("--cert FILE --key FILE");
    let mut plain = gateway.run("plain", &MINE).sh("echo never");
    assert_eq!(plain.code(), 69);
    plain.says("highgates://");
    assert_eq!(format!("{}{}", gateway.read("other.out"), gateway.read("plain.out")), "");
}

#[test]
fn the_command_inherits_whom_to_trust_and_not_where_the_key_is() {
    let guarded = Guarded::start();
    let run = guarded.gateway.run("a", &MINE);
    let run = run.env("HIGHGATE_CA", &guarded.at("ca.pem")).env("HIGHGATE_CERT", &guarded.at("job-a.pem"));
    let show = "env; for pid in $PPID $(cut -d' ' -f4 /proc/$PPID/stat); do tr '\\0' '\\n' < /proc/$pid/environ; done";
    assert_eq!(run.env("HIGHGATE_KEY", &guarded.at("job-a-key.pem")).sh(show).code(), 0);
    let seen = guarded.gateway.read("a.out");
    let (ca, cert) = (format!("HIGHGATE_CA={}", guarded.at("ca.pem")), "HIGHGATE_CERT");
    assert_eq!(seen.matches(&ca).count(), 3, "the command, its keeper, its guardian: {seen}");
    for secret in ["job-a-key", "HIGHGATE_KEY", cert] {
        assert!(!seen.contains(secret), "{secret} in {seen}");
    }
}

#[test]
fn the_guardian_resigns_over_tls_with_the_certificate_as_it_is_by_then() {
    let guarded = Guarded::start();
    let gateway = &guarded.gateway;
    let flags = guarded.flags("job-a");
    let args = with(&["--resource", "a/1", "--ttl", "60s"], &flags);
    let mut first = gateway.run("first", &args).sh("echo $$ > pid; exec sleep 60");
    eventually("the command", || gateway.read("pid").ends_with('\n'));
    let mut second = gateway.run("second", &args).sh("echo leads");
    second.says("waiting: ");
    guarded.authority.client("spiffe://corp/job-a").write(gateway.folder.path(), "job-a");
    first.signal(Signal::KILL);
    first.ends();
    assert_eq!(second.code(), 0, "it did not wait for the lease, which is longer than this test is patient");
    first.says("its guardian has ended the command and resigned");
}

#[test]
fn what_is_named_wrongly_is_bad_usage() {
    let guarded = Guarded::start();
    let folder = guarded.gateway.folder.path();
    fs::write(folder.join("empty"), "").unwrap();
    let gate = format!("highgates://{}", guarded.gateway.elections);
    for (name, backend, flags, says) in [
        ("missing", gate.as_str(), &["--ca", "/no/such/file"][..], "/no/such/file cannot be read"),
        ("empty", &gate, &["--ca", "empty"], "empty holds no certificate in PEM"),
        ("half", &gate, &["--ca", "ca.pem", "--cert", "job-a.pem"], "--key"),
        ("etcd", "etcd://127.0.0.1:1", &["--ca", "ca.pem"], "name them in the URL of this backend"),
    ] {
        let args = [&MINE[..], flags].concat();
        let mut run = run_on(backend, folder, name, &args).sh("echo never");
        assert_eq!(run.code(), 2, "{name}");
        run.says(says);
    }
}
