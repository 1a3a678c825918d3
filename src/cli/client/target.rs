//! Which gateway a command speaks to: `--admin`, the secret, and the files for TLS.
//!
//! One rule says whether TLS is spoken: `https://` says so and `http://` says no, and an address without a scheme is spoken
//! to in TLS if a file for it is named. So whoever names an authority never sends an order in the clear.

use std::path::PathBuf;
use std::str::FromStr;

use highgate_elector::ClientTls;
use highgate_elector::secrets;
use http::uri::Authority;

use super::{Client, ClientError};
use crate::cli::tls::TlsArgs;

/// Where the gateway's admin port is.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Target {
    /// Address of the gateway's admin port, or several with commas between them, of which the first that is ready is
    /// asked; https://ADDRESS for TLS
    #[arg(
        long,
        env = "HIGHGATE_ADMIN",
        value_name = "ADDRESS,…",
        value_delimiter = ',',
        default_value = "127.0.0.1:9901"
    )]
    pub(in crate::cli) admin: Vec<Address>,
    /// File with the secret for the admin port [default: HIGHGATE_ADMIN_TOKEN, or the file that HIGHGATE_TOKEN_FILE names]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) tls: TlsArgs,
}

/// A host and a port, and perhaps what is spoken there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Address {
    pub(super) authority: Authority,
    pub(super) scheme: Option<Scheme>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// A text is no [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address is a host and a port, like 127.0.0.1:9901 or https://gateway.internal:9901")]
pub(in crate::cli) struct AddressError;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some(_) => return Err(AddressError),
            None => (None, text),
        };
        let name = if scheme.is_some() { rest.strip_suffix('/').unwrap_or(rest) } else { rest };
        let authority: Authority = name.parse().map_err(|_| AddressError)?;
        let complete = authority.port_u16().is_some() && !authority.host().is_empty() && !name.contains('@');
        if complete { Ok(Self { authority, scheme }) } else { Err(AddressError) }
    }
}

impl Address {
    pub(super) fn wants_tls(&self, tls: &ClientTls) -> bool {
        match self.scheme {
            Some(scheme) => scheme == Scheme::Https,
            None => tls.is_named(),
        }
    }
}

impl Target {
    /// A client with the secret of the file or, without one, of the environment. Not of a flag: other users can read those.
    pub(in crate::cli) fn client(&self) -> Result<Client, ClientError> {
        let bearer = match &self.token_file {
            Some(file) => Some(secrets::from_file(file)?),
            None => secrets::find(secrets::ADMIN_TOKEN)?,
        };
        let named = self.tls.named();
        let plain = self.admin.iter().find(|address| address.scheme == Some(Scheme::Http));
        if let Some(address) = plain.filter(|_| named.is_named()) {
            return Err(ClientError::Contradiction { address: address.authority.to_string() });
        }
        Client::new(&self.admin, bearer.as_deref(), &named.or(ClientTls::from_environment()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port_with_or_without_a_scheme() {
        for text in ["127.0.0.1:9901", "[::1]:9901", "gate.internal:80"] {
            for (scheme, before) in
                [(None, ""), (Some(Scheme::Http), "http://"), (Some(Scheme::Https), "https://")]
            {
                let address: Address = format!("{before}{text}").parse().unwrap();
                assert_eq!((address.authority.as_str(), address.scheme), (text, scheme));
            }
        }
        assert_eq!("https://gate:1/".parse::<Address>().unwrap().authority.as_str(), "gate:1");
        for text in [
            "",
            "9901",
            ":9901",
            "gate",
            "gate:",
            "gate:x",
            "gate:99999",
            "gate:80/",
            "https://gate",
            "ftp://gate:80",
            "https://gate:80/v1",
            "a@gate:80",
            "https://a@gate:80",
        ] {
            assert_eq!(text.parse::<Address>(), Err(AddressError), "{text:?}");
        }
    }

    #[test]
    fn a_scheme_says_what_is_spoken_and_else_a_file_does() {
        let file = ClientTls { ca: Some("ca.pem".into()), ..ClientTls::default() };
        for (text, without, with) in
            [("http://a:1", false, false), ("https://a:1", true, true), ("a:1", false, true)]
        {
            let address: Address = text.parse().unwrap();
            let asked = (address.wants_tls(&ClientTls::default()), address.wants_tls(&file));
            assert_eq!(asked, (without, with), "{text}");
        }
    }
}
