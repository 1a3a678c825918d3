//! Grants and secrets of the real program: read, reloaded, shown by `check`, and never told to anybody.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{Client, Highgate, config_for, eventually, highgate, json_post, origin, post};

const GRANTS: &str = r#"
[[grants]]
who = ["bearer:job-a"]
may = ["write", "campaign"]
resources = ["a/*"]
[[grants]]
who = ["bearer:desk"]
may = ["operate", "observe"]
resources = ["*"]
"#;

/// A folder with a config, and with secrets below `..data`, as Kubernetes mounts them.
fn lay_out(folder: &Path, upstream: std::net::SocketAddr) {
    put_secrets(folder, "v1", "job-a first-s3cret\ndesk desk-s3cret\n");
    let secrets = folder.join("secrets");
    std::fs::create_dir(&secrets).unwrap();
    std::os::unix::fs::symlink("../v1", secrets.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/bearers", secrets.join("bearers")).unwrap();
    let text =
        format!("[secrets]\nfile = {:?}\n{GRANTS}{}", secrets.join("bearers"), config_for(upstream, ""));
    std::fs::write(folder.join("highgate.toml"), text).unwrap();
}

fn put_secrets(folder: &Path, version: &str, text: &str) {
    std::fs::create_dir(folder.join(version)).unwrap();
    std::fs::write(folder.join(version).join("bearers"), text).unwrap();
}

fn start(folder: &Path) -> Highgate {
    let gate = highgate().config(&folder.join("highgate.toml")).data(&folder.join("data"));
    gate.env("HIGHGATE_LOG_FORMAT", "json").start()
}

fn write(gate: &Highgate, secret: &str) -> u16 {
    gate.ask(&post("/").token(7).resource("a/1").header("X-Fencing-Credential", secret)).status
}

/// A command against the gateway, with a secret in a file.
fn command(gate: &Highgate, folder: &Path, secret: &str, words: &[&str]) -> Output {
    let file = folder.join("token");
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_highgate"));
    command.env_remove("HIGHGATE_ADMIN_TOKEN").env_remove("HIGHGATE_TOKEN_FILE");
    command.args(words).args(["--admin", &gate.admin_address().to_string()]).arg("--token-file").arg(file);
    command.output().expect("it was built")
}

#[test]
fn secrets_and_grants_are_reloaded_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    lay_out(folder.path(), origin.address);
    let gate = start(folder.path());
    assert_eq!((write(&gate, "first-s3cret"), write(&gate, "second-s3cret")), (200, 403));

    put_secrets(folder.path(), "v2", "job-a second-s3cret\ndesk desk-s3cret\n");
    let secrets = folder.path().join("secrets");
    std::os::unix::fs::symlink("../v2", secrets.join("..data.new")).unwrap();
    std::fs::rename(secrets.join("..data.new"), secrets.join("..data")).unwrap();
    eventually("the new secret is known", || write(&gate, "second-s3cret") == 200);
    assert_eq!(write(&gate, "first-s3cret"), 403, "and the old one is not");

    std::fs::write(folder.path().join("v2/bearers"), "job-a two words-s3cret\n").unwrap();
    eventually("a file that cannot be read is told of", || gate.errors().contains("reload-failed"));
    assert_eq!(write(&gate, "second-s3cret"), 200, "and changes nothing");
    std::fs::write(folder.path().join("v2/bearers"), "job-a third-s3cret\n").unwrap();
    eventually("the next one is taken", || write(&gate, "third-s3cret") == 200);

    let config = folder.path().join("highgate.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace("[\"a/*\"]", "[\"b/*\"]");
    std::fs::write(&config, text).unwrap();
    eventually("the grant is taken away", || write(&gate, "third-s3cret") == 403);
    let said = gate.said() + &gate.errors();
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn commands_show_their_secret_and_refused_orders_are_in_the_audit_trail() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    lay_out(folder.path(), origin.address);
    let gate = start(folder.path());
    assert_eq!(write(&gate, "first-s3cret"), 200);
    let status = command(&gate, folder.path(), "desk-s3cret", &["status"]);
    assert!(status.status.success() && String::from_utf8_lossy(&status.stdout).contains("a/1"), "{status:?}");
    let refused = command(&gate, folder.path(), "first-s3cret", &["freeze", "a/1"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("bearer:job-a may not operate"), "{refused:?}");
    let wrong = command(&gate, folder.path(), "wrong-s3cret", &["freeze", "a/1"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("wrong secret"), "{wrong:?}");
    assert!(command(&gate, folder.path(), "desk-s3cret", &["freeze", "a/1"]).status.success());
    let trail = || -> Vec<Value> {
        let errors = gate.errors();
        let lines = errors.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["action"] == "freeze").collect()
    };
    eventually("three orders are told of", || trail().len() == 3);
    let told: Vec<_> = trail().iter().map(|line| (line["event"].clone(), line["identity"].clone())).collect();
    let expected = [("order-refused", "bearer:job-a"), ("order-refused", "nobody"), ("order", "bearer:desk")];
    assert_eq!(told, expected.map(|(event, identity)| (json!(event), json!(identity))));
    assert!(trail().iter().all(|line| line["client"].as_str().unwrap().starts_with("127.0.0.1")));
    let said = gate.said() + &gate.errors();
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn an_owner_is_known_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    lay_out(folder.path(), origin.address);
    let config = folder.path().join("highgate.toml");
    let bound = std::fs::read_to_string(&config).unwrap();
    let bound = bound.replace("tokens = \"trusted\"", "tokens = \"issued\"\nbind_holder = true");
    std::fs::write(&config, bound).unwrap();
    let gate = start(folder.path());
    let wish = json!({ "resource": "a/1", "holder": "x", "ttl_seconds": 600, "wait_seconds": 10 });
    let ask = json_post("/v1/elections/campaign", &wish).header("Authorization", "Bearer first-s3cret");
    let token = Client::connect(gate.admin_address()).ask(&ask).json()["token"].as_u64().unwrap();
    let send = |gate: &Highgate| {
        let request = post("/").token(token).resource("a/1").header("X-Fencing-Credential", "first-s3cret");
        gate.ask(&request).status
    };
    assert_eq!(send(&gate), 200);
    gate.kill();
    let gate = start(folder.path());
    assert_eq!(send(&gate), 200);
}

#[test]
fn check_says_what_grants_do_and_what_is_odd_about_them() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    lay_out(folder.path(), origin.address);
    let config = folder.path().join("highgate.toml");
    let checked = || {
        let output = Command::new(env!("CARGO_BIN_EXE_highgate")).arg("check").arg(&config).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, text) = checked();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\ngrant: bearer:job-a may write, campaign: a/*\n"), "{text}");
    assert!(text.contains("\nwarning: secrets.file: others than its owner can read"), "{text}");
    let odd = std::fs::read_to_string(&config).unwrap().replace("bearer:desk", "bearer:dusk");
    std::fs::write(&config, odd).unwrap();
    assert!(checked().1.contains("warning: grants[1].who: bearer:dusk is nobody"), "{}", checked().1);
    std::fs::write(folder.path().join("v1/bearers"), "job-a one-s3cret\nalone-s3cret\n").unwrap();
    let (code, text) = checked();
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("highgate.toml:2:8: secrets.file: ") && text.contains("bearers:2: a line is"),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
}
