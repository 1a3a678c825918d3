//! `--ca`, `--cert` and `--key`: TLS with a gateway, the same for every command that speaks to one.

use std::path::PathBuf;

use highgate_elector::ClientTls;

/// Files for TLS with a gateway. Their ids are their own, because a command may have another argument that is called `key`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct TlsArgs {
    /// File with the authorities that may have signed the gateway's certificate [default: HIGHGATE_CA, or those that the
    /// system trusts]
    #[arg(id = "tls_ca", long = "ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// File with the certificate to show to the gateway [default: HIGHGATE_CERT]
    #[arg(id = "tls_cert", long = "cert", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// File with the private key of that certificate [default: HIGHGATE_KEY]
    #[arg(id = "tls_key", long = "key", value_name = "FILE")]
    key: Option<PathBuf>,
}

impl TlsArgs {
    /// What the flags name, without the environment.
    pub(super) fn named(&self) -> ClientTls {
        ClientTls { ca: self.ca.clone(), cert: self.cert.clone(), key: self.key.clone() }
    }
}
