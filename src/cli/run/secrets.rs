//! What only `run` may know: the way to the backend, with the secret that opens it.
//!
//! The command gets neither. What must stay true: no secret is in the environment of the guardian, the keeper and the
//! command, `run`'s own environment is nobody's to read, and none is ever printed.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use highgate_elector::secrets::{self, SecretError};
use highgate_elector::{Backend, ConnectError, connect_with_secret};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// The way to a backend.
pub(super) struct Access {
    pub(super) url: String,
    /// For a gateway's elections: from a file, or else from the environment.
    pub(super) secret: Option<String>,
}

/// There is no usable secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccessError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(
        "--token-file is the secret for a gateway's elections; this backend has its own in the URL or needs none"
    )]
    NotAGateway,
}

impl Access {
    pub(super) fn new(url: &str, token_file: Option<&Path>) -> Result<Self, AccessError> {
        let is_gateway = url.starts_with("highgate://");
        let secret = match token_file {
            Some(_) if !is_gateway => return Err(AccessError::NotAGateway),
            Some(path) => Some(secrets::from_file(path)?),
            None if is_gateway => secrets::find(secrets::ELECTIONS_TOKEN)?,
            None => None,
        };
        Ok(Self { url: url.to_owned(), secret })
    }

    /// Nothing is sent yet.
    pub(super) fn connect(&self) -> Result<Arc<dyn Backend>, ConnectError> {
        connect_with_secret(&self.url, self.secret.as_deref())
    }
}

/// Nobody but root reads the environment or the memory of this process, or traces it; other processes of its user may as
/// long as it is dumpable. What it executes begins dumpable again.
pub(super) fn keep_private() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Takes every secret out of what a process and its children inherit from this one.
pub(super) fn scrub(command: &mut Command) {
    for variable in secrets::variables() {
        command.env_remove(variable);
    }
}
