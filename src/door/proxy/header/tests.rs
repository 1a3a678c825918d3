//! Headers of load balancers, in one piece and in many, and what only looks like one.

use proptest::prelude::*;

use super::*;

/// What bytes say, and how many of them are the header.
fn read(bytes: &[u8]) -> Result<(usize, Option<Named>), Malformed> {
    Header::default().follow(bytes)
}

fn in_pieces(bytes: &[u8], size: usize) -> Result<(usize, Option<Named>), Malformed> {
    let (mut header, mut taken) = (Header::default(), 0);
    for piece in bytes.chunks(size) {
        let (more, named) = header.follow(piece)?;
        taken += more;
        if named.is_some() {
            return Ok((taken, named));
        }
    }
    Ok((taken, None))
}

fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, [command, family].as_slice(), &length, rest].concat()
}

fn client(address: &str) -> Named {
    Named::Client(address.parse().unwrap())
}

const TCP4: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0xDB, 0xBA, 1, 187];

#[test]
fn a_line_says_whose_connection_it_is() {
    for (line, named) in [
        ("PROXY TCP4 192.0.2.7 10.0.0.1 56250 443", client("192.0.2.7:56250")),
        ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 0", client("255.255.255.255:65535")),
        ("PROXY TCP6 2001:db8::7 ::1 1 2", client("[2001:db8::7]:1")),
        ("PROXY UNKNOWN", Named::Nobody),
        ("PROXY UNKNOWN ffff::1 whatever 1", Named::Nobody),
    ] {
        let bytes = format!("{line}\r\nPOST / HTTP/1.1\r\n");
        assert_eq!(read(bytes.as_bytes()), Ok((line.len() + 2, Some(named))), "{line}");
    }
}

#[test]
fn a_line_with_another_reading_is_refused() {
    for line in [
        "PROXY",
        "PROXY  TCP4 192.0.2.7 10.0.0.1 1 2",
        "PROXY TCP4 192.0.2.7 10.0.0.1 1",
        "PROXY TCP4 192.0.2.7 10.0.0.1 1 2 ",
        "PROXY TCP4 192.0.2.7 10.0.0.1 1 2 3",
        "PROXY TCP4 192.0.2.07 10.0.0.1 1 2",
        "PROXY TCP4 192.0.2.7 10.0.0.1 01 2",
        "PROXY TCP4 192.0.2.7 10.0.0.1 +1 2",
        "PROXY TCP4 192.0.2.7 10.0.0.1 65536 2",
        "PROXY TCP4 2001:db8::7 ::1 1 2",
        "PROXY TCP6 192.0.2.7 10.0.0.1 1 2",
        "PROXY tcp4 192.0.2.7 10.0.0.1 1 2",
        "PROXY UDP4 192.0.2.7 10.0.0.1 1 2",
        "proxy TCP4 192.0.2.7 10.0.0.1 1 2",
        "GET / HTTP/1.1",
        " PROXY UNKNOWN",
    ] {
        assert!(read(format!("{line}\r\n").as_bytes()).is_err(), "{line}");
    }
    assert!(read(b"PROXY UNKNOWN\n").is_err(), "a line ends with CR and LF");
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91));
    assert_eq!(long.len(), LONGEST_LINE);
    assert!(read(long.as_bytes()).is_ok_and(|(_, named)| named.is_some()));
    assert_eq!(read(format!("PROXY UNKNOWN {}", "x".repeat(9000)).as_bytes()), Err(Malformed::Line));
}

#[test]
fn a_binary_header_says_whose_connection_it_is() {
    let tcp6: Vec<u8> = [Ipv6Addr::LOCALHOST.octets(), Ipv6Addr::UNSPECIFIED.octets()].concat();
    let tcp6 = [tcp6.as_slice(), &[0, 80, 0, 81]].concat();
    for (command, family, rest, named) in [
        (0x21, 0x11, TCP4.to_vec(), client("192.0.2.7:56250")),
        (0x21, 0x11, [TCP4.as_slice(), b"\x03\0\x04abcd"].concat(), client("192.0.2.7:56250")),
        (0x21, 0x21, tcp6, client("[::1]:80")),
        (0x21, 0x00, vec![], Named::Nobody),
        (0x21, 0x00, vec![7; LONGEST_REST], Named::Nobody),
        (0x20, 0x00, vec![], Named::Nobody),
        (0x20, 0x11, TCP4.to_vec(), Named::Nobody),
    ] {
        let header = version_2(command, family, &rest);
        let bytes = [header.as_slice(), b"\x16\x03\x01"].concat();
        assert_eq!(read(&bytes), Ok((header.len(), Some(named))), "{command:#x} {family:#x}");
    }
}

#[test]
fn a_binary_header_with_another_reading_is_refused() {
    for (command, family, rest, why) in [
        (0x11, 0x11, TCP4.to_vec(), Malformed::Command),
        (0x22, 0x11, TCP4.to_vec(), Malformed::Command),
        (0x21, 0x12, TCP4.to_vec(), Malformed::Family),
        (0x21, 0x31, vec![0; 216], Malformed::Family),
        (0x21, 0x11, TCP4[..11].to_vec(), Malformed::Length),
        (0x21, 0x21, TCP4.to_vec(), Malformed::Length),
        (0x20, 0x00, vec![0; LONGEST_REST + 1], Malformed::Length),
    ] {
        assert_eq!(read(&version_2(command, family, &rest)), Err(why), "{command:#x} {family:#x}");
    }
    assert_eq!(read(b"\r\n\r\nGET / HTTP/1.1\r\n"), Err(Malformed::NoHeader));
}

proptest! {
    #[test]
    fn how_a_header_is_cut_into_pieces_makes_no_difference(
        head in prop_oneof![
            Just(b"PROXY TCP4 192.0.2.7 10.0.0.1 56250 443\r\n".to_vec()),
            Just(version_2(0x21, 0x11, &TCP4)),
            Just(version_2(0x20, 0x00, &[])),
        ],
        change in proptest::option::of((0_usize..60, any::<u8>())),
        after in proptest::collection::vec(any::<u8>(), 0..40),
        size in 1_usize..20,
    ) {
        let mut bytes = [head, after].concat();
        if let Some((at, byte)) = change && at < bytes.len() {
            bytes[at] = byte;
        }
        prop_assert_eq!(in_pieces(&bytes, size), read(&bytes));
    }

    #[test]
    fn bytes_of_any_kind_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((taken, _)) = read(&bytes) {
            prop_assert!(taken <= bytes.len());
        }
    }
}
