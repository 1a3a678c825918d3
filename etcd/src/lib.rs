//! etcd, as the Highgate gateway and its elector use it.
//!
//! [`Client`] asks a cluster and fails over by itself, [`Watch`] hears of changes and stays up, and both speak in plain
//! values: a [`Txn`] of [`Compare`]s and [`Op`]s becomes an [`Outcome`], a [`Range`] a [`Listing`]. [`keys`] says where
//! things are below a prefix, [`fence`] what the gateways keep there, and [`url`] where the cluster is. Everything goes
//! through the crate `etcd-client`, whose types one private module translates.
//!
//! That crate generates code when it is built: outside of Highgate's own workspace it needs `protoc` on the PATH, or
//! another protobuf compiler that the variable PROTOC names.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer;
pub mod candidate;
mod client;
mod edge;
mod endpoint;
pub mod fence;
pub mod keys;
mod login;
mod txn;
pub mod url;
mod watch;

pub use answer::{Alarm, Answer, Event, EventKind, Granted, Header, KeyValue, Listing, Outcome, Room};
pub use client::{CallError, Client, OpenError};
pub use txn::{Compare, Delete, Op, Put, Range, Relation, Target, Txn, prefix_end};
pub use watch::{News, Watch, WatchError};
