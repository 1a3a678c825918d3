//! Leaders in different processes.

use std::process::Stdio;
use std::time::Duration;

use highgate_elector::{Moment, Token};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::fixture::{Fixture, resource, within};
use super::gateway::example;

const PATIENCE: Duration = Duration::from_secs(10);

/// The example `hold` in a process of its own.
struct Holder {
    process: Child,
    told: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(url: &str, ttl: Duration) -> Self {
        let mut process = Command::new(example("hold"))
            .args([url, resource().as_str(), &ttl.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let told = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, told }
    }

    async fn leads(&mut self) -> Token {
        let line = within(PATIENCE, "the process leads", self.told.next_line()).await.unwrap().unwrap();
        line.strip_prefix("leads ").expect("what it says when it leads").parse().unwrap()
    }
}

pub(crate) async fn another_process_takes_over_after_a_kill<F: Fixture>(fixture: F) {
    let mut first = Holder::start(&fixture.url(), F::TTL);
    let killed = first.leads().await;
    let party = fixture.party();
    let campaign = tokio::spawn(async move { (party.elector.campaign().await.unwrap(), Moment::now()) });
    tokio::time::sleep(F::TTL * 3 / 2).await;
    assert!(!campaign.is_finished(), "the other process renews");
    let crash = Moment::now();
    first.process.kill().await.unwrap();
    let (leadership, won) = within(PATIENCE, "it leads after the crash", campaign).await.unwrap();
    assert!(leadership.token() > killed);
    assert!(won.since(crash) <= F::TTL + Duration::from_secs(1), "{:?} after the crash", won.since(crash));

    let mut second = Holder::start(&fixture.url(), F::TTL);
    tokio::time::sleep(F::TTL / 4).await;
    let token = leadership.token();
    leadership.resign().await.unwrap();
    let handed = second.leads().await;
    assert!(handed > token);
    drop(second.process.stdin.take());
    assert!(second.process.wait().await.unwrap().success(), "it resigns when its input ends");
    let last = within(F::TTL / 2, "it has resigned", fixture.party().elector.campaign()).await.unwrap();
    assert!(last.token() > handed);
}
