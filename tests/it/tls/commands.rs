//! The commands of operators over TLS: every one speaks it, and every way in which it can fail says what to do.

use std::process::{Command, Output};

use super::Setting;
use crate::support::{Authority, Running, gateway_to, origin, post};

/// The program with these words, without what this test's own environment says of gateways.
fn highgate(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highgate"));
    for variable in ["ADMIN", "ADMIN_TOKEN", "TOKEN_FILE", "CA", "CERT", "KEY", "BACKEND"] {
        command.env_remove(format!("HIGHGATE_{variable}"));
    }
    command.args(words);
    command
}

fn run(words: &[&str]) -> Output {
    highgate(words).output().expect("it was built")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn at(setting: &Setting, name: &str) -> String {
    setting.folder.path().join(name).display().to_string()
}

/// An admin port that wants a certificate, and grants everything to `spiffe://corp/ops`, whose certificate is in `ops.pem`.
fn guarded(setting: &Setting) -> Running {
    setting.authority.client("spiffe://corp/ops").write(setting.folder.path(), "ops");
    let origin = origin().start();
    let table = setting.tls(&[("client_ca", "ca.pem"), ("client_auth", "required")]);
    gateway_to(&origin).admin_tls(table).grant_to("spiffe://corp/ops", "operate observe", "*").start()
}

#[test]
fn every_command_speaks_tls_and_shows_its_certificate() {
    let setting = Setting::new();
    let gate = guarded(&setting);
    let admin = format!("https://{}", gate.admin_address());
    let (ca, cert, key) = (at(&setting, "ca.pem"), at(&setting, "ops.pem"), at(&setting, "ops-key.pem"));
    let how = ["--admin", &admin, "--ca", &ca, "--cert", &cert, "--key", &key];
    for words in [
        &["raise", "a", "--to", "9", "--new", "--yes"][..],
        &["status"],
        &["status", "a", "--json"],
        &["freeze", "a"],
        &["thaw", "a"],
        &["evict", "a"],
        &["history", "a"],
        &["once", "ls"],
    ] {
        let output = run(&[words, &how].concat());
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    }
    // There is no etcd and no such key, which only the gateway can say.
    for words in [&["era", "bump", "--yes"][..], &["retire", "abcd", "--yes"], &["once", "show", "a", "k"]] {
        let output = run(&[words, &how].concat());
        assert!(
            !said(&output).contains("TLS") && output.status.code() == Some(1),
            "{words:?}: {}",
            said(&output)
        );
    }
    // Another certificate of the same authority is somebody else.
    let stranger = setting.authority.client("spiffe://corp/other");
    stranger.write(setting.folder.path(), "other");
    let (cert, key) = (at(&setting, "other.pem"), at(&setting, "other-key.pem"));
    let how = ["--admin", &admin, "--ca", &ca, "--cert", &cert, "--key", &key];
    let output = run(&[&["freeze", "a"][..], &how].concat());
    assert!(
        output.status.code() == Some(1) && said(&output).contains("spiffe://corp/other"),
        "{}",
        said(&output)
    );
}

#[test]
fn the_environment_names_files_and_a_named_file_means_tls() {
    let setting = Setting::new();
    let gate = guarded(&setting);
    // Without a scheme.
    let admin = gate.admin_address().to_string();
    let output = highgate(&["status", "--admin", &admin])
        .env("HIGHGATE_CA", at(&setting, "ca.pem"))
        .env("HIGHGATE_CERT", at(&setting, "ops.pem"))
        .env("HIGHGATE_KEY", at(&setting, "ops-key.pem"))
        .output()
        .expect("it was built");
    assert!(output.status.success(), "{}", said(&output));
    let output = highgate(&["status", "--admin", &admin, "--ca", &at(&setting, "ca.pem")])
        .env("HIGHGATE_CA", "/no/such/file")
        .env("HIGHGATE_CERT", at(&setting, "ops.pem"))
        .env("HIGHGATE_KEY", at(&setting, "ops-key.pem"))
        .output()
        .expect("it was built");
    assert!(output.status.success(), "the flag goes first: {}", said(&output));
}

#[test]
fn of_several_gateways_the_first_that_answers_over_tls_is_asked() {
    let setting = Setting::new();
    let gate = guarded(&setting);
    let gateways = format!("https://127.0.0.1:1,https://{}", gate.admin_address());
    let (ca, cert, key) = (at(&setting, "ca.pem"), at(&setting, "ops.pem"), at(&setting, "ops-key.pem"));
    let how = ["--admin", &gateways, "--ca", &ca, "--cert", &cert, "--key", &key];
    let output = run(&[&["freeze", "a", "--new"][..], &how].concat());
    assert!(output.status.success() && said(&output).contains("frozen"), "{}", said(&output));
}

#[test]
fn watch_streams_over_tls() {
    use std::io::{BufRead, BufReader};
    let setting = Setting::new();
    let origin = origin().start();
    let gate = gateway_to(&origin).admin_tls(setting.tls(&[])).start();
    let admin = format!("https://{}", gate.admin_address());
    let mut watching = highgate(&["watch", "default", "--admin", &admin, "--ca", &at(&setting, "ca.pem")])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it was built");
    // It says that the resource is unseen once it is connected, and a raise that comes before the stream is not told.
    let mut lines = BufReader::new(watching.stdout.take().expect("a pipe")).lines();
    let (first, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || first.send(lines.next()));
    let mut token = 7;
    let line = loop {
        gate.ask(&post("/").token(token)).is_ok();
        token += 1;
        match seen.recv_timeout(std::time::Duration::from_millis(200)) {
            Ok(line) => break line,
            Err(_) => assert!(token < 100, "no event came"),
        }
    };
    assert!(line.expect("a line").expect("text").contains("default"));
    watching.kill().expect("it runs");
    watching.wait().expect("a child of ours");
}

#[test]
fn whatever_fails_says_what_to_do() {
    let setting = Setting::new();
    let guarded = guarded(&setting);
    let origin = origin().start();
    let (open, plain) =
        (gateway_to(&origin).admin_tls(setting.tls(&[])).start(), gateway_to(&origin).start());
    let strange = Authority::new();
    strange.write(setting.folder.path(), "strange.pem");
    strange.client("spiffe://corp/ops").write(setting.folder.path(), "forged");
    let [guarded, open, plain] = [&guarded, &open, &plain].map(|gate| gate.admin_address().to_string());
    let https = |address: &str| format!("https://{address}");
    let ca = at(&setting, "ca.pem");
    let (wrong_name, port) =
        (open.replace("127.0.0.1", "[::ffff:127.0.0.1]"), open.rsplit_once(':').unwrap().1);
    let cases: &[(&[&str], i32, &[&str])] = &[
        (
            &["--admin", &open],
            69,
            &["speaks TLS", &format!("use --admin https://127.0.0.1:{port}"), "--ca FILE"],
        ),
        (
            &["--admin", &https(&plain), "--ca", &ca],
            69,
            &["does not speak TLS", &format!("use --admin http://{plain}")],
        ),
        (
            &["--admin", &https(&open), "--ca", &at(&setting, "strange.pem")],
            69,
            &["not signed by an authority that is trusted", "--ca FILE"],
        ),
        (
            &["--admin", &https(&wrong_name), "--ca", &ca],
            69,
            &["for another name", "localhost", "connect by a name"],
        ),
        (&["--admin", &https(&guarded), "--ca", &ca], 69, &["wants a certificate", "--cert FILE --key FILE"]),
        (
            &[
                "--admin",
                &https(&guarded),
                "--ca",
                &ca,
                "--cert",
                &at(&setting, "forged.pem"),
                "--key",
                &at(&setting, "forged-key.pem"),
            ],
            69,
            &["does not take the certificate", "client_ca"],
        ),
        (&["--admin", &https(&open), "--ca", "/no/such/file"], 2, &["/no/such/file cannot be read"]),
        (&["--admin", &https(&open), "--ca", &ca, "--cert", &ca], 2, &["come together", "--key"]),
        (&["--admin", &format!("http://{open}"), "--ca", &ca], 2, &["http://", "make it https://"]),
        (&["--admin", "ftp://a:1"], 2, &["an address is a host and a port"]),
    ];
    for (how, code, expected) in cases {
        let output = run(&[&["status"], *how].concat());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(*code), "{how:?}: {said}");
        assert!(expected.iter().all(|words| said.contains(words)), "{how:?}: {said}");
    }
}

#[test]
fn an_order_is_not_sent_in_the_clear_where_a_file_is_named() {
    let setting = Setting::new();
    let origin = origin().start();
    let plain = gateway_to(&origin).start();
    let admin = plain.admin_address().to_string();
    let output = run(&[
        "raise",
        "a",
        "--to",
        "9",
        "--new",
        "--yes",
        "--admin",
        &admin,
        "--ca",
        &at(&setting, "ca.pem"),
    ]);
    assert_eq!(output.status.code(), Some(69), "{}", said(&output));
    assert!(plain.admin("/v1/resource?name=a").status == 404, "nothing was raised");
}
