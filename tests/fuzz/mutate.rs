//! New inputs out of examples: small changes of bytes, words, numbers and lines; and failing inputs made smaller.

use super::dice::Dice;

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "00",
    "7",
    "-1",
    "255",
    "65535",
    "65536",
    "281474976710656",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "99999999999999999999",
    "1.5",
];
const WORDS: [&[u8]; 22] = [
    b"%",
    b"%2F",
    b"%2f",
    b"%25",
    b"%00",
    b"%c3%a9",
    b"/",
    b"//",
    b"..",
    b".",
    b" ",
    b"\r\n",
    b"\t",
    b"\0",
    b"\"",
    b"{",
    b"}",
    b"\\",
    b";",
    b"_",
    "é".as_bytes(),
    "İΣ".as_bytes(),
];
/// Longer ones only cost time.
const LONGEST: usize = 16_384;

/// An example after a few changes, or, seldom, as it is.
pub(crate) fn mutated(dice: &mut Dice, examples: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input = dice.pick(examples).clone();
    let changes = [0, 1, 1, 1, 1, 2, 2, 3, 5, 8];
    for _ in 0..*dice.pick(&changes) {
        change(dice, &mut input, examples, words);
    }
    input.truncate(LONGEST);
    input
}

fn change(dice: &mut Dice, input: &mut Vec<u8>, examples: &[Vec<u8>], words: &[&str]) {
    let at = dice.below(input.len() + 1);
    match dice.below(12) {
        0 => replace(input, at, 1, &[dice.byte()]),
        1 => replace(input, at, 0, &[dice.byte()]),
        2 => replace(input, at, dice.below(8), b""),
        3 => replace(input, at, 0, dice.pick::<&[u8]>(&WORDS)),
        4 | 5 if !words.is_empty() => replace(input, at, dice.below(3), dice.pick(words).as_bytes()),
        6 => number(dice, input),
        7 => flip_case(input, at),
        8 => escape(input, at),
        9 => repeat(dice, input, at),
        10 => splice(dice, input, at, examples),
        _ => lines(dice, input),
    }
}

fn replace(input: &mut Vec<u8>, at: usize, length: usize, with: &[u8]) {
    let end = (at + length).min(input.len());
    input.splice(at.min(end)..end, with.iter().copied());
}

/// Puts another number in the place of one that is there.
fn number(dice: &mut Dice, input: &mut Vec<u8>) {
    let starts: Vec<usize> = (0..input.len())
        .filter(|at| input[*at].is_ascii_digit() && (*at == 0 || !input[at - 1].is_ascii_digit()))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = *dice.pick(&starts);
    let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    replace(input, start, length, dice.pick(&NUMBERS).as_bytes());
}

fn flip_case(input: &mut [u8], at: usize) {
    if let Some(byte) = input.get_mut(at).filter(|byte| byte.is_ascii_alphabetic()) {
        *byte ^= 0x20;
    }
}

fn escape(input: &mut Vec<u8>, at: usize) {
    if let Some(byte) = input.get(at).copied() {
        replace(input, at, 1, format!("%{byte:02x}").as_bytes());
    }
}

fn repeat(dice: &mut Dice, input: &mut Vec<u8>, at: usize) {
    let end = (at + dice.below(24)).min(input.len());
    let piece = input[at.min(end)..end].to_vec();
    let times = *dice.pick(&[1, 1, 2, 40]);
    replace(input, end, 0, &piece.repeat(times));
}

/// Goes on as another example does.
fn splice(dice: &mut Dice, input: &mut Vec<u8>, at: usize, examples: &[Vec<u8>]) {
    let other = dice.pick(examples);
    let from = dice.below(other.len() + 1);
    input.truncate(at);
    input.extend_from_slice(&other[from..]);
}

/// Takes a line away, doubles it or moves it.
fn lines(dice: &mut Dice, input: &mut Vec<u8>) {
    let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let line = lines.remove(dice.below(lines.len()));
    for _ in 0..dice.below(3) {
        lines.insert(dice.below(lines.len() + 1), line.clone());
    }
    *input = lines.join(&b'\n');
}

/// The smallest that still fails, of those without one piece or another.
pub(crate) fn shrink(input: &[u8], fails: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut smallest = input.to_vec();
    let mut piece = smallest.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < smallest.len() {
            let mut without = smallest.clone();
            replace(&mut without, at, piece, b"");
            if fails(&without) {
                smallest = without;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    smallest
}
