//! Routes, grants, secrets and logs reload in place: on SIGHUP, and when the config file or the file of secrets changes.
//!
//! Folders are watched rather than files, because editors and Kubernetes replace files by renaming. A
//! file that cannot be taken changes nothing and says why.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use highgate::config::{Config, ConfigError, Fingerprint, LoadInput, Secrets};
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
    /// The files as they were last read, to tell a change from a touch.
    seen: Seen,
    changes: mpsc::UnboundedReceiver<()>,
    watcher: Option<Folders>,
}

/// A config as it was read, and the files it came from.
pub(super) struct Loaded {
    pub(super) config: Config,
    seen: Seen,
}

/// What was in the config file and in the file of secrets.
#[derive(PartialEq)]
struct Seen {
    config: Option<String>,
    secrets: Option<Fingerprint>,
}

/// The folders that are watched, as long as this lives.
struct Folders {
    watcher: RecommendedWatcher,
    watched: HashSet<PathBuf>,
}

impl Loaded {
    /// The text is read first, so that a change during the load is seen later, never missed.
    pub(super) fn load(input: &LoadInput) -> Result<Self, ConfigError> {
        let seen = Seen::of(input, None);
        let config = Config::load(input)?;
        Ok(Self { seen: seen.with(&config.secrets), config })
    }
}

impl Reloader {
    pub(super) fn new(input: LoadInput, loaded: Loaded) -> anyhow::Result<Self> {
        let (changed, changes) = mpsc::unbounded_channel();
        // What changed before there was somebody to watch.
        let _ = changed.send(());
        let Loaded { config: current, seen } = loaded;
        let mut watcher = None;
        if let Some(file) = input.file.as_deref() {
            let mut folders = Folders::new(changed)?;
            folders.watch(file)?;
            if let Some(secrets) = current.secrets.file() {
                folders.watch(secrets)?;
            }
            watcher = Some(folders);
        }
        Ok(Self { input, current, seen, changes, watcher })
    }

    /// Completes when the file has changed. Never, if there is none.
    pub(super) async fn changed(&mut self) {
        loop {
            if self.changes.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(SETTLE).await;
            while self.changes.try_recv().is_ok() {}
            if Seen::of(&self.input, self.current.secrets.file()) != self.seen {
                return;
            }
        }
    }

    /// Reads the config again and puts its routes, grants, secrets and logs into force, or keeps the old ones and says why.
    pub(super) fn reload(&mut self, gateway: &Gateway, logs: &Logs) {
        if self.input.file.is_none() {
            tracing::info!("there is no config file to reload");
            return;
        }
        self.seen = Seen::of(&self.input, self.current.secrets.file());
        match Config::load(&self.input) {
            Ok(config) => {
                self.grant(gateway, &config);
                for key in self.current.needs_restart(&config) {
                    tracing::warn!(
                        key,
                        "changed in the config file; a restart is needed to bring it into force"
                    );
                }
                if config.once != self.current.once {
                    gateway.keep_once(config.once.keep);
                }
                if config.max_resources != self.current.max_resources {
                    gateway.limit_resources(config.max_resources);
                    self.current.max_resources = config.max_resources;
                }
                if config.log != self.current.log {
                    logs.change(&config.log);
                    gateway.log_access(config.log.access);
                    self.current.log = config.log.clone();
                }
                self.current.once = config.once;
                match gateway.reload(config.routes.clone()) {
                    Ok(()) => self.current.routes = config.routes,
                    Err(refused) => not_taken(gateway, refused.into()),
                }
            }
            Err(error) => not_taken(gateway, error.into()),
        }
    }

    /// Before the routes: a grant that is taken away is away, whatever becomes of them.
    fn grant(&mut self, gateway: &Gateway, config: &Config) {
        gateway.grant(config.grants.clone(), config.secrets.clone());
        self.seen.secrets = config.secrets.fingerprint();
        let watched = match (config.secrets.file(), &mut self.watcher) {
            (Some(secrets), Some(watcher)) => watcher.watch(secrets),
            _ => Ok(()),
        };
        if let Err(error) = watched {
            let error = format!("{error:#}");
            tracing::warn!(error, "changes of the file of secrets are seen only with a SIGHUP");
        }
        (self.current.grants, self.current.secrets) = (config.grants.clone(), config.secrets.clone());
    }
}

impl Seen {
    fn of(input: &LoadInput, secrets: Option<&Path>) -> Self {
        let config = input.file.as_deref().and_then(|file| std::fs::read_to_string(file).ok());
        Self { config, secrets: secrets.and_then(Fingerprint::of) }
    }

    fn with(self, secrets: &Secrets) -> Self {
        Self { secrets: secrets.fingerprint(), ..self }
    }
}

fn not_taken(gateway: &Gateway, error: anyhow::Error) {
    gateway.reload_failed(format!("{error:#}"));
}

impl Folders {
    fn new(changed: mpsc::UnboundedSender<()>) -> anyhow::Result<Self> {
        let watcher = notify::recommended_watcher(move |_| {
            let _ = changed.send(());
        });
        Ok(Self { watcher: watcher.context("cannot watch for config changes")?, watched: HashSet::new() })
    }

    /// Watches the folder that a file is in.
    fn watch(&mut self, file: &Path) -> anyhow::Result<()> {
        let folder = match file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        if self.watched.contains(folder) {
            return Ok(());
        }
        self.watcher
            .watch(folder, RecursiveMode::NonRecursive)
            .with_context(|| format!("cannot watch the folder {}", folder.display()))?;
        self.watched.insert(folder.to_owned());
        Ok(())
    }
}
