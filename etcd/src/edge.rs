//! The edge to etcd: the calls that `etcd-client` makes for us, on one connection and with one login.
//!
//! Only this module and [`translate`] below it know that crate's types; everything else speaks the words of
//! [`crate::txn`] and [`crate::answer`]. It asks one node, once: which node that is, how long it may take and what is
//! tried again is up to [`crate::client`], since `etcd-client` reconnects, but goes on asking a node that is dead.

mod translate;

use std::error::Error;
use std::sync::Arc;

use etcd_client::{AlarmAction, AlarmType, Channel, ConnectOptions, LeaseGrantOptions, WatchOptions};
use http::HeaderValue;
use tonic::{Code, Status};
use tower::{BoxError, ServiceExt, util::BoxCloneSyncService};

use self::translate::{alarm, event, get, granted, header, listing, outcome, transaction};
use crate::answer::{Alarm, Event, Granted, Listing, Outcome, Room};
use crate::client::CallError;
use crate::txn::{Range, Txn};

/// An answer that is larger is not taken.
pub(crate) const LARGEST_ANSWER: usize = 64 << 20;

/// What a request shows; None where etcd wants nothing.
pub(crate) type AuthToken = Option<HeaderValue>;

/// One connection, with what its requests show. Clones share it.
#[derive(Clone)]
pub(crate) struct Edge {
    client: Arc<etcd_client::Client>,
}

/// What etcd says on a watch.
pub(crate) struct Told {
    pub(crate) events: Vec<Event>,
    /// What comes next is compacted away.
    pub(crate) compacted: bool,
    /// Why there is no more.
    pub(crate) cancelled: Option<String>,
}

/// An open watch.
pub(crate) struct Stream(etcd_client::WatchStream);

impl Edge {
    /// No I/O yet.
    pub(crate) async fn over(
        channel: tonic::transport::Channel,
        token: AuthToken,
    ) -> Result<Self, CallError> {
        // A node that lost its cluster says so at once instead of waiting for it.
        let options = ConnectOptions::new().with_require_leader(true);
        let channel = match token {
            None => Channel::Tonic(channel),
            Some(token) => show(channel, token),
        };
        // It would log in here, if it had a user: our logins are shared by all connections.
        let client = etcd_client::Client::from_channel(channel, Some(options)).await.map_err(judge)?;
        Ok(Self { client: Arc::new(client) })
    }

    pub(crate) async fn range(self, range: Range) -> Result<Listing, CallError> {
        let (key, options) = get(range);
        let answer = self.kv().get(key, Some(options)).await.map_err(judge)?.0;
        Ok(listing(header(answer.header)?, answer.kvs, answer.more))
    }

    pub(crate) async fn txn(self, txn: Txn) -> Result<Outcome, CallError> {
        let answer = self.kv().txn(transaction(txn)).await.map_err(judge)?.0;
        outcome(header(answer.header)?, answer)
    }

    pub(crate) async fn grant(self, id: i64, ttl: i64) -> Result<Granted, CallError> {
        let options = LeaseGrantOptions::new().with_id(id);
        let answer = self.client.lease_client().grant(ttl, Some(options)).await.map_err(judge)?.0;
        Ok(granted(answer.ttl, answer.header))
    }

    pub(crate) async fn keep_alive(self, id: i64) -> Result<Granted, CallError> {
        let (mut keeper, mut answers) = match self.client.lease_client().keep_alive(id).await {
            Err(etcd_client::Error::LeaseKeepAliveError(why)) if why == "lease not found" => {
                return Ok(Granted::default());
            }
            opened => opened.map_err(judge)?,
        };
        // The first answer only says that the lease lives. How long, and in which term, is in the second.
        keeper.keep_alive().await.map_err(judge)?;
        let answer = answers.message().await.map_err(judge)?;
        let answer = answer.ok_or_else(|| unavailable("the stream ended without an answer"))?.0;
        Ok(granted(answer.ttl, answer.header))
    }

    pub(crate) async fn revoke(self, id: i64) -> Result<(), CallError> {
        self.client.lease_client().revoke(id).await.map(drop).map_err(judge)
    }

    pub(crate) async fn granted(self, id: i64) -> Result<Granted, CallError> {
        let answer = self.client.lease_client().time_to_live(id, None).await.map_err(judge)?.0;
        Ok(granted(answer.granted_ttl, answer.header))
    }

    pub(crate) async fn compact(self, revision: i64) -> Result<(), CallError> {
        self.kv().compact(revision, None).await.map(drop).map_err(judge)
    }

    pub(crate) async fn room(self) -> Result<Room, CallError> {
        let status = self.client.maintenance_client().status().await.map_err(judge)?.0;
        Ok(Room { size: status.db_size, used: status.db_size_in_use, quota: status.db_size_quota })
    }

    pub(crate) async fn alarms(self) -> Result<Vec<Alarm>, CallError> {
        let ask = (AlarmAction::Get, AlarmType::None);
        let answer = self.client.maintenance_client().alarm(ask.0, ask.1, None).await.map_err(judge)?.0;
        Ok(answer.alarms.iter().filter_map(|raised| alarm(raised.alarm)).collect())
    }

