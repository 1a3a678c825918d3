//! The run-once ledger in the redb file. Entries are found by resource and key, and by their age, so that old ones go
//! without a search: every step takes a few of them along.

use std::ops::Bound;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use highgate_elector::{Resource, Token};
use redb::{
    ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError, WriteTransaction,
};

use super::driver::Driver;
use super::file::{CommitError, File};
use crate::elections::NotHeld;
use crate::store::StoreFailed;
use crate::store::once::{OnceEntry, OnceOrder, Place, Question, Wanted};

/// Resource and key to (completed, token, milliseconds since 1970, holder).
const ENTRIES: TableDefinition<(&str, &str), Value> = TableDefinition::new("once-by-resource");
/// Milliseconds since 1970, resource and key of every entry.
const AGES: TableDefinition<(u64, &str, &str), ()> = TableDefinition::new("once-by-age");

/// How many old entries a step removes at the most. More than one, so that the ledger shrinks under load, too.
const MAX_PRUNED: usize = 64;

type Value = (bool, u64, u64, &'static str);
type SavedEntries = ReadOnlyTable<(&'static str, &'static str), Value>;
type Entries<'t> = Table<'t, (&'static str, &'static str), Value>;
type Ages<'t> = Table<'t, (u64, &'static str, &'static str), ()>;

impl Driver {
    pub(super) fn answer_once(&mut self, question: Question) -> Result<(), StoreFailed> {
        // Whoever asked may be gone.
        match question {
            Question::Step { order, reply } => drop(reply.send(self.step_once(&order)?)),
            Question::List { wanted, reply } => drop(reply.send(self.file.list_once(&wanted)?)),
            Question::Show { place, reply } => drop(reply.send(self.file.once(&place)?)),
            Question::Reset { place, reply } => drop(reply.send(self.file.reset_once(&place)?)),
            Question::Keep { age } => self.keep_once = age,
        }
        Ok(())
    }

    /// A leader's step, on disk before it is answered.
    fn step_once(&mut self, order: &OnceOrder) -> Result<Result<OnceEntry, NotHeld>, StoreFailed> {
        let term = match self.elections.held(&order.place.resource, order.lease, &order.actor) {
            Ok(term) => term,
            Err(not_held) => return Ok(Err(not_held)),
        };
        if let Some(entry) = self.file.once(&order.place)?.filter(|entry| entry.completed) {
            return Ok(Ok(entry));
        }
        let (holder, token) = (term.candidate.holder.clone(), term.token);
        let entry = OnceEntry { completed: order.complete, holder, token, at: SystemTime::now() };
        self.file.put_once(&order.place, &entry, self.keep_once)?;
        Ok(Ok(entry))
    }
}

impl File {
    pub(super) fn once(&self, place: &Place) -> Result<Option<OnceEntry>, CommitError> {
        let read = || {
            let Some(table) = self.read_once()? else { return Ok(None) };
            Ok(table.get(key(place))?.and_then(|value| entry(value.value())))
        };
        read().map_err(|source| self.commit_error(source))
    }

    pub(super) fn list_once(&self, wanted: &Wanted) -> Result<Vec<(Place, OnceEntry)>, CommitError> {
        let read = || {
            let Some(table) = self.read_once()? else { return Ok(Vec::new()) };
            let first = wanted.resource.as_ref().map_or("", |resource| resource.as_str());
            let start = wanted.after.as_ref().map_or(Bound::Included((first, "")), |after| {
                // Never before the resource that is asked for.
                Bound::Excluded(key(after).max((first, "")))
            });
            let mut found = Vec::new();
            for row in table.range::<(&str, &str)>((start, Bound::Unbounded))? {
                let (place, value) = row?;
                let (resource, key) = place.value();
                let past = wanted.resource.as_ref().is_some_and(|wanted| wanted.as_str() != resource);
                if past || found.len() >= wanted.limit {
                    break;
                }
                if let (Ok(resource), Some(entry)) = (Resource::parse(resource), entry(value.value())) {
                    found.push((Place { resource, key: key.to_owned() }, entry));
                }
            }
            Ok(found)
        };
        read().map_err(|source| self.commit_error(source))
    }

    /// Also forgets some of what is older than `keep`.
    pub(super) fn put_once(
        &self,
        place: &Place,
        entry: &OnceEntry,
        keep: Duration,
    ) -> Result<(), CommitError> {
        self.change_once(|entries, ages| {
            remove(entries, ages, place)?;
            let at = millis(entry.at);
            entries.insert(key(place), (entry.completed, entry.token.get(), at, entry.holder.as_str()))?;
            ages.insert((at, place.resource.as_str(), place.key.as_str()), ())?;
            prune(entries, ages, at.saturating_sub(keep.as_millis().try_into().unwrap_or(u64::MAX)))
        })
    }

    pub(super) fn reset_once(&self, place: &Place) -> Result<Option<OnceEntry>, CommitError> {
        let mut was = None;
        self.change_once(|entries, ages| {
            was = remove(entries, ages, place)?;
            Ok(())
        })?;
        Ok(was)
    }

    /// None of a file that never had an entry.
    fn read_once(&self) -> Result<Option<SavedEntries>, redb::Error> {
        match self.database().begin_read()?.open_table(ENTRIES) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn change_once(
        &self,
        change: impl FnOnce(&mut Entries<'_>, &mut Ages<'_>) -> Result<(), redb::Error>,
    ) -> Result<(), CommitError> {
        let both = |transaction: &WriteTransaction| {
            change(&mut transaction.open_table(ENTRIES)?, &mut transaction.open_table(AGES)?)
        };
        self.write(both).map_err(|source| self.commit_error(source))
    }
}

fn remove(
    entries: &mut Entries<'_>,
    ages: &mut Ages<'_>,
    place: &Place,
) -> Result<Option<OnceEntry>, redb::Error> {
    let Some(value) = entries.remove(key(place))? else { return Ok(None) };
    let (_, _, at, _) = value.value();
    ages.remove((at, place.resource.as_str(), place.key.as_str()))?;
    Ok(entry(value.value()))
}

/// Forgets the oldest of what was written before `limit`.
fn prune(entries: &mut Entries<'_>, ages: &mut Ages<'_>, limit: u64) -> Result<(), redb::Error> {
    for _ in 0..MAX_PRUNED {
        let Some((age, _)) = ages.first()? else { break };
        let (at, resource, key) = age.value();
        if at >= limit {
            break;
        }
        entries.remove((resource, key))?;
        drop(age);
        ages.pop_first()?;
    }
    Ok(())
}

fn key(place: &Place) -> (&str, &str) {
    (place.resource.as_str(), &place.key)
}

/// None of a token that cannot be: this program did not write it.
fn entry((completed, token, at, holder): (bool, u64, u64, &str)) -> Option<OnceEntry> {
    let at = UNIX_EPOCH + Duration::from_millis(at);
    Token::new(token).map(|token| OnceEntry { completed, holder: holder.to_owned(), token, at })
}

fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
