//! The command line: how many requests a second, and for how long.

use std::time::Duration;

pub(crate) struct Setting {
    /// Stale requests a second.
    pub(crate) rate: u32,
    pub(crate) duration: Duration,
    /// How often others are measured without the zombie, and with it elsewhere and here, one after the other.
    pub(crate) rounds: u32,
}

impl Setting {
    /// None: the arguments were not understood, and that was said.
    pub(crate) fn from_arguments() -> Option<Self> {
        let mut setting = Self { rate: 1000, duration: Duration::from_secs(3), rounds: 9 };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let value = match argument.as_str() {
                "--rate" | "--seconds" => arguments.next().and_then(|value| value.parse().ok()),
                // What `cargo test` passes on to every test.
                _ => continue,
            };
            let Some(value) = value else {
                eprintln!("usage: zombie [--rate REQUESTS_A_SECOND] [--seconds SECONDS]");
                return None;
            };
            match argument.as_str() {
                "--rate" => setting.rate = value,
                _ => {
                    setting.duration = Duration::from_secs(value.into());
                    setting.rounds = value.clamp(9, 15);
                }
            }
        }
        Some(setting)
    }
}
