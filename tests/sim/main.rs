//! Whole gateways and electors in one process, in virtual time, over the real protocol machine and the real ledger.
//!
//! A run is a function of its seed: faults, clients and operators do what the seed says, a judge that sees everything
//! says whether the promise was kept, and after the trouble everything has to open again. The rules that are broken
//! on purpose (`control.rs`) have to be caught. Everything else is in [`command`]'s help.

mod batch;
mod catch;
mod clients;
mod clock;
mod command;
mod control;
mod dice;
mod driver;
mod elector;
mod etcd;
mod faults;
mod flights;
mod hooks;
mod host;
mod judge;
mod life;
mod naming;
mod operators;
mod plan;
mod tally;
mod trace;
mod values;
mod wire;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run(std::env::args().skip(1))
}