    /// A token for the connections to come. None: etcd wants none.
    pub(crate) async fn log_in(self, user: String, password: String) -> Result<AuthToken, CallError> {
        let answer = match self.client.auth_client().authenticate(user, password).await.map_err(judge) {
            Err(CallError::Refused(detail)) if detail.contains("authentication is not enabled") => {
                return Ok(None);
            }
            answer => answer?,
        };
        let token = HeaderValue::from_str(answer.token());
        token.map(Some).map_err(|_| CallError::Refused("the login's token is not ASCII".to_owned()))
    }

    /// From this revision on.
    pub(crate) async fn watch(
        self,
        key: Vec<u8>,
        range_end: Vec<u8>,
        revision: i64,
    ) -> Result<Stream, CallError> {
        let options = WatchOptions::new().with_range(range_end).with_start_revision(revision);
        let mut client = self.client.watch_client().max_decoding_message_size(LARGEST_ANSWER);
        client.watch(key, Some(options)).await.map(Stream).map_err(judge)
    }

    fn kv(&self) -> etcd_client::KvClient {
        self.client.kv_client().max_decoding_message_size(LARGEST_ANSWER)
    }
}

impl Stream {
    /// None: it has ended. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        let answer = self.0.message().await.ok().flatten()?.0;
        Some(Told {
            events: answer.events.into_iter().filter_map(event).collect(),
            compacted: answer.compact_revision > 0,
            cancelled: answer.canceled.then_some(answer.cancel_reason),
        })
    }

    /// Asks for a sign of life. False: it has ended.
    pub(crate) async fn ask_for_progress(&mut self) -> bool {
        self.0.request_progress().await.is_ok()
    }
}

/// The channel with a token on every request. `etcd-client` has one of its own, but only sets it by logging in itself.
fn show(channel: tonic::transport::Channel, token: HeaderValue) -> Channel {
    let channel =
        channel.map_err(BoxError::from).map_request(move |mut request: http::Request<tonic::body::Body>| {
            request.headers_mut().insert("token", token.clone());
            request
        });
    Channel::Custom(BoxCloneSyncService::new(channel))
}

/// What an error of the client means for the caller.
fn judge(error: etcd_client::Error) -> CallError {
    match error {
        etcd_client::Error::GRpcStatus(status) => judge_status(&status),
        error => CallError::Unavailable(error.to_string()),
    }
}

/// What a status of etcd or of the channel means for the caller.
fn judge_status(status: &Status) -> CallError {
    let message = status.message();
    match status.code() {
        Code::NotFound if message.contains("lease not found") => CallError::LeaseNotFound,
        Code::FailedPrecondition if message.contains("lease already exists") => CallError::LeaseExists,
        Code::OutOfRange if message.contains("compacted") => CallError::Compacted,
        Code::OutOfRange if message.contains("future revision") => CallError::NotReached,
        // The channel's own word: etcd has answered, with more than is taken at once.
        Code::OutOfRange if message.contains("message length too large") => CallError::TooLarge,
        Code::Unauthenticated => CallError::TokenRefused,
        Code::InvalidArgument
            if message.contains("auth store is old") || message.contains("user name is empty") =>
        {
            CallError::TokenRefused
        }
        Code::InvalidArgument | Code::PermissionDenied | Code::FailedPrecondition | Code::Unimplemented => {
            CallError::Refused(message.to_owned())
        }
        _ => CallError::Unavailable(with_causes(status)),
    }
}

/// What the status says and, where the channel failed, what that was caused by.
fn with_causes(status: &Status) -> String {
    let mut line = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line.push_str(&format!(": {text}"));
        }
        cause = error.source();
    }
    line
}

fn unavailable(why: &str) -> CallError {
    CallError::Unavailable(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_never_works_is_a_refusal() {
        let judged = |code, message: &str| judge(etcd_client::Error::GRpcStatus(Status::new(code, message)));
        let refused = |message: &str| CallError::Refused(message.to_owned());
        assert_eq!(judged(Code::PermissionDenied, "no"), refused("no"));
        assert_eq!(judged(Code::InvalidArgument, "too many operations"), refused("too many operations"));
        assert_eq!(judged(Code::NotFound, "etcdserver: requested lease not found"), CallError::LeaseNotFound);
        let future = "etcdserver: mvcc: required revision is a future revision";
        assert_eq!(judged(Code::OutOfRange, future), CallError::NotReached);
        let large = "Error, decoded message length too large: found 70 bytes, the limit is: 60 bytes";
        assert_eq!(judged(Code::OutOfRange, large), CallError::TooLarge);
        assert_eq!(judged(Code::Unauthenticated, "invalid auth token"), CallError::TokenRefused);
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Unknown, Code::ResourceExhausted] {
            assert!(matches!(judged(code, "later"), CallError::Unavailable(_)), "{code:?}");
        }
    }
}
