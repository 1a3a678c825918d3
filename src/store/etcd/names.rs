//! The names of resources in etcd: announced by the gateway whose config changes first, finished by any.
//!
//! A gateway puts its own names down before it joins (`load.rs`) and before a reload. Every gateway learns of new
//! names with the revision that puts them, and has its requests checked under them from then on.

use std::sync::Arc;

use highgate_elector::Resource;
use highgate_etcd::{Compare, Outcome};

use super::driver::{Driver, Report, Stage};
use super::link::Trouble;
use super::requests;
use super::session::Renaming;
use super::values::number;
use crate::config::{Naming, Rename};
use crate::names::{Names, NamesError};
use crate::replica::Revision;

/// What etcd takes in one request is 1.5 MiB.
const LONGEST: usize = 1 << 20;

impl Driver {
    /// The routes are about to be replaced by some that name resources like this.
    pub(super) fn rename(&mut self, own: Naming, reply: std::sync::mpsc::Sender<Result<(), NamesError>>) {
        let Stage::Inside(session) = &mut self.stage else {
            return drop(reply.send(Err(NamesError::Away)));
        };
        let (seen, names) = &session.names;
        let planned = match names.plan(&own) {
            Err(refused) => return drop(reply.send(Err(refused))),
            // This gateway takes back a change that it has. Everything under way has the names of before as well.
            Ok(None) if names.is_next(&self.shared.own_names.naming) && !names.is_next(&own) => {
                Names { next: None, ..(**names).clone() }
            }
            Ok(None) => {
                self.shared.own_names.naming = own;
                return drop(reply.send(Ok(())));
            }
            Ok(Some(planned)) => planned,
        };
        let request =
            requests::put_names(&self.link.keys, session.replica.era(), *seen, &planned, Vec::new());
        session.renaming = Some(Renaming { own, reply });
        let (link, number, reports) = (self.link.clone(), session.number, self.reports.clone());
        tokio::spawn(async move {
            let result = link.txn(request).await;
            let _ = reports.send(Report::Named { session: number, result });
        });
    }

    /// Names that were put arrive with the watch, like everybody else's; only a refusal is news.
    pub(super) fn named(&mut self, result: Result<Outcome, Trouble>) {
        let refused = match self.judge(result) {
            Some(answer) if answer.succeeded => return,
            Some(_) => NamesError::Overtaken,
            None => NamesError::Away,
        };
        if let Stage::Inside(session) = &mut self.stage
            && let Some(renaming) = session.renaming.take()
        {
            let _ = renaming.reply.send(Err(refused));
        }
    }

    /// From now on every request that is claimed has these names.
    pub(super) fn take_names(&mut self, revision: Revision, names: Names) {
        let names = Arc::new(names);
        (self.shared.own_names.changed)(revision, names.clone());
        self.known_names = Some(names.clone());
        self.saw_names_deleted = false;
        let Stage::Inside(session) = &mut self.stage else { return };
        session.names = (revision, names.clone());
        if let Some(renaming) = session.renaming.take_if(|renaming| names.knows(&renaming.own)) {
            self.shared.own_names.naming = renaming.own;
            let _ = renaming.reply.send(Ok(()));
        }
    }

    /// Where one name becomes many, the marks that the many start from have to be what they were when this was worked
    /// out: of the new names, only those that were written meanwhile have been raised along.
    fn unchanged_marks(&self, renames: &[Rename], known: Revision) -> Vec<Compare> {
        let keys = &self.link.keys;
        let unchanged = |rename: &Rename| match Resource::parse(&rename.old_names().to_string()) {
            Ok(name) => Compare::changed_before(keys.fence(&name), number(known) + 1),
            Err(_) => Compare::changed_before(keys.fences(), number(known) + 1).of_all_below(),
        };
        renames.iter().filter(|rename| rename.splits()).map(unchanged).collect()
    }

    /// Nothing is under way any more, anywhere, that lacks the new names.
    pub(super) fn finish_names(&mut self, seen: Revision) {
        let Stage::Inside(session) = &self.stage else { return };
        let (known, names) = &session.names;
        if *known != seen || !names.given_up(session.replica.frozen()).is_empty() {
            // What is frozen under its old name stays so: that name is in force until it is thawed.
            return;
        }
        let finished = names.finished(session.replica.marks());
        if finished.encode().len() > LONGEST {
            let floors = finished.floors.len();
            tracing::warn!(
                floors,
                "more resources were renamed than etcd takes at once: both names stay in force"
            );
            return;
        }
        let unchanged = self.unchanged_marks(&names.renames(), session.replica.watermark());
        let era = session.replica.era();
        self.send(requests::put_names(&self.link.keys, era, seen, &finished, unchanged));
    }
}
