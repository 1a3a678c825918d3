//! What the demo prints: a timeline of who did what, and what the ledger holds.
//!
//! Plain text; a terminal also gets colours, unless `NO_COLOR` is set. Nothing here panics on a closed pipe:
//! the error goes up, and the leaders end with the demo.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use super::ledger::{Record, is_stale};

const RESET: &str = "\x1b[0m";

/// How a line is meant.
#[derive(Clone, Copy)]
pub(super) enum Tone {
    Plain,
    Heading,
    Good,
    Bad,
}

pub(super) struct Timeline {
    start: Instant,
    colours: bool,
}

impl Timeline {
    /// Its clock starts now.
    pub(super) fn start() -> Self {
        let colours = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { start: Instant::now(), colours }
    }

    pub(super) fn line(&self, text: &str) -> io::Result<()> {
        self.toned(Tone::Plain, text)
    }

    pub(super) fn heading(&self, text: &str) -> io::Result<()> {
        self.line("")?;
        self.toned(Tone::Heading, &text.to_uppercase())?;
        self.toned(Tone::Heading, "  time  who        what")
    }

    /// Something happens now.
    pub(super) fn say(&self, actor: &str, what: &str) -> io::Result<()> {
        self.say_toned(Tone::Plain, actor, what)
    }

    pub(super) fn say_toned(&self, tone: Tone, actor: &str, what: &str) -> io::Result<()> {
        let seconds = self.start.elapsed().as_secs_f64();
        self.toned(tone, &format!("{seconds:>6.2}  {actor:<9}  {what}"))
    }

    /// More about what was said last.
    pub(super) fn more(&self, what: &str) -> io::Result<()> {
        self.line(&format!("{:19}{what}", ""))
    }

    /// What the ledger holds, a stale write marked.
    pub(super) fn table(&self, records: &[Record]) -> io::Result<()> {
        self.line("")?;
        self.line("        The ledger now holds")?;
        self.line("        order  arrived  token  who        payment")?;
        for (index, record) in records.iter().enumerate() {
            let Record { token, who, invoice, arrived } = record;
            let arrived = arrived.duration_since(self.start).as_secs_f64();
            let token = token.map_or_else(|| "none".to_owned(), |token| token.to_string());
            let row = format!("{:>13}  {arrived:>7.2}  {token:>5}  {who:<9}  {invoice}", index + 1);
            if is_stale(records, index) {
                self.toned(Tone::Bad, &format!("{row}  <- stale: paid twice"))?;
            } else {
                self.line(&row)?;
            }
        }
        Ok(())
    }

    pub(super) fn toned(&self, tone: Tone, text: &str) -> io::Result<()> {
        let mut output = io::stdout().lock();
        match tone.colour() {
            Some(colour) if self.colours => writeln!(output, "{colour}{text}{RESET}"),
            _ => writeln!(output, "{text}"),
        }
    }
}

impl Tone {
    fn colour(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Heading => Some("\x1b[1m"),
            Self::Good => Some("\x1b[1;32m"),
            Self::Bad => Some("\x1b[1;31m"),
        }
    }
}
