//! What only `run` may know: the way to the backend, with the secret or the certificate that opens it.
//!
//! The command gets neither. What must stay true: no secret is in the environment of the guardian, the keeper and the
//! command, `run`'s own environment is nobody's to read, and none is ever printed.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use highgate_elector::secrets::{self, SecretError};
use highgate_elector::{Backend, ClientTls, ConnectError, connect_with, is_gateway};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// The way to a backend.
pub(super) struct Access {
    pub(super) url: String,
    /// For a gateway's elections: from a file, or else from the environment.
    pub(super) secret: Option<String>,
    /// For TLS with a gateway: from flags, or else from the environment.
    pub(super) tls: ClientTls,
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
    #[error("--ca, --cert and --key are for gateways; name them in the URL of this backend, as in {url}")]
    NotForThis { url: &'static str },
}

/// Where etcd's files are named.
const ETCD_FILES: &str = "etcd://h1:2379?ca=FILE&cert=FILE&key=FILE";

impl Access {
    pub(super) fn new(url: &str, token_file: Option<&Path>, tls: ClientTls) -> Result<Self, AccessError> {
        let is_gateway = is_gateway(url);
        if !is_gateway && tls.is_named() {
            return Err(AccessError::NotForThis { url: ETCD_FILES });
        }
        let secret = match token_file {
            Some(_) if !is_gateway => return Err(AccessError::NotAGateway),
            Some(path) => Some(secrets::from_file(path)?),
            None if is_gateway => secrets::find(secrets::ELECTIONS_TOKEN)?,
            None => None,
        };
        Ok(Self { url: url.to_owned(), secret, tls: tls.or(ClientTls::from_environment()) })
    }

    /// Nothing is sent yet.
    pub(super) fn connect(&self) -> Result<Arc<dyn Backend>, ConnectError> {
        connect_with(&self.url, self.secret.as_deref(), &self.tls)
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
