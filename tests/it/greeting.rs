//! What `serve` says at its start: the command that it invites to try is run as it is printed.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Highgate, Origin, eventually, highgate, origin, post, put};

/// The line that it invites with, without the first word.
fn invitation(gate: &Highgate) -> String {
    let line = || gate.said().lines().find_map(|line| line.strip_prefix("try: ").map(str::to_owned));
    eventually("the invitation", || line().is_some());
    line().expect("it was there before")
}

/// Runs it in a shell that finds the program.
fn paste(command: &str, folder: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_highgate");
    let link = folder.join("highgate");
    if !link.exists() {
        std::os::unix::fs::symlink(program, &link).expect("a folder of ours");
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    // Only what the line says itself, not what this test was started with.
    shell.args(["-c", command]).env("PATH", path).env_remove("HIGHGATE_BACKEND").env_remove("http_proxy");
    shell.output().expect("a shell")
}

fn passes(gate: &Highgate, origin: &Origin, folder: &Path) {
    let (command, before) = (invitation(gate), origin.count());
    let output = paste(&command, folder);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("HTTP/1.1 200 "), "{command}\n{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(origin.count(), before + 1, "{command}");
}

fn no_curl() -> bool {
    let missing = Command::new("curl").arg("--version").output().is_err();
    if missing {
        eprintln!("SKIPPED: there is no curl here to paste the line to");
    }
    missing
}

fn start(folder: &Path, listen: &str, route: &str) -> Highgate {
    let config = folder.join("highgate.toml");
    std::fs::write(&config, format!("{listen}\n[shutdown]\nunready_delay = \"0s\"\n[[routes]]\n{route}\n"))
        .unwrap();
    highgate().config(&config).data(&folder.join("data")).start()
}

#[test]
fn the_invitation_passes_whatever_the_route_wants_and_the_mark_is() {
    if no_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let listen = "[listen]\ntoken_header = \"x-leader-epoch\"";
    let route = format!(
        "name = \"ledger\"\nupstream = \"http://{}\"\ntokens = \"trusted\"\nresource = \"ledger/{{account}}\"\n\
         match = {{ host = \"*.internal\", path = \"/my accounts/{{account}}/{{*rest}}\", methods = [\"GET\", \"PUT\"] }}",
        origin.address
    );
    let gate = start(folder.path(), listen, &route);
    passes(&gate, &origin, folder.path());
    gate.ask(&put("/my%20accounts/1").host("a.internal").header("X-Leader-Epoch", "40")).is_ok();
    drop(gate);
    passes(&start(folder.path(), listen, &route), &origin, folder.path());
}

#[test]
fn where_elections_issue_the_tokens_the_invitation_wins_one() {
    if no_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let secret = folder.path().join("jobs' secret");
    std::fs::write(&secret, "s3cret\n").unwrap();
    let route = format!(
        "name = \"ledger\"\nupstream = \"http://{}\"\nresource = {{ client = true }}",
        origin.address
    );
    passes(&start(folder.path(), "", &route), &origin, folder.path());
    let jobs = format!(
        "[elections]\naddress = \"127.0.0.1:0\"\nauth = {{ bearer_file = \"{}\" }}\n",
        secret.display()
    );
    passes(&start(folder.path(), &jobs, &route), &origin, folder.path());
}

#[test]
fn an_address_may_leave_out_what_is_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let gate = highgate().listening(":0", "localhost:0").upstream(origin.address).data(folder.path()).start();
    assert!(gate.address().ip().is_loopback() && gate.admin_address().ip().is_loopback());
    gate.ask(&post("/").token(7)).is_ok();
}
