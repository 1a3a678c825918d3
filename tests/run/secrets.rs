//! Who may campaign, and what the command gets to know of it: nothing.

use crate::support::{Gateway, run_on};

const SECRET: &str = "open-sesame";
const RESOURCE: [&str; 2] = ["--resource", "r"];

/// What a command sees of its environment, and of that of the processes above it.
const SHOW: &str =
    "env; for pid in $PPID $(cut -d' ' -f4 /proc/$PPID/stat); do tr '\\0' '\\n' < /proc/$pid/environ; done";

#[test]
fn the_jobs_secret_opens_the_elections_and_no_other_variable_is_looked_at() {
    let gateway = Gateway::with_secret(SECRET);
    let operators = gateway.run("operators", &RESOURCE).env("HIGHGATE_ADMIN_TOKEN", SECRET);
    assert_eq!(operators.sh("echo never").code(), 69);
    let jobs_first = gateway.run("both", &RESOURCE).env("HIGHGATE_ADMIN_TOKEN", "wrong");
    assert_eq!(jobs_first.env("HIGHGATE_ELECTIONS_TOKEN", SECRET).sh("exit 0").code(), 0);
    let file = gateway.folder.path().join("secret");
    let from_file = [&RESOURCE[..], &["--token-file", file.to_str().unwrap()]].concat();
    let file_first = gateway.run("file", &from_file).env("HIGHGATE_ELECTIONS_TOKEN", "wrong");
    assert_eq!(file_first.sh("exit 0").code(), 0);
    let mut wrong = gateway.run("wrong", &RESOURCE).env("HIGHGATE_ELECTIONS_TOKEN", "wrong").sh("echo never");
    assert_eq!(wrong.code(), 69);
    assert_eq!(gateway.read("wrong.out"), "");
}

#[test]
fn no_secret_is_in_the_environment_of_the_command_or_its_parents() {
    let gateway = Gateway::with_secret(SECRET);
    let run = gateway.run("a", &RESOURCE).env("HIGHGATE_ELECTIONS_TOKEN", SECRET);
    let run = run.env("HIGHGATE_ADMIN_TOKEN", "of-operators").env("PLAIN", "stays");
    let mut run = run.env("HIGHGATE_BACKEND", "etcd://me:of-etcd@h:1").sh(SHOW);
    assert_eq!(run.code(), 0);
    let seen = gateway.read("a.out");
    // Only root can look into the keeper and the guardian.
    let readable = if rustix::process::geteuid().is_root() { 3 } else { 1 };
    assert_eq!(
        seen.matches("PLAIN=stays").count(),
        readable,
        "the command, its keeper, its guardian: {seen}"
    );
    for secret in [SECRET, "of-operators", "of-etcd", "HIGHGATE_ELECTIONS_TOKEN", "HIGHGATE_ADMIN_TOKEN"] {
        assert!(!seen.contains(secret), "{secret} in {seen}");
    }
}

/// What a command can read of the environments of its keeper, its guardian and `run`, which are all of its own user.
const SPY: &str = r#"pid=$PPID
for parent in keeper guardian run; do
    if cat /proc/$pid/environ > /dev/null 2> /dev/null; then echo "reads that of its $parent"; fi
    last=$pid
    pid=$(cut -d' ' -f4 /proc/$pid/stat)
done
echo $last
if cat /proc/$$/environ > /dev/null; then echo "its own"; fi"#;

/// Root reads everything, so this is not run as root.
#[test]
fn the_command_cannot_read_the_environment_of_run_though_it_is_of_the_same_user() {
    let gateway = Gateway::with_secret(SECRET);
    let run = gateway.run("a", &RESOURCE).env("HIGHGATE_ELECTIONS_TOKEN", SECRET);
    let mut run = run.by_somebody().sh(SPY);
    let pid = run.id();
    assert_eq!(run.code(), 0, "{}", run.log());
    assert_eq!(gateway.read("a.out"), format!("{pid}\nits own\n"));
}

#[test]
fn a_backend_without_a_password_stays_in_the_environment() {
    let gateway = Gateway::start();
    let url = format!("highgate://{}", gateway.admin);
    let run = gateway.run("a", &RESOURCE).env("HIGHGATE_BACKEND", &url);
    assert_eq!(run.sh("echo $HIGHGATE_BACKEND").code(), 0);
    assert_eq!(gateway.read("a.out"), format!("{url}\n"));
}

#[test]
fn a_secret_that_is_not_usable_is_bad_usage() {
    let gateway = Gateway::start();
    let folder = gateway.folder.path();
    std::fs::write(folder.join("empty"), "\n").unwrap();
    std::fs::write(folder.join("odd"), "two\nlines\n").unwrap();
    let gate = format!("highgate://{}", gateway.admin);
    for (name, backend, says) in [
        ("missing", gate.as_str(), "cannot be read"),
        ("empty", gate.as_str(), "is empty"),
        ("odd", gate.as_str(), "characters that no header can carry"),
        ("elsewhere", "etcd://127.0.0.1:1", "--token-file is the secret for a gateway's elections"),
    ] {
        let file = folder.join(name);
        let args = [&RESOURCE[..], &["--token-file", file.to_str().unwrap()]].concat();
        let mut run = run_on(backend, folder, name, &args).sh("echo never");
        assert_eq!(run.code(), 2, "{name}");
        run.says(says);
        assert!(!run.log().contains("lines"), "a secret is never printed");
    }
}
