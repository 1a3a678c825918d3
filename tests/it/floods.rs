//! What a single HTTP/2 client can do to everybody else: nothing. Each flood of the known kinds meets the real program;
//! meanwhile another client is served, and afterwards the memory is what it was, within bounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::h2_raw::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Flooded, GET, HEADERS, PING, POST_7, RST_STREAM, RawH2,
    SETTINGS, WINDOW_UPDATE, frame,
};
use crate::support::{Client, Highgate, config_for, get, highgate, origin, post, reply};

/// How long each flood goes on, if nothing stops it.
const FLOOD: Duration = Duration::from_secs(2);
/// The reason of a GOAWAY to who does too much of something.
const ENHANCE_YOUR_CALM: u32 = 11;
/// How much memory a single connection may cost. Much more than it does, much less than a flood has in it.
const ROOM: u64 = 48 << 20;

/// Runs a flood against a gateway of its own, and says how it ended.
fn survives(flood: impl FnOnce(&mut RawH2) -> Flooded) -> (Flooded, RawH2) {
    let origin = origin().answering(|_| reply(200)).start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("highgate.toml");
    let store = format!("[store]\npath = {:?}\n\n[log]\naccess = \"off\"\n\n", folder.path().join("data"));
    std::fs::write(&file, store + &config_for(origin.address, "")).unwrap();
    let gate = highgate().config(&file).start();
    gate.ask(&post("/").token(7)).is_ok();
    let before = gate.resident();
    let over = AtomicBool::new(false);
    let mut attacker = RawH2::connect(gate.address());
    let ended = thread::scope(|scope| {
        let others = scope.spawn(|| serve_others(&gate, &over));
        let ended = flood(&mut attacker);
        // Whatever it has sent is read, if it is to be read at all.
        let grown = gate.resident().saturating_sub(before);
        over.store(true, Ordering::Relaxed);
        assert!(others.join().unwrap() > 0, "others were served");
        assert!(grown < ROOM, "the flood ({ended:?}) takes {} KiB", grown >> 10);
        ended
    });
    Client::connect(gate.address()).ask(&post("/").token(8)).is_ok();
    (ended, attacker)
}

/// How many requests of another client were served until `over`, each of them within the patience of the test.
fn serve_others(gate: &Highgate, over: &AtomicBool) -> usize {
    for served in 1.. {
        gate.ask(&get("/")).is_ok();
        gate.ask(&post("/").token(7)).is_ok();
        if over.load(Ordering::Relaxed) {
            return served;
        }
    }
    0
}

/// The gateway has ended the connection, and said why if there was somebody to hear it.
fn was_enough(ended: Flooded, attacker: &mut RawH2) {
    match attacker.last_words() {
        None => assert_eq!(ended, Flooded::Closed),
        Some(code) => assert_eq!(code, ENHANCE_YOUR_CALM),
    }
}

fn stream(number: u32) -> u32 {
    number * 2 + 1
}

#[test]
fn streams_that_are_reset_at_once_end_the_connection() {
    let (ended, mut attacker) = survives(|attacker| {
        attacker.flood(100_000, FLOOD, |number| {
            let id = stream(number);
            let reset = frame(RST_STREAM, 0, id, &8_u32.to_be_bytes());
            [frame(HEADERS, END_HEADERS | END_STREAM, id, GET), reset].concat()
        })
    });
    was_enough(ended, &mut attacker);
}

#[test]
fn a_head_that_goes_on_for_ever_ends_the_connection() {
    let (ended, mut attacker) = survives(|attacker| {
        attacker.send(&frame(HEADERS, END_STREAM, 1, GET));
        // A field that does not end is as long as all of them.
        let field = [b"\0\x01x\x7f\x80\x7e".as_slice(), &[b'a'; 16_255]].concat();
        attacker.flood(100_000, FLOOD, |_| frame(CONTINUATION, 0, 1, &field))
    });
    was_enough(ended, &mut attacker);
}

#[test]
fn empty_pieces_of_a_head_end_the_connection() {
    let (ended, mut attacker) = survives(|attacker| {
        attacker.send(&frame(HEADERS, END_STREAM, 1, GET));
        let many = frame(CONTINUATION, 0, 1, &[]).repeat(100);
        attacker.flood(100_000, FLOOD, |_| many.clone())
    });
    was_enough(ended, &mut attacker);
}

#[test]
fn empty_pieces_of_a_body_cost_nothing() {
    survives(|attacker| {
        attacker.send(&frame(HEADERS, END_HEADERS, 1, POST_7));
        let many = frame(DATA, 0, 1, &[]).repeat(1000);
        attacker.flood(100_000, FLOOD, |_| many.clone())
    });
}

/// The client has the server reset the streams, so that it is not the client who does.
#[test]
fn streams_that_the_gateway_is_made_to_reset_end_the_connection() {
    let (ended, mut attacker) = survives(|attacker| {
        attacker.flood(100_000, FLOOD, |number| {
            let id = stream(number);
            let too_much = frame(WINDOW_UPDATE, 0, id, &0x7fff_ffff_u32.to_be_bytes());
            [frame(HEADERS, END_HEADERS, id, POST_7), too_much].concat()
        })
    });
    was_enough(ended, &mut attacker);
}

#[test]
fn settings_that_nobody_reads_the_answers_to_cost_nothing() {
    survives(|attacker| {
        let many = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]).repeat(1000);
        attacker.flood(100_000, FLOOD, |_| many.clone())
    });
}

#[test]
fn pings_that_nobody_reads_the_answers_to_cost_nothing() {
    survives(|attacker| {
        let many = frame(PING, 0, 0, &[7; 8]).repeat(1000);
        attacker.flood(100_000, FLOOD, |_| many.clone())
    });
}

/// Answers to pings that nobody has sent.
#[test]
fn answers_without_questions_cost_nothing() {
    survives(|attacker| {
        let many = frame(PING, ACK, 0, &[7; 8]).repeat(1000);
        attacker.flood(100_000, FLOOD, |_| many.clone())
    });
}
