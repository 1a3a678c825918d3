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
    let passed = said.contains("HTTP/1.1 200 ") || said.contains("HTTP/2 200 ");
    assert!(passed, "{command}\n{said}\n{}", String::from_utf8_lossy(&output.stderr));
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

#[test]
fn with_dev_tls_the_invitation_trusts_the_throw_away_certificate_which_is_kept() {
    if no_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A folder whose name a shell would take apart.
    let data = folder.path().join("it's here");
    let origin = origin().start();
    let start = || highgate().upstream(origin.address).data(&data).dev_tls().start();
    let gate = start();
    passes(&gate, &origin, folder.path());
    let said = gate.said();
    assert!(said.contains(&format!("highgate listening on https://{}", gate.address())), "{said}");
    let operators = said.lines().find_map(|line| line.strip_prefix("operators: ")).expect("a line for them");
    let shown = paste(operators, folder.path());
    assert!(shown.status.success(), "{operators}: {}", String::from_utf8_lossy(&shown.stderr));
    let ca = || std::fs::read(data.join("dev-tls/ca.pem")).unwrap();
    let before = ca();
    drop(gate);
    passes(&start(), &origin, folder.path());
    assert_eq!(ca(), before, "the same authority");
}

#[test]
fn with_dev_tls_an_election_is_won_over_tls_as_printed() {
    if no_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    for elections in ["", "[elections]\naddress = \"127.0.0.1:0\"\n"] {
        let config = folder.path().join("highgate.toml");
        let route = format!("[[routes]]\nname = \"all\"\nupstream = \"http://{}\"\n", origin.address);
        std::fs::write(&config, format!("{elections}{route}resource = {{ client = true }}\n")).unwrap();
        let gate = highgate()
            .config(&config)
            .data(&folder.path().join("it's"))
            .env("HIGHGATE_DEV_TLS", "true")
            .start();
        passes(&gate, &origin, folder.path());
    }
}

#[test]
fn dev_tls_beside_a_certificate_of_the_config_file_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("highgate.toml");
    let route = "[[routes]]\nname = \"all\"\nupstream = \"http://127.0.0.1:1\"\n";
    std::fs::write(&config, format!("[listen.tls]\ncert = \"c\"\nkey = \"k\"\n{route}")).unwrap();
    let mut gate = highgate().config(&config).data(&folder.path().join("data")).dev_tls().spawn();
    assert_eq!(gate.exit_code(), 2);
    assert!(gate.said().contains("leave one of the two out"), "{}", gate.said());
}
