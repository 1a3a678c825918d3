//! What only `run` may know: the way to the backend, with the secret that opens it.
//!
//! The command gets neither. What must stay true: no secret is in the environment of the guardian, the keeper and the
//! command, and none is ever printed.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use highgate_elector::{Backend, ConnectError, connect_with_secret, secrets};

/// The way to a backend.
pub(super) struct Access {
    pub(super) url: String,
    /// For a gateway's elections: from a file, or else from the environment.
    pub(super) secret: Option<String>,
}

/// A file has no usable secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretError {
    #[error("the secret in {path} cannot be read: {source}")]
    Unreadable { path: String, source: io::Error },
    #[error("{path} is empty: it has to contain the secret for the gateway's elections")]
    Empty { path: String },
    #[error(
        "--token-file is the secret for a gateway's elections; this backend has its own in the URL or needs none"
    )]
    NotAGateway,
}

impl Access {
    pub(super) fn new(url: &str, token_file: Option<&Path>) -> Result<Self, SecretError> {
        let is_gateway = url.starts_with("highgate://");
        let secret = match token_file {
            Some(_) if !is_gateway => return Err(SecretError::NotAGateway),
            Some(path) => Some(read(path)?),
            None => secrets::from_env().filter(|_| is_gateway),
        };
        Ok(Self { url: url.to_owned(), secret })
    }

    /// Nothing is sent yet.
    pub(super) fn connect(&self) -> Result<Arc<dyn Backend>, ConnectError> {
        connect_with_secret(&self.url, self.secret.as_deref())
    }
}

fn read(path: &Path) -> Result<String, SecretError> {
    let name = || path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|source| SecretError::Unreadable { path: name(), source })?;
    match text.trim() {
        "" => Err(SecretError::Empty { path: name() }),
        secret => Ok(secret.to_owned()),
    }
}

/// Takes every secret out of what a process and its children inherit from this one.
pub(super) fn scrub(command: &mut Command) {
    for variable in secrets::variables() {
        command.env_remove(variable);
    }
}
