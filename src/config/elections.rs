//! The table `[elections]`: the port of the jobs, which has a secret of its own.
//!
//! The port is there if the table is, or if the flag or the variable names its address. What must stay true: the
//! jobs' secret is never the operators', since the two would then be one right.

use std::net::SocketAddr;
use std::ops::Range;

use super::error::Report;
use super::raw::{RawPort, Section};
use super::scope::Scope;
use super::sections::{address, are_one, auth};
use super::{Admin, Elections, Overrides, keys};

const DEFAULT_PORT: u16 = 9902;

/// The port as it was read, and where in the file its keys are.
pub(super) struct Read {
    pub(super) port: Option<Elections>,
    address: Option<Range<usize>>,
    auth: Option<Range<usize>>,
}

pub(super) fn build(raw: Option<Section<RawPort>>, overrides: &Overrides, report: &mut Report<'_>) -> Read {
    if raw.is_none() && overrides.elections.is_none() {
        return Read { port: None, address: None, auth: None };
    }
    let raw = raw.map(Section::into_table).unwrap_or_default();
    let span_of_address = raw.address.as_ref().map(|address| address.span());
    let span_of_auth = raw.auth.as_ref().map(|auth| auth.span.clone());
    let scope = &mut Scope::new(report, "elections");
    let address = address(scope, raw.address, overrides.elections, DEFAULT_PORT);
    let port = Elections { address, auth: auth("elections.auth", raw.auth, report) };
    Read { port: Some(port), address: span_of_address, auth: span_of_auth }
}

impl Read {
    /// Holds it against the other ports.
    pub(super) fn check(&self, data: SocketAddr, admin: &Admin, report: &mut Report<'_>) {
        let Some(port) = &self.port else { return };
        for (name, other) in [("data", data), ("admin", admin.address)] {
            if are_one(port.address, other) {
                let what = format!("the elections port {} and the {name} port {other} are one", port.address);
                self.complain_of_address(what, report);
            }
        }
        if let (Some(span), true) = (&self.auth, port.auth.is_some() && port.auth == admin.auth) {
            let what = "it holds the secret of admin.auth: every job would be an operator";
            report.add(span.clone(), "elections.auth.bearer_file".to_owned(), what);
        }
    }

    fn complain_of_address(&self, what: String, report: &mut Report<'_>) {
        let key = "elections.address";
        match &self.address {
            Some(span) => report.add(span.clone(), key.to_owned(), what),
            None => report.add_flag("--elections", what, keys::allowed(key).unwrap_or_default()),
        }
    }
}
