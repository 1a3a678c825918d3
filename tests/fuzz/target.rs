//! What is tried: every target with its examples and its properties.

use super::dice::Dice;
use super::{claims, config, gate, keys, mutate, proxy, routes, signed, threads, tokens, values};

pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// What is said of the inputs that were accepted.
    pub(crate) accepted: &'static str,
    /// Good and bad ones.
    pub(crate) examples: Vec<Vec<u8>>,
    /// What may be put into an input.
    pub(crate) words: &'static [&'static str],
    /// Says what is wrong, if a property does not hold.
    pub(crate) check: fn(&[u8]) -> Result<Answer, String>,
    /// Whether an input always has the same end.
    pub(crate) exact: bool,
}

/// What became of an input for which all properties hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Accepted,
    Refused,
}

pub(crate) fn all() -> Vec<Target> {
    let parsers = [tokens::target(), keys::names(), keys::keys(), proxy::target()];
    let signed = [signed::tokens(), signed::keys()];
    let grammar = [routes::paths(), routes::hosts(), routes::patterns()];
    let wholes = [claims::target(), config::target(), values::target(), gate::target(), threads::target()];
    parsers.into_iter().chain(signed).chain(grammar).chain(wholes).collect()
}

impl Target {
    pub(crate) fn input(&self, dice: &mut Dice) -> Vec<u8> {
        mutate::mutated(dice, &self.examples, self.words)
    }
}

impl Answer {
    /// `accepted` or not.
    pub(crate) fn of(accepted: bool) -> Self {
        if accepted { Self::Accepted } else { Self::Refused }
    }
}

pub(crate) fn texts(examples: &[&str]) -> Vec<Vec<u8>> {
    examples.iter().map(|example| example.as_bytes().to_vec()).collect()
}

/// A property.
pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Another spelling of a path or a name: letters and digits escaped, here and there, by turns in both cases.
pub(crate) fn respelled(text: &str) -> String {
    let mut respelled = String::new();
    let mut bytes = text.chars();
    while let Some(character) = bytes.next() {
        match character {
            '%' => {
                respelled.push('%');
                respelled.extend(bytes.by_ref().take(2));
            }
            'b' | 'k' | 'z' | '1' | '7' | 'O' => {
                respelled.push_str(&format!("%{:02x}", u32::from(character)));
            }
            'j' | 'l' | 'o' | '-' => respelled.push_str(&format!("%{:02X}", u32::from(character))),
            other => respelled.push(other),
        }
    }
    respelled
}
