//! Routes and logs reload in place: on SIGHUP, and when the config file changes.
//!
//! The folder is watched rather than the file, because editors and Kubernetes replace files by renaming. A
//! file that cannot be taken changes nothing and says why.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use highgate::config::{Config, ConfigError, LoadInput};
use highgate::gateway::Gateway;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::logging::Logs;

/// A change rarely comes alone: an editor writes, renames and touches.
const SETTLE: Duration = Duration::from_millis(100);

pub(super) struct Reloader {
    input: LoadInput,
    /// What is in force.
    current: Config,
    /// The file as it was last read, to tell a change from a touch.
    seen: Option<String>,
    changes: mpsc::UnboundedReceiver<()>,
    /// Watches as long as it lives.
    _watcher: Option<RecommendedWatcher>,
}

/// A config as it was read, and the text it came from.
pub(super) struct Loaded {
    pub(super) config: Config,
    seen: Option<String>,
}

impl Loaded {
    /// The text is read first, so that a change during the load is seen later, never missed.
    pub(super) fn load(input: &LoadInput) -> Result<Self, ConfigError> {
        let seen = read(input);
        Ok(Self { config: Config::load(input)?, seen })
    }
}

impl Reloader {
    pub(super) fn new(input: LoadInput, loaded: Loaded) -> anyhow::Result<Self> {
        let (changed, changes) = mpsc::unbounded_channel();
        // What changed before there was somebody to watch.
        let _ = changed.send(());
        let watcher = input.file.as_deref().map(|file| watch(file, changed)).transpose()?;
        let Loaded { config: current, seen } = loaded;
        Ok(Self { input, current, seen, changes, _watcher: watcher })
    }

    /// Completes when the file has changed. Never, if there is none.
    pub(super) async fn changed(&mut self) {
        loop {
            if self.changes.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(SETTLE).await;
            while self.changes.try_recv().is_ok() {}
            if read(&self.input) != self.seen {
                return;
            }
        }
    }

    /// Reads the config again and puts its routes and logs into force, or keeps the old ones and says why.
    pub(super) fn reload(&mut self, gateway: &Gateway, logs: &Logs) {
        if self.input.file.is_none() {
            tracing::info!("there is no config file to reload");
            return;
        }
        let read = read(&self.input);
        match Config::load(&self.input) {
            Ok(config) => {
                for key in self.current.needs_restart(&config) {
                    tracing::warn!(
                        key,
                        "changed in the config file; a restart is needed to bring it into force"
                    );
                }
                if config.once != self.current.once {
                    gateway.keep_once(config.once.keep);
                }
                if config.log != self.current.log {
                    logs.change(&config.log);
                    gateway.log_access(config.log.access);
                    self.current.log = config.log.clone();
                }
                gateway.reload(config.routes.clone());
                tracing::info!(routes = config.routes.iter().count(), "routes reloaded");
                self.current.routes = config.routes;
                self.current.once = config.once;
            }
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::error!(%error, "the config file was not taken; the routes stay as they were");
                gateway.reload_failed(error);
            }
        }
        self.seen = read;
    }
}

fn read(input: &LoadInput) -> Option<String> {
    std::fs::read_to_string(input.file.as_deref()?).ok()
}

fn watch(file: &Path, changed: mpsc::UnboundedSender<()>) -> anyhow::Result<RecommendedWatcher> {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut watcher = notify::recommended_watcher(move |_| {
        let _ = changed.send(());
    })
    .context("cannot watch for config changes")?;
    watcher
        .watch(folder, RecursiveMode::NonRecursive)
        .with_context(|| format!("cannot watch the folder {}", folder.display()))?;
    Ok(watcher)
}
