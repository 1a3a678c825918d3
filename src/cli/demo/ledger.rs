//! The shared resource of the demo: a ledger that records every transfer it is sent, and checks nothing.
//!
//! `POST /transfer` records a payment with its token and the time of its arrival; `GET /transfers` tells which
//! invoices are paid. Like most services it knows nothing of fencing: that is the point.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use highgate_elector::{Token, headers};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::wire::{Server, json, status};

pub(super) const TRANSFER: &str = "/transfer";
pub(super) const TRANSFERS: &str = "/transfers";

/// A payment as it is sent.
#[derive(Serialize, Deserialize)]
pub(super) struct Transfer {
    pub(super) who: String,
    pub(super) invoice: String,
}

/// A payment that was made.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) token: Option<u64>,
    pub(super) who: String,
    pub(super) invoice: String,
    pub(super) arrived: Instant,
}

pub(super) struct Ledger {
    server: Server,
    records: Arc<Mutex<Vec<Record>>>,
}

impl Ledger {
    /// Starts with nothing in it.
    pub(super) async fn open() -> io::Result<Self> {
        let records = Arc::<Mutex<Vec<Record>>>::default();
        let server = Server::start({
            let records = records.clone();
            move |request| answer(&mut records.lock(), &request)
        });
        Ok(Self { server: server.await?, records })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// What was recorded, in the order of arrival.
    pub(super) fn records(&self) -> Vec<Record> {
        self.records.lock().clone()
    }
}

/// Whether a higher token had been recorded before.
pub(super) fn is_stale(records: &[Record], index: usize) -> bool {
    records[..index].iter().any(|earlier| earlier.token > records[index].token)
}

fn answer(records: &mut Vec<Record>, request: &Request<Bytes>) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::POST, TRANSFER) => {
            records.push(record(request));
            json(StatusCode::CREATED, &json!({ "recorded_as": records.len() }))
        }
        (&Method::GET, TRANSFERS) => {
            json(StatusCode::OK, &records.iter().map(|record| &record.invoice).collect::<Vec<_>>())
        }
        _ => status(StatusCode::NOT_FOUND),
    }
}

fn record(request: &Request<Bytes>) -> Record {
    let token = request.headers().get(headers::TOKEN).and_then(|value| Token::parse(value.as_bytes()).ok());
    // Whoever tries the ledger by hand need not send a payment's details.
    let Transfer { who, invoice } = serde_json::from_slice(request.body())
        .unwrap_or_else(|_| Transfer { who: "somebody".to_owned(), invoice: "a payment".to_owned() });
    Record { token: token.map(Token::get), who, invoice, arrived: Instant::now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(token: &str) -> Request<Bytes> {
        let body = Bytes::from(r#"{"who":"leader A","invoice":"invoice-1"}"#);
        let request = Request::post(TRANSFER).header(headers::TOKEN, token).body(body);
        request.expect("a valid request")
    }

    #[test]
    fn a_write_is_stale_once_a_higher_token_was_recorded() {
        let mut records = Vec::new();
        for token in ["33", "34", "33", "34"] {
            assert_eq!(answer(&mut records, &transfer(token)).status(), StatusCode::CREATED);
        }
        let stale: Vec<bool> = (0..4).map(|index| is_stale(&records, index)).collect();
        assert_eq!(stale, [false, false, true, false]);
    }

    #[test]
    fn a_transfer_by_hand_is_recorded_too() {
        let mut records = Vec::new();
        let request = Request::post(TRANSFER).body(Bytes::new()).expect("a valid request");
        assert_eq!(answer(&mut records, &request).status(), StatusCode::CREATED);
        assert_eq!((records[0].token, records[0].who.as_str()), (None, "somebody"));
    }
}
