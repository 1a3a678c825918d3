//! The shell script of the documentation, as a reader would run it.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::fixture::{Fixture, resource, within};
use super::gateway::{Gateway, program};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/lead.sh");
const PATIENCE: Duration = Duration::from_secs(20);

/// The script with a lease of 3 s, running a line of shell.
fn lead(gateway: &Gateway, work: &str) -> Command {
    let mut command = Command::new("sh");
    command.args([SCRIPT, resource().as_str(), "sh", "-c", work]);
    command.env("HIGHGATE_ADMIN", &gateway.admin).env("TTL", "3");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

pub(crate) async fn a_shell_job_leads_with_nothing_but_curl(gateway: Gateway) {
    let job = lead(&gateway, "echo token $FENCING_TOKEN; sleep 4; exit 7").spawn().unwrap();
    let rival = gateway.party();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let campaign = tokio::spawn(async move { rival.elector.campaign().await.unwrap() });
    let ended = within(PATIENCE, "the job ends", job.wait_with_output()).await.unwrap();
    let next = within(Duration::from_secs(1), "the next leader, at once", campaign).await.unwrap();
    let (told, complained) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!(ended.status.code(), Some(7), "the exit code of the work; {complained}");
    let token: u64 = told.trim().strip_prefix("token ").unwrap().parse().unwrap();
    assert_eq!(next.token().get(), token + 1, "nobody led between them, though the work outlived a lease");
}

pub(crate) async fn a_shell_job_that_is_deposed_is_stopped(gateway: Gateway) {
    let job = lead(&gateway, "exec sleep 60").spawn().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let evicted = Command::new(program())
        .args(["evict", resource().as_str(), "--admin", &gateway.admin])
        .stdout(Stdio::null())
        .status()
        .await
        .unwrap();
    assert!(evicted.success());
    let ended = within(PATIENCE, "the job ends", job.wait_with_output()).await.unwrap();
    assert_eq!(ended.status.code(), Some(75), "{}", String::from_utf8_lossy(&ended.stderr));
}
