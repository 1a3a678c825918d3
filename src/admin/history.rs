//! Who led when: `GET /v1/history?resource=R[&since=T][&limit=N][&before=TOKEN]`, from the journal of this gateway.
//!
//! An answer is a part of the history, the newest first of all: the gateway never has more than `limit` rows in memory.
//! Whoever wants everything asks for what is before `next` until there is none.

use std::io;
use std::thread;
use std::time::SystemTime;

use highgate_elector::{Resource, timestamp};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::answer::{Answer, Problem, as_json};
use super::caller::Caller;
use super::resources::unknown;
use super::{Server, query};
use crate::journal::{History, Raise, Reign, Term, Wanted, parse_since};

/// The terms that reach into the time asked for, and the raises without an election, the oldest first.
pub(super) async fn show(server: &Server, caller: &Caller, query: Option<&str>) -> Result<Answer, Problem> {
    let missing = || query::bad_request("the parameter resource says whose history".to_owned());
    let resource = query::resource(query, "resource")?.ok_or_else(missing)?;
    caller.check(&resource)?;
    let since = query::parameter(query, "since")?.map(|text| {
        parse_since(&text, SystemTime::now()).map_err(|error| query::bad_request(format!("since: {error}")))
    });
    let since = since.transpose()?.unwrap_or(SystemTime::UNIX_EPOCH);
    let wanted = Wanted { since, before: before(query)?, limit: query::limit(query)? };
    let history = read(server, resource.clone(), wanted).await.map_err(|error| failed(&error))?;
    let nothing = history.terms.is_empty() && history.raises.is_empty();
    if nothing && wanted.before.is_none() && server.admin.store.ledger().get(resource.as_str()).is_none() {
        return Err(unknown(&resource));
    }
    let History { terms, raises, next } = history;
    let name = resource.as_str();
    Ok(as_json(&json!({
        "resource": name,
        "terms": terms.iter().map(|term| view(name, term)).collect::<Vec<_>>(),
        "raises": raises.iter().map(|raise| view_raise(name, raise)).collect::<Vec<_>>(),
        "more": next.is_some(),
        "next": next,
    })))
}

fn before(query: Option<&str>) -> Result<Option<u64>, Problem> {
    let Some(text) = query::parameter(query, "before")? else { return Ok(None) };
    let token = text.parse().ok().filter(|token| *token > 0);
    let bad = || {
        query::bad_request(format!("before is a token, as \"next\" of the part before says it, not {text:?}"))
    };
    token.map(Some).ok_or_else(bad)
}

/// On a thread of its own: a slow disk must not keep probes and operators waiting.
async fn read(server: &Server, resource: Resource, wanted: Wanted) -> io::Result<History> {
    // A history is read from the disk, as a whole: one after the other is fast enough for people. The turn is the
    // thread's: whoever hangs up does not end it.
    let turn = server.histories.clone().acquire_owned().await;
    let journal = server.admin.journal.clone();
    let (tell, told) = oneshot::channel();
    thread::Builder::new().name("history-read".into()).spawn(move || {
        // Whoever asked may be gone.
        let _ = tell.send(journal.history(&resource, wanted));
        drop(turn);
    })?;
    told.await.unwrap_or_else(|_| Err(io::Error::other("its reader ended")))
}

fn view(resource: &str, term: &Term) -> Value {
    let Term { reign: Reign { token, holder, from, found }, until, ended_by } = term;
    json!({
        "resource": resource,
        "token": token,
        "holder": holder,
        "from": timestamp::format(*from),
        "found": found,
        "until": until.map(timestamp::format),
        "ended_by": ended_by.map(|why| why.as_str()),
    })
}

fn view_raise(resource: &str, raise: &Raise) -> Value {
    let Raise { at, from, to } = raise;
    json!({ "resource": resource, "at": timestamp::format(*at), "token": to, "from": from })
}

fn failed(error: &io::Error) -> Problem {
    let detail = format!("the history cannot be read: {error}; see the folder history in the data folder");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
}
