//! The gateway of act two: a real one in this process, with its marks in a folder that goes with it.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, anyhow};
use highgate::config::{Config, Overrides};
use highgate::gateway::Gateway;
use tokio::sync::oneshot;
use uuid::Uuid;

pub(super) struct Fenced {
    gateway: Gateway,
    /// Dropped after the gateway.
    _folder: Folder,
}

impl Fenced {
    pub(super) fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        let folder = Folder::create().context("no folder for the marks can be made")?;
        let gateway = Gateway::start(config(upstream, &folder.0)?).context("the gateway does not start")?;
        Ok(Self { gateway, _folder: folder })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    pub(super) fn admin_address(&self) -> SocketAddr {
        self.gateway.admin_address()
    }

    /// Completes if the gateway can no longer serve.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        match self.gateway.failed() {
            Some(failed) => failed.await.map_or_else(|_| anyhow!("the store is gone"), anyhow::Error::from),
            None => std::future::pending().await,
        }
    }

    /// Ends the gateway while the ledger still answers, then removes the folder.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let Self { gateway, _folder } = self;
        let (done, ended) = oneshot::channel();
        // It blocks until its threads have ended, and one of them may wait for the ledger on this thread.
        thread::spawn(move || done.send(gateway.stop()));
        ended.await.context("the gateway did not end well")?;
        Ok(())
    }
}

fn config(upstream: SocketAddr, folder: &Path) -> anyhow::Result<Config> {
    let text = format!(
        r#"
        [listen]
        address = "127.0.0.1:0"
        workers = 1
        [admin]
        address = "127.0.0.1:0"
        [log]
        access = "off"
        [shutdown]
        unready_delay = "0s"
        drain_limit = "1s"
        [[routes]]
        name = "ledger"
        upstream = "http://{upstream}"
        resource = "ledger"
        tokens = "trusted"
        lock_delay = "500ms"
        "#
    );
    let overrides = Overrides { data_dir: Some(folder.to_owned()), ..Overrides::default() };
    Ok(Config::parse(&text, Path::new("demo.toml"), &overrides)?)
}

/// A folder for this demo alone, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn create() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("highgate-demo-{}", Uuid::new_v4().simple()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to the system, like everything in its folder for such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}
