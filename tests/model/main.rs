//! The protocol in every interleaving of small settings: stateright over the production machine and the production gate.
//!
//! An etcd, gateways, elections and an upstream with delayed effects are states; everything that can happen next is an
//! action. Time goes in ticks, half a validity each. Within a tick everything that is not harmed gets done, in any order;
//! what is late, lost or repeated is a fault, and a setting says how many of which kind there may be. Every state that
//! can be reached is judged. The rules that are broken on purpose (`control`) have to be caught.

mod action;
mod command;
mod control;
mod elections;
mod etcd;
mod explore;
mod faults;
mod flights;
mod gate;
mod gateway;
mod hooks;
mod judge;
mod kept;
mod naming;
mod setting;
mod sights;
mod time;
mod txn;
mod wire;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run(std::env::args().skip(1))
}
