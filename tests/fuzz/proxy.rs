//! The PROXY header in front of a connection: nothing beyond it is taken, and it has one reading however it comes.

use std::net::{IpAddr, SocketAddr};

use highgate::door::proxy::header::{Header, Malformed, Named};

use super::target::{Answer, Target, ensure};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

pub(crate) fn target() -> Target {
    let binary = |rest: &[u8]| [SIGNATURE, rest].concat();
    let tcp4 = b"\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\xdb\xba\x01\xbb";
    let tcp6 = [b"\x21\x21\0\x24".as_slice(), &[0x20; 36]].concat();
    let with_more = [b"\x21\x11\0\x10".as_slice(), &tcp4[4..], b"\x03\0\x01x"].concat();
    let examples = vec![
        b"PROXY TCP4 192.0.2.7 10.0.0.1 56250 443\r\nPOST / HTTP/1.1\r\n".to_vec(),
        b"PROXY TCP6 2001:db8::7 ::1 1 65535\r\n\x16\x03\x01".to_vec(),
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN ::1 ::1 1 2\r\nGET".to_vec(),
        b"PROXY TCP4 192.0.2.7 10.0.0.1 1\r\n".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        binary(tcp4),
        binary(&tcp6),
        binary(&with_more),
        binary(b"\x20\0\0\0GET"),
        binary(b"\x21\0\0\x02abGET"),
        binary(b"\x21\x31\0\xd8"),
        binary(b"\x21\x11\xff\xff"),
    ];
    let words = &["PROXY ", "TCP4", "TCP6", "UNKNOWN", "\r\n", " ", "0", "::", "255", "\0"];
    Target { name: "proxy", accepted: "say whose connection it is", examples, words, check, exact: true }
}

fn check(input: &[u8]) -> Result<Answer, String> {
    let whole = read(input, input.len());
    for size in [1, 3, 13] {
        let pieces = read(input, size);
        ensure(pieces == whole, || format!("{pieces:?} in pieces of {size}, {whole:?} in one"))?;
    }
    let Ok((taken, Some(named))) = whole else { return Ok(Answer::Refused) };
    ensure(read(&input[..taken], taken) == whole, || "it is another header without what follows".to_owned())?;
    ensure(matches!(read(&input[..taken - 1], taken), Ok((_, None))), || "it ends too late".to_owned())?;
    let expected = if input.starts_with(b"PROXY ") { by_words(&input[..taken]) } else { by_place(input) };
    ensure(expected == Some(named), || format!("{named:?} is {expected:?} in other words"))?;
    Ok(Answer::Accepted)
}

fn read(input: &[u8], size: usize) -> Result<(usize, Option<Named>), Malformed> {
    let (mut header, mut taken) = (Header::default(), 0);
    for piece in input.chunks(size.max(1)) {
        let (more, named) = header.follow(piece)?;
        taken += more;
        if named.is_some() {
            return Ok((taken, named));
        }
    }
    Ok((taken, None))
}

/// The same rule in other words.
fn by_words(line: &[u8]) -> Option<Named> {
    let words: Vec<_> = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?.split(' ').collect();
    if words[1] == "UNKNOWN" {
        return Some(Named::Nobody);
    }
    let [_, family, client, server, port, _] = words[..] else { return None };
    let [client, server]: [IpAddr; 2] = [client.parse().ok()?, server.parse().ok()?];
    let fits = client.is_ipv4() == (family == "TCP4") && client.is_ipv4() == server.is_ipv4();
    fits.then(|| Some(Named::Client(SocketAddr::new(client, port.parse().ok()?)))).flatten()
}

fn by_place(header: &[u8]) -> Option<Named> {
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    match (header[12], header[13]) {
        (0x20, _) | (0x21, 0) => Some(Named::Nobody),
        (0x21, 0x11) => {
            let address: [u8; 4] = header[16..20].try_into().ok()?;
            Some(Named::Client((address, port(24)).into()))
        }
        (0x21, 0x21) => {
            let address: [u8; 16] = header[16..32].try_into().ok()?;
            Some(Named::Client((address, port(48)).into()))
        }
        _ => None,
    }
}
