//! The table `[elections]`: the port of the jobs, which has a secret of its own.
//!
//! The port is there if the table is, or if the flag or the variable names its address. What must stay true: the
//! jobs' secret is never the operators', since the two would then be one right.

use std::ops::Range;

use super::address::{Address, ELECTIONS};
use super::error::Report;
use super::raw::{RawPort, Section};
use super::secrets::auth;
use super::tls::{self, RawProtection};
use super::{Admin, Elections, Overrides};
use crate::tls::Protocols;

/// The port as it was read, and where in the file its secret is.
pub(super) struct Read {
    pub(super) port: Option<Elections>,
    address: Option<Address>,
    auth: Option<Range<usize>>,
}

pub(super) fn build(raw: Option<Section<RawPort>>, overrides: &Overrides, report: &mut Report<'_>) -> Read {
    if raw.is_none() && overrides.elections.is_none() {
        return Read { port: None, address: None, auth: None };
    }
    let raw = raw.map(Section::into_table).unwrap_or_default();
    let span_of_auth = raw.auth.as_ref().map(|auth| auth.span.clone());
    let address = ELECTIONS.read(raw.address, overrides.elections, report);
    let protection = RawProtection { tls: raw.tls, insecure: raw.insecure };
    let port = Elections {
        address: address.value,
        auth: auth("elections", raw.auth, report),
        tls: tls::build(protection, &address, Protocols::Http1, overrides, report),
    };
    Read { port: Some(port), address: Some(address), auth: span_of_auth }
}

impl Read {
    /// Holds it against the other ports.
    pub(super) fn check(&self, others: [&Address; 2], admin: &Admin, report: &mut Report<'_>) {
        let (Some(port), Some(address)) = (&self.port, &self.address) else { return };
        for other in others {
            address.check_apart(other, report);
        }
        if let (Some(span), true) = (&self.auth, port.auth.is_some() && port.auth == admin.auth) {
            let what = "it holds the secret of admin.auth: every job would be an operator";
            report.add(span.clone(), "elections.auth.bearer_file".to_owned(), what);
        }
    }
}
