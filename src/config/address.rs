//! Where the ports listen: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or `:8080` for the default address.
//!
//! Used by `sections` for the file and by the flags of `serve`. An address that is left out is loopback, never all
//! addresses: nobody is to put a port on a network by saying less. Of two ports that are one, the problem is reported
//! where somebody said so last: a flag before the file, and never a default.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

use super::error::Report;
use super::keys;
use super::raw::Text;
use super::scope::Scope;

/// One of the gateway's ports.
#[derive(Debug)]
pub(super) struct Port {
    name: &'static str,
    /// Its table in the file.
    table: &'static str,
    flag: &'static str,
    default: u16,
}

pub(super) const DATA: Port = Port { name: "data", table: "listen", flag: "--listen", default: 8080 };
pub(super) const ADMIN: Port = Port { name: "admin", table: "admin", flag: "--admin", default: 9901 };
pub(super) const ELECTIONS: Port =
    Port { name: "elections", table: "elections", flag: "--elections", default: 9902 };

/// The address of a port, and who said it.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) value: SocketAddr,
    port: Port,
    said: Said,
}

#[derive(Debug)]
enum Said {
    Nowhere,
    InFile(Range<usize>),
    ByFlag,
}

impl Port {
    /// The address of this port: the file's is judged even where a flag stands over it.
    pub(super) fn read(self, raw: Text, flag: Option<SocketAddr>, report: &mut Report<'_>) -> Address {
        let span = raw.as_ref().map(|raw| raw.span());
        let file = Scope::new(report, self.table).read("address", raw, |text| parse(&text));
        let (value, said) = match (flag, file, span) {
            (Some(address), _, _) => (address, Said::ByFlag),
            (None, Some(address), Some(span)) => (address, Said::InFile(span)),
            _ => (SocketAddr::from((Ipv4Addr::LOCALHOST, self.default)), Said::Nowhere),
        };
        Address { value, port: self, said }
    }
}

impl Address {
    /// Reports it if two listeners would want the same port.
    pub(super) fn check_apart(&self, other: &Self, report: &mut Report<'_>) {
        if !are_one(self.value, other.value) {
            return;
        }
        let (blamed, other) = if self.rank() >= other.rank() { (self, other) } else { (other, self) };
        let what = format!(
            "the {} port {} and the {} port {} are one",
            blamed.port.name, blamed.value, other.port.name, other.value
        );
        let key = format!("{}.address", blamed.port.table);
        match &blamed.said {
            Said::InFile(span) => report.add(span.clone(), key, what),
            Said::ByFlag | Said::Nowhere => {
                report.add_flag(blamed.port.flag, what, keys::allowed(&key).unwrap_or_default());
            }
        }
    }

    /// Its table in the file.
    pub(super) fn table(&self) -> &'static str {
        self.port.table
    }

    /// Reports it if strangers could listen to a port that does not say that this is meant.
    pub(super) fn check_private(&self, encrypted: bool, insecure: bool, report: &mut Report<'_>) {
        if encrypted || insecure || is_loopback(self.value) {
            return;
        }
        let table = self.port.table;
        let what = format!(
            "{} is another address than loopback, and without {table}.tls everything on the {} port goes over the network \
             in the clear",
            self.value, self.port.name
        );
        match &self.said {
            Said::InFile(span) => report.add(span.clone(), format!("{table}.insecure"), what),
            Said::ByFlag | Said::Nowhere => {
                report.add_flag(
                    self.port.flag,
                    what,
                    &format!("--insecure if that is meant, or {table}.tls in a config file"),
                );
            }
        }
    }

    fn rank(&self) -> u8 {
        match self.said {
            Said::Nowhere => 0,
            Said::InFile(_) => 1,
            Said::ByFlag => 2,
        }
    }
}

/// Whether only this machine can reach it.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Port 0 is a different port every time.
fn are_one(one: SocketAddr, other: SocketAddr) -> bool {
    let same_ip = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && same_ip
}

/// Reads an address and a port. No name but `localhost` is looked up: what it stands for could change.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':'));
    let digits = port.filter(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    let local = digits.and_then(|port| port.parse::<u16>().ok());
    match local {
        Some(port) => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        None => text.parse().map_err(|_| format!("{text:?} is not an address and a port")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::tests::{ROUTE, refusal};
    use crate::config::{Config, Overrides};

    #[test]
    fn an_address_that_is_left_out_is_loopback() {
        for (text, address) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            (":8080", "127.0.0.1:8080"),
            (":0", "127.0.0.1:0"),
            ("[::1]:8080", "[::1]:8080"),
            ("0.0.0.0:8080", "0.0.0.0:8080"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), address, "{text}");
        }
        for text in
            ["", ":", "8080", "localhost", "localhost:", ":x", ":+1", ":65536", "example.org:80", "::1:80"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    fn flagged(file: &str, listen: Option<&str>, admin: Option<&str>) -> String {
        let address = |text: &str| parse(text).unwrap();
        let overrides =
            Overrides { listen: listen.map(address), admin: admin.map(address), ..Overrides::default() };
        Config::parse(&format!("{file}{ROUTE}"), Path::new("f.toml"), &overrides).unwrap_err().to_string()
    }

    #[test]
    fn of_two_ports_that_are_one_the_blame_is_with_who_said_so() {
        let message = refusal(&format!("[listen]\naddress = ':9901'\n{ROUTE}"));
        let expected =
            "f.toml:2:11: listen.address: the data port 127.0.0.1:9901 and the admin port 127.0.0.1:9901";
        assert!(message.starts_with(expected), "{message}");
        let message = refusal(&format!("[listen]\naddress = ':9902'\n[elections]\n{ROUTE}"));
        assert!(message.starts_with("f.toml:2:11: listen.address: the data port"), "{message}");
        for (file, listen, admin, blamed) in [
            ("", Some(":9901"), None, "--listen: the data port"),
            ("", None, Some(":8080"), "--admin: the admin port"),
            ("", Some(":7"), Some(":7"), "--admin: the admin port"),
            ("[admin]\naddress = ':7'\n", Some(":7"), None, "--listen: the data port"),
            ("[listen]\naddress = ':7'\n", None, Some(":7"), "--admin: the admin port"),
            (
                "[listen]\naddress = ':7'\n[admin]\naddress = ':7'\n",
                None,
                None,
                "f.toml:4:11: admin.address: the",
            ),
        ] {
            let message = flagged(file, listen, admin);
            assert!(message.starts_with(blamed), "{message}");
        }
    }
}
