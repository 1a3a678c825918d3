//! HTTP/2 by hand: frames that no client library sends, with header fields as HPACK literals.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::laws;
use super::readers;
use super::recorder::Recorder;
use super::table::bytes;
use crate::support::{PATIENCE, gateway};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;
const DATA: u8 = 0;
const RESET: u8 = 3;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A case's steps, with the head of an ordinary write to start from.
struct Script {
    head: Vec<(Vec<u8>, Vec<u8>)>,
    data: Vec<Vec<u8>>,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Lines are `name :: step; step => want`. Steps: `+name: value` adds a field at the end, `^name: value` before all others,
/// `=name: value` replaces one, `-name` takes one away, `data TEXT` and `trailer name: value` follow. Wanted is `pass`, a
/// status of the gateway's, `reset` for a stream or connection that is ended, or `no` for any of the latter two.
pub(super) fn try_all(table: &str) {
    let recorder = Recorder::start();
    let gate = gateway(recorder.address).route("lock_delay", "10ms").listen("request_timeout", "2s").start();
    let lines = table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let mut count = 0;
    for line in lines {
        let (name, rest) = line.split_once(" :: ").unwrap_or_else(|| panic!("no case: {line}"));
        let (steps, want) = rest.rsplit_once(" => ").unwrap_or_else(|| panic!("nothing wanted: {line}"));
        let before = recorder.heads().len();
        let status = send(gate.address, &script(steps));
        let forwarded = recorder.heads().len() - before;
        match (want, status) {
            ("pass", Some(200)) => assert_eq!(forwarded, 1, "{name}"),
            ("reset" | "no", None) => assert_eq!(forwarded, 0, "{name}"),
            ("no", Some(400..)) => assert_eq!(forwarded, 0, "{name}"),
            (want, Some(status)) if want == status.to_string() => assert_eq!(forwarded, 0, "{name}"),
            (want, status) => panic!("{name}: wanted {want}, got {status:?}"),
        }
        assert_eq!(gate.mark("default").max(7), 7, "{name}: a token that was no header counted");
        count += 1;
    }
    assert!(count >= 40, "{count} cases");
    let streams = recorder.streams();
    streams.iter().for_each(laws::check);
    assert!(!recorder.heads().iter().any(|head| head.contains("smuggled")));
    readers::agree("streams", &streams);
}

fn script(steps: &str) -> Script {
    let usual = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "ledger.test"),
        (":path", "/case"),
        ("x-fencing-token", "7"),
    ];
    let head =
        usual.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
    let mut script = Script { head, data: Vec::new(), trailers: Vec::new() };
    for step in steps.split("; ").map(str::trim).filter(|step| !step.is_empty()) {
        let (kind, rest) = step.split_at(1);
        match kind {
            "+" => script.head.push(field(rest)),
            "^" => script.head.insert(0, field(rest)),
            "-" => script.head.retain(|(name, _)| *name != bytes(rest)),
            "=" => {
                let (name, value) = field(rest);
                script
                    .head
                    .iter_mut()
                    .filter(|(own, _)| *own == name)
                    .for_each(|own| own.1.clone_from(&value));
            }
            _ if step == "data" => script.data.push(Vec::new()),
            _ if step.starts_with("data ") => script.data.push(bytes(&step[5..])),
            _ if step.starts_with("trailer ") => script.trailers.push(field(&step[8..])),
            _ => panic!("no step: {step}"),
        }
    }
    script
}

/// `name: value`; a pseudo-header's name begins with a colon of its own.
fn field(text: &str) -> (Vec<u8>, Vec<u8>) {
    let at = text[1..].find(':').map_or_else(|| panic!("no field: {text}"), |at| at + 1);
    let at = text[1..].find(": ").map_or(at, |at| at + 1);
    (bytes(&text[..at]), bytes(text[at + 1..].trim_start_matches(' ')))
}

/// Sends one stream. The status of its answer, or nothing if it was reset.
fn send(address: std::net::SocketAddr, script: &Script) -> Option<u16> {
    let mut stream = TcpStream::connect(address).expect("the gateway listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out above zero");
    let follows = !script.data.is_empty() || !script.trailers.is_empty();
    let mut frames = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
    frames.extend(frame(HEADERS, END_HEADERS | u8::from(!follows), 1, &fields(&script.head)));
    for (number, data) in script.data.iter().enumerate() {
        let last = script.trailers.is_empty() && number + 1 == script.data.len();
        frames.extend(frame(DATA, u8::from(last) * END_STREAM, 1, data));
    }
    if !script.trailers.is_empty() {
        frames.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&script.trailers)));
    }
    stream.write_all(&frames).expect("the gateway reads");
    answer(&mut stream)
}

fn answer(stream: &mut TcpStream) -> Option<u16> {
    let mut received = Vec::new();
    loop {
        while let Some((kind, stream_id, payload, rest)) = split_frame(&received) {
            match (kind, stream_id) {
                (HEADERS, 1) => return Some(status(&payload)),
                (RESET, 1) | (GOAWAY, _) => return None,
                _ => received = rest,
            }
        }
        let mut more = [0; 4096];
        match stream.read(&mut more) {
            Ok(0) | Err(_) => return None,
            Ok(count) => received.extend_from_slice(&more[..count]),
        }
    }
}

fn split_frame(bytes: &[u8]) -> Option<(u8, u32, Vec<u8>, Vec<u8>)> {
    let (head, rest) = bytes.split_at_checked(9)?;
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    let (payload, rest) = rest.split_at_checked(length)?;
    let stream_id = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
    Some((head[3], stream_id, payload.to_vec(), rest.to_vec()))
}

/// The status is the first field: one of the static table, or a literal with a name of it.
fn status(block: &[u8]) -> u16 {
    // The table's size may be updated first.
    let block = if block[0] & 0xe0 == 0x20 { &block[1..] } else { block };
    match block[0] {
        index @ 0x88..=0x8e => [200, 204, 206, 304, 400, 404, 500][usize::from(index - 0x88)],
        _ if block[1] == 3 => std::str::from_utf8(&block[2..5]).expect("digits").parse().expect("a status"),
        // In Huffman's code; a status has one of 5 or 6 bits a digit.
        _ => huffman_digits(&block[2..2 + usize::from(block[1] & 0x7f)]),
    }
}

/// Three decimal digits of HPACK's Huffman code: 0 to 2 have five bits, the others six.
fn huffman_digits(code: &[u8]) -> u16 {
    let bits: Vec<u8> = code.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0u16, |sum, bit| sum << 1 | u16::from(*bit));
    let (mut at, mut status) = (0, 0);
    for _ in 0..3 {
        let five = number(&bits[at..at + 5]);
        let digit = if five <= 2 { five } else { number(&bits[at..at + 6]) - 0x19 + 3 };
        at += if five <= 2 { 5 } else { 6 };
        status = status * 10 + digit;
    }
    status
}

/// Every field as a literal that is not indexed, with its name as it is, and nothing in Huffman's code.
fn fields(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            length(&mut block, text.len());
            block.extend(text);
        }
    }
    block
}

/// A length with a prefix of seven bits.
fn length(block: &mut Vec<u8>, mut length: usize) {
    if length < 127 {
        return block.push(u8::try_from(length).expect("below 127"));
    }
    block.push(127);
    length -= 127;
    while length >= 128 {
        block.push(u8::try_from(length % 128 + 128).expect("a byte"));
        length /= 128;
    }
    block.push(u8::try_from(length).expect("below 128"));
}

fn frame(kind: u8, flags: u8, stream_id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream_id.to_be_bytes());
    frame.extend(payload);
    frame
}
