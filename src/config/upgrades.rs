//! `upgrades`: the protocols that a connection may go on with in HTTP's place, if client and upstream agree on one.
//!
//! What comes after is not HTTP: no request in it is seen, only that the stream is in flight. `gate::claim` asks here which
//! of the protocols that a client offers its route takes.

use std::fmt;
use std::sync::Arc;

use super::raw::Texts;
use super::scope::Scope;
use super::words::UpstreamProtocol;

const KEY: &str = "upgrades";

/// The protocols of a route, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upgrades(Vec<Protocol>);

/// A protocol's name, in lower case. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol(Arc<str>);

impl Upgrades {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The protocol of this name, if the route takes it.
    pub fn find(&self, name: &[u8]) -> Option<&Protocol> {
        self.0.iter().find(|protocol| protocol.is(name))
    }

    /// The protocols of the file; with a problem reported for each that cannot be one.
    pub(super) fn read(raw: Texts, upstream: UpstreamProtocol, scope: &mut Scope<'_, '_>) -> Self {
        let Some(raw) = raw else { return Self::default() };
        if upstream == UpstreamProtocol::H2 && !raw.get_ref().is_empty() {
            let what = "with upstream_protocol = \"h2\" there is no Upgrade: that would take the extended CONNECT of RFC 8441";
            scope.problem(raw.span(), KEY, what.to_owned());
        }
        let mut upgrades = Self::default();
        for (index, item) in raw.into_inner().into_iter().enumerate() {
            let protocol =
                scope.read(&format!("{KEY}[{index}]"), Some(item), |name| upgrades.check_new(&name));
            upgrades.0.extend(protocol);
        }
        upgrades
    }

    fn check_new(&self, name: &str) -> Result<Protocol, String> {
        let protocol = Protocol::parse(name)?;
        if self.0.contains(&protocol) { Err(format!("{name:?} is here twice")) } else { Ok(protocol) }
    }
}

impl Protocol {
    fn parse(name: &str) -> Result<Self, String> {
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            return Err(format!("{name:?} is not a token"));
        }
        match name.to_ascii_lowercase().as_str() {
            "h2c" | "h2" | "http" => Err(format!(
                "{name:?} would carry requests that no fence sees; HTTP/2 is spoken here from the first byte, without an upgrade"
            )),
            "tls" => Err(format!(
                "{name:?} would carry requests that no fence sees; TLS is spoken here from the first byte, by [listen.tls]"
            )),
            token => Ok(Self(token.into())),
        }
    }

    /// Whether a client or an upstream means this protocol.
    pub fn is(&self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.0.as_bytes())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether what follows comes in the frames of RFC 6455.
    pub fn is_websocket(&self) -> bool {
        &*self.0 == "websocket"
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a token may consist of, by RFC 9110. A version after a slash is not part of a protocol's name here.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{ROUTE, parse, refusal};

    #[test]
    fn upgrades_are_off_unless_the_file_names_protocols() {
        let upgrades = |lines: &str| {
            let config = parse(&format!("{ROUTE}{lines}")).unwrap();
            config.routes.iter().next().unwrap().upgrades.clone()
        };
        assert!(upgrades("").is_empty() && upgrades("upgrades = []").is_empty());
        let two = upgrades("upgrades = ['WebSocket', 'x-wire']");
        assert!(two.find(b"websocket").unwrap().is_websocket());
        assert!(!two.find(b"X-Wire").unwrap().is_websocket());
        assert_eq!(two.find(b"h2c"), None);
    }

    #[test]
    fn protocols_that_would_carry_requests_past_the_fence_are_refused() {
        for (list, what) in [
            ("['h2c']", "routes[0].upgrades[0]: \"h2c\" would carry requests that no fence sees; HTTP/2"),
            (
                "['websocket', 'TLS']",
                "routes[0].upgrades[1]: \"TLS\" would carry requests that no fence sees; TLS",
            ),
            ("['websocket', 'WebSocket']", "routes[0].upgrades[1]: \"WebSocket\" is here twice"),
            ("['web socket']", "routes[0].upgrades[0]: \"web socket\" is not a token"),
            ("['TLS/1.0']", "is not a token"),
            ("['']", "is not a token"),
        ] {
            let refused = refusal(&format!("{ROUTE}upgrades = {list}"));
            assert!(refused.contains(what), "{list}: {refused}");
        }
        let refused = refusal(&format!("{ROUTE}upstream_protocol = 'h2'\nupgrades = ['websocket']"));
        assert!(refused.contains("routes[0].upgrades: with upstream_protocol = \"h2\""), "{refused}");
        assert!(parse(&format!("{ROUTE}upstream_protocol = 'h2'\nupgrades = []")).is_ok());
    }
}
