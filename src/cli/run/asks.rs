//! The signals by which somebody asks `run` to end.
//!
//! Not SIGHUP: `nohup` would not hold. A terminal that hangs up ends `run` the hard way, and the guardian sees to
//! the command.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

pub(super) struct Asks {
    terminate: Signals,
    interrupt: Signals,
}

impl Asks {
    /// From now on, these signals do nothing but be heard.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next signal. Dropped halfway, it loses none.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
        }
    }
}
