//! `listen.proxy_protocol`: the load balancers that say in front of each connection whose it is.
//!
//! Whoever may say so can claim to be anybody, so their addresses have to be named. What must stay true: an address is in
//! one network in whatever family it is written, `::ffff:10.0.0.1` being `10.0.0.1`.

use std::net::IpAddr;

use super::raw::{RawProxyProtocol, Section};
use super::scope::Scope;

/// Who has to begin its connections with a PROXY header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxies {
    from: Vec<Network>,
}

/// Addresses with a prefix in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    first: IpAddr,
    prefix: u32,
}

impl Proxies {
    /// Whether this address is one of them.
    pub fn include(&self, address: IpAddr) -> bool {
        self.from.iter().any(|network| network.contains(address.to_canonical()))
    }
}

/// Judges the table. None without it: connections belong to those that they come from.
pub(super) fn build(raw: Option<Section<RawProxyProtocol>>, scope: &mut Scope<'_, '_>) -> Option<Proxies> {
    let section = raw?;
    let (span, raw) = (section.span.clone(), section.into_table());
    let mut scope = scope.below("proxy_protocol");
    let Some(from) = raw.from else {
        scope.problem(span, "from", "is missing: whoever may send PROXY headers can claim any address");
        return None;
    };
    if from.get_ref().is_empty() {
        scope.problem(from.span(), "from", "is empty, so no connection at all would be served");
        return None;
    }
    Some(Proxies { from: scope.each("from", from, |text| Network::parse(&text))? })
}

impl Network {
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not an address or a network");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| bad())?;
        if first != first.to_canonical() {
            return Err(format!("{text:?} is an IPv4 address in IPv6: write it as {}", first.to_canonical()));
        }
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= bits).ok_or_else(bad)?
            }
            Some(_) => return Err(bad()),
        };
        let network = Self { first, prefix };
        if network.masked(first) != masked_whole(first) {
            return Err(format!("{text:?} has bits set beyond its prefix"));
        }
        Ok(network)
    }

    fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && self.masked(address) == self.masked(self.first)
    }

    /// The bits of an address of the same family within the prefix.
    fn masked(&self, address: IpAddr) -> u128 {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let beyond = bits - self.prefix;
        let whole = masked_whole(address);
        whole.checked_shr(beyond).and_then(|kept| kept.checked_shl(beyond)).unwrap_or(0)
    }
}

fn masked_whole(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_an_address_and_how_many_of_its_bits_count() {
        for (network, within, without) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::a00:1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("192.0.2.7/32", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("::1", "::1", "::2"),
        ] {
            let proxies = Proxies { from: vec![Network::parse(network).unwrap()] };
            assert!(proxies.include(within.parse().unwrap()), "{network} has {within}");
            assert!(!proxies.include(without.parse().unwrap()), "{network} has not {without}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0/8",
            "10.0.0.1/8",
            "::/129",
            "::1/64",
            "lb.internal",
            "::ffff:10.0.0.0/104",
            "10.0.0.0/8/8",
            "010.0.0.0/8",
        ] {
            assert!(Network::parse(text).is_err(), "{text}");
        }
    }
}
