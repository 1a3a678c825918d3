//! One spelling per host: lower case, no port, no trailing dot, IPv6 in its shortest form.
//!
//! `gate::claim` brings every request's host to this form before a route is looked for, and host patterns in
//! the config file are kept in it, so that `LEDGER.internal.:8080` cannot slip past a route for
//! `ledger.internal`. Escapes and everything else that is not a plain name are refused.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// Why a request's host is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("the request names no host")]
    Missing,
    #[error("the request has more than one Host header")]
    Duplicate,
    #[error("the Host header names another host than :authority")]
    Differs,
    #[error("the request's host is not a plain name or address")]
    Invalid,
}

/// The canonical form of `host[:port]`, borrowed when only the port has to go.
pub fn canonical_host(text: &str) -> Result<Cow<'_, str>, HostError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or(HostError::Invalid)?;
        let address: Ipv6Addr = address.parse().map_err(|_| HostError::Invalid)?;
        check_port(port)?;
        return Ok(Cow::Owned(format!("[{address}]")));
    }
    let end = text.find(':').unwrap_or(text.len());
    let (name, port) = text.split_at(end);
    check_port(port)?;
    canonical_name(name)
}

/// `port` is what follows the name: nothing, or a colon and at most a 16-bit decimal.
fn check_port(port: &str) -> Result<(), HostError> {
    let digits = match port.strip_prefix(':') {
        None if port.is_empty() => return Ok(()),
        None => return Err(HostError::Invalid),
        Some(digits) => digits,
    };
    let decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
    if decimal && (digits.is_empty() || digits.parse::<u16>().is_ok()) {
        Ok(())
    } else {
        Err(HostError::Invalid)
    }
}

fn canonical_name(name: &str) -> Result<Cow<'_, str>, HostError> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let valid =
        name.len() <= 253 && name.split('.').all(|label| !label.is_empty() && label.bytes().all(plain));
    if !valid {
        return Err(HostError::Invalid);
    }
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Ok(Cow::Owned(name.to_ascii_lowercase()));
    }
    Ok(Cow::Borrowed(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_host_are_one() {
        for spelling in [
            "ledger.internal",
            "LEDGER.Internal",
            "ledger.internal.",
            "ledger.internal:8080",
            "ledger.internal:",
        ] {
            assert_eq!(canonical_host(spelling).unwrap(), "ledger.internal", "{spelling}");
        }
        assert_eq!(canonical_host("127.0.0.1:80").unwrap(), "127.0.0.1");
        assert_eq!(canonical_host("[0:0::1]:80").unwrap(), canonical_host("[::1]").unwrap());
    }

    #[test]
    fn what_is_not_a_plain_host_is_refused() {
        for text in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a b",
            "user@a",
            "a:b",
            "a:+1",
            "a:65536",
            "a:80:80",
            "a/b",
            "l%65dger",
            "é",
            "[::1",
            "[::1]x",
            "[::1%25eth0]",
            "[]",
            "::1",
            "a,b",
        ] {
            assert_eq!(canonical_host(text), Err(HostError::Invalid), "{text:?}");
        }
    }
}
