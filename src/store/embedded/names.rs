//! The names of resources in the embedded store: agreed upon at a start, changed by a reload.
//!
//! After a clean end nothing is under way, so a config that names resources differently comes into force at once at the
//! next start, with the marks carried over. After an unclean one, and at a reload, it goes by way of both names until
//! nothing can be under way that was admitted before. An operator's freeze of an old name keeps it in force.

use std::sync::Arc;

use super::driver::Driver;
use super::file::{File, Found, OpenError};
use crate::config::Naming;
use crate::names::{Names, NamesError};
use crate::replica::{Applied, Change, Input, Revision};
use crate::store::{OwnNames, StoreFailed};

/// The names in force, and who is told when they change.
pub(super) struct NamesInForce {
    pub(super) names: Arc<Names>,
    revision: Revision,
    own: OwnNames,
}

/// Brings this process's names into force, before anything is served.
pub(super) fn agree(file: &mut File, found: &mut Found, own: OwnNames) -> Result<NamesInForce, OpenError> {
    let names = at_start(found, &own.naming).map_err(|source| file.names_error(source))?;
    if found.names.as_ref() != Some(&names) {
        file.put_names(&names).map_err(|failed| OpenError::Join(Box::new(failed.into())))?;
        found.revision = file.revision();
    }
    found.names_pending = names.next.is_some().then_some(found.revision);
    let names = Arc::new(names);
    (own.changed)(found.revision, names.clone());
    Ok(NamesInForce { names, revision: found.revision, own })
}

fn at_start(found: &Found, own: &Naming) -> Result<Names, NamesError> {
    let Some(names) = &found.names else { return Ok(Names::first(own)) };
    let names = match &names.next {
        // A change that this process does not go on with. Whatever was under way had the names of before as well.
        Some(_) if !names.is_next(own) => Names { next: None, ..names.clone() },
        _ => names.clone(),
    };
    let names = names.plan(own)?.unwrap_or(names);
    let frozen =
        found.records.iter().filter(|(_, record)| record.frozen).map(|(resource, _)| resource.as_str());
    if found.inherited_delay.is_some() || !names.given_up(frozen).is_empty() {
        return Ok(names);
    }
    let marks = found.records.iter().map(|(resource, record)| (resource.as_str(), record.token));
    Ok(names.finished(marks))
}

impl Driver {
    /// The routes are about to be replaced by some that name resources like this.
    pub(super) fn rename(&mut self, own: Naming) -> Result<Result<(), NamesError>, StoreFailed> {
        let names = &self.names.names;
        let planned = if names.next.is_some() && names.current.begins_with(&own) {
            // The change is taken back. Everything under way has the names of before as well.
            Some(Names { next: None, ..(**names).clone() })
        } else {
            match names.plan(&own) {
                Ok(planned) => planned,
                Err(refused) => return Ok(Err(refused)),
            }
        };
        if let Some(planned) = planned {
            self.put_names(planned)?;
        }
        Ok(Ok(()))
    }

    /// Nothing is under way any more that lacks the new names.
    pub(super) fn finish_names(&mut self, seen: Revision) -> Result<(), StoreFailed> {
        if self.names.revision != seen || !self.names.names.given_up(self.frozen()).is_empty() {
            return Ok(());
        }
        let finished = self.names.names.finished(self.marks());
        self.put_names(finished)
    }

    fn put_names(&mut self, names: Names) -> Result<(), StoreFailed> {
        self.file.put_names(&names)?;
        let revision = self.file.revision();
        let pending = names.next.is_some();
        let names = Arc::new(names);
        self.names.names = names.clone();
        self.names.revision = revision;
        (self.names.own.changed)(revision, names);
        let changes = vec![Change::Names { pending }];
        self.step(Input::Applied(Applied { revision, seq: Some(revision), changes }))
    }
}
