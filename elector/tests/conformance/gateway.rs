//! The gateway's own elections: starts the real program, on free ports.
//!
//! The program is another package's, so cargo does not say where it is; it is built once, with the features of the
//! whole workspace's tests, which costs nothing when they were just built.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::fixture::Fixture;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

pub(crate) struct Gateway {
    process: Child,
    pub(crate) admin: String,
    folder: TempDir,
}

/// One whose ports speak TLS.
#[cfg(feature = "tls")]
pub(crate) struct Encrypted(Gateway);

impl Gateway {
    async fn spawn(folder: TempDir, admin: &str, more: &[&str]) -> Self {
        let mut process = tokio::process::Command::new(program())
            .args(["serve", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9", "--admin", admin])
            .args(["--tokens", "issued", "--data-dir"])
            .arg(folder.path())
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut told = BufReader::new(process.stdout.take().unwrap()).lines();
        told.next_line().await.unwrap().expect("the address of the data port");
        let admin = address(&told.next_line().await.unwrap().expect("the address of the admin port"));
        // Read on, or the program would wait for somebody to do so.
        tokio::spawn(async move { while let Ok(Some(_)) = told.next_line().await {} });
        Self { process, admin, folder }
    }

    async fn start_again(&mut self, more: &[&str]) {
        self.process.kill().await.unwrap();
        let folder = std::mem::replace(&mut self.folder, TempDir::new().unwrap());
        *self = Self::spawn(folder, &self.admin.clone(), more).await;
    }
}

impl Fixture for Gateway {
    const TTL: Duration = Duration::from_secs(1);
    const FIFO: bool = true;

    async fn start() -> Option<Self> {
        Some(Self::spawn(TempDir::new().unwrap(), "127.0.0.1:0", &[]).await)
    }

    async fn restart(&mut self) {
        self.start_again(&[]).await;
    }

    fn url(&self) -> String {
        format!("highgate://{}", self.admin)
    }
}

#[cfg(feature = "tls")]
impl Fixture for Encrypted {
    const TTL: Duration = Gateway::TTL;
    const FIFO: bool = true;

    async fn start() -> Option<Self> {
        Some(Self(Gateway::spawn(TempDir::new().unwrap(), "127.0.0.1:0", &["--dev-tls"]).await))
    }

    async fn restart(&mut self) {
        self.0.start_again(&["--dev-tls"]).await;
    }

    fn url(&self) -> String {
        let ca = self.0.folder.path().join("dev-tls/ca.pem");
        format!("highgates://{}?ca={}", self.0.admin, ca.display())
    }
}

/// The address in a line like `highgate admin on http://127.0.0.1:9901 (live page)`.
fn address(line: &str) -> String {
    let (_, rest) = line.split_once("://").expect("a line with an address");
    rest.split([' ', '/']).next().unwrap_or(rest).to_owned()
}

/// Where the gateway's program is, built if need be.
pub(crate) fn program() -> &'static PathBuf {
    PROGRAM.get_or_init(|| {
        build();
        output_folder().join("highgate")
    })
}

/// Where an example of this package is.
pub(crate) fn example(name: &str) -> PathBuf {
    // Built together with the program.
    program();
    output_folder().join("examples").join(name)
}

/// `target/debug`, from where this test itself is: `target/debug/deps/conformance-1234`.
fn output_folder() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).expect("a test is two folders deep").to_owned()
}

fn build() {
    let folder = output_folder();
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The example makes cargo choose the features that tests are built with.
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bin", "highgate", "--example", "hold"])
        .args(["--profile", profile, "--target-dir"])
        .arg(folder.parent().expect("the target folder"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .status()
        .unwrap();
    assert!(built.success(), "the gateway does not build");
}
