//! The access log: one line an answer, with resource, token, decision and upstream time.

use std::rc::Rc;

use http::{Method, StatusCode};
use tracing::Level;

use super::{Refusal, Story, table};
use crate::config::AccessLog;
use crate::gate::Inbound;
use crate::gate::accept::Conduct;

/// What a line needs of a request that will be gone by the time it is answered.
pub(super) struct Line {
    wanted: AccessLog,
    head: Option<(Method, String)>,
    client: Rc<Conduct>,
}

impl Line {
    pub(super) fn of(request: &Inbound, client: &Rc<Conduct>, wanted: AccessLog) -> Self {
        let head =
            (wanted != AccessLog::Off).then(|| (request.method().clone(), request.uri().path().to_owned()));
        Self { wanted, head, client: client.clone() }
    }

    pub(super) fn write(&self, status: StatusCode, story: &Story, refusal: Option<&Refusal>) {
        let Some((method, path)) = &self.head else { return };
        if refusal.is_none() && self.wanted == AccessLog::Refused {
            return;
        }
        let (decision, reason) = match refusal {
            Some(refusal) => (table::decision(refusal), table::reason(refusal)),
            None => (story.decision, story.reason()),
        };
        // The level has to be known to the macro, so each has its own line.
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    target: "access",
                    $level,
                    client = %self.client.peer(),
                    %method,
                    path,
                    status = status.as_u16(),
                    route = story.route.as_ref().map(|route| &*route.name),
                    resource = story.resource.as_ref().map(|resource| resource.as_str()),
                    token = story.token.map(|token| token.get()),
                    decision = decision.label(),
                    reason,
                    upstream_ms = story.upstream.map(|took| took.as_secs_f64() * 1e3),
                )
            };
        }
        match refusal.map(|refusal| table::verdict(refusal).level) {
            Some(Level::WARN) => line!(Level::WARN),
            _ => line!(Level::INFO),
        }
    }
}
