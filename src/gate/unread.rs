//! Reads what a refused request still has to send, for a while, and forgets it.
//!
//! A body that nobody reads ends its connection, or its stream with a reset, while the client is still sending: many
//! clients then never see the answer that says why. So the gate hands the bodies over that it refuses unread.

use std::time::Duration;

use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::respond::Refused;

/// How much of a body is read. Beyond, the client is cut off.
const MOST: usize = 1 << 20;
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(2);

impl Refused {
    /// Not where the connection ends with the answer, nor where the client has asked whether to send its body: reading
    /// would tell it to.
    pub(super) fn read_and_forget(&self, head: &HeaderMap, body: Incoming) {
        if !body.is_end_stream() && !self.closes_connection() && !head.contains_key(EXPECT) {
            tokio::task::spawn_local(tokio::time::timeout(PATIENCE, read(body)));
        }
    }
}

async fn read(mut body: Incoming) {
    let mut left = MOST;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, |data| data.len());
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
