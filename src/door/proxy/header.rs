//! A PROXY header, version 1 or 2, as its bytes come. Pure.
//!
//! It is read strictly: what the specification does not say is refused, and so is what does not speak of TCP. What must
//! stay true: nothing beyond the header is taken, and how the bytes are cut into pieces makes no difference.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const FIXED: usize = 16;
/// The longest line of version 1, its end included.
const LONGEST_LINE: usize = 107;
/// The most that may follow the fixed part of version 2: addresses and what else a load balancer has to say.
const LONGEST_REST: usize = 4096;

/// A header that is not there to its end.
#[derive(Debug, Default)]
pub struct Header {
    bytes: Vec<u8>,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    Client(SocketAddr),
    /// The load balancer's own, or that of somebody whose address it does not know.
    Nobody,
}

/// Why a connection's first bytes are no PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it does not begin with a PROXY header")]
    NoHeader,
    #[error("the line of its PROXY header cannot be read")]
    Line,
    #[error("the version or the command of its PROXY header is unknown")]
    Command,
    #[error("its PROXY header speaks of something else than TCP")]
    Family,
    #[error("its PROXY header is too short for its addresses, or too long")]
    Length,
}

impl Header {
    /// Takes the next bytes: how many of them belong to the header and, at its end, what it says.
    pub fn follow(&mut self, fresh: &[u8]) -> Result<(usize, Option<Named>), Malformed> {
        let had = self.bytes.len();
        for (at, byte) in fresh.iter().enumerate() {
            self.bytes.push(*byte);
            if let Some(named) = self.read()? {
                return Ok((at + 1, Some(named)));
            }
        }
        Ok((self.bytes.len() - had, None))
    }

    /// What the bytes say, if they are a whole header; an error as soon as they cannot become one.
    fn read(&self) -> Result<Option<Named>, Malformed> {
        let bytes = self.bytes.as_slice();
        let begins = |with: &[u8]| bytes.iter().zip(with).all(|(byte, expected)| byte == expected);
        if begins(b"PROXY ") {
            return line_so_far(bytes);
        }
        if !begins(SIGNATURE) {
            return Err(Malformed::NoHeader);
        }
        let Some((fixed, rest)) = bytes.split_at_checked(FIXED) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
        let needed = Needs::of(fixed[12], fixed[13])?;
        if length < needed.bytes() || length > LONGEST_REST {
            return Err(Malformed::Length);
        }
        Ok((rest.len() == length).then(|| needed.read(rest)))
    }
}

/// What has to follow the fixed part of version 2.
#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    Tcp4,
    Tcp6,
}

impl Needs {
    fn of(version_and_command: u8, family: u8) -> Result<Self, Malformed> {
        match (version_and_command, family) {
            // LOCAL: the load balancer itself, whatever else it says.
            (0x20, _) | (0x21, 0x00) => Ok(Self::Nothing),
            (0x21, 0x11) => Ok(Self::Tcp4),
            (0x21, 0x21) => Ok(Self::Tcp6),
            (0x21, _) => Err(Malformed::Family),
            _ => Err(Malformed::Command),
        }
    }

    /// Two addresses and two ports.
    fn bytes(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Tcp4 => 4 + 4 + 2 + 2,
            Self::Tcp6 => 16 + 16 + 2 + 2,
        }
    }

    /// The first of the addresses and its port; what follows the addresses is of no use here.
    fn read(self, rest: &[u8]) -> Named {
        let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
        match self {
            Self::Nothing => Named::Nobody,
            Self::Tcp4 => {
                let address: [u8; 4] = std::array::from_fn(|at| rest[at]);
                Named::Client((Ipv4Addr::from(address), port(8)).into())
            }
            Self::Tcp6 => {
                let address: [u8; 16] = std::array::from_fn(|at| rest[at]);
                Named::Client((Ipv6Addr::from(address), port(32)).into())
            }
        }
    }
}

fn line_so_far(bytes: &[u8]) -> Result<Option<Named>, Malformed> {
    match bytes.strip_suffix(b"\n") {
        Some(line) => {
            let line = line.strip_suffix(b"\r").and_then(|line| std::str::from_utf8(line).ok());
            line.and_then(read_line).map(Some).ok_or(Malformed::Line)
        }
        None if bytes.len() >= LONGEST_LINE => Err(Malformed::Line),
        None => Ok(None),
    }
}

fn read_line(line: &str) -> Option<Named> {
    let mut words = line.strip_prefix("PROXY ")?.split(' ');
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(Named::Nobody);
    }
    let mut address = || -> Option<IpAddr> {
        let word = words.next()?;
        match family {
            "TCP4" => word.parse::<Ipv4Addr>().ok().map(IpAddr::from),
            "TCP6" => word.parse::<Ipv6Addr>().ok().map(IpAddr::from),
            _ => None,
        }
    };
    let (client, _) = (address()?, address()?);
    let mut port = || read_port(words.next()?);
    let (client_port, _) = (port()?, port()?);
    words.next().is_none().then(|| Named::Client((client, client_port).into()))
}

fn read_port(word: &str) -> Option<u16> {
    let plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| plain)
}
