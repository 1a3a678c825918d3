//! The redb file: records by resource, and what one process start leaves for the next.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use highgate_elector::{Resource, Token};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use crate::elections::{Candidate, Term};
use crate::names::{Names, NamesError};
use crate::replica::{Applied, Change, Incarnation, Input, Proposal, Record, Revision, State};

/// Resource name to (mark, revision of the last change, flags).
const RECORDS: TableDefinition<&str, (u64, u64, u8)> = TableDefinition::new("records");
/// Resource name to (token, lease, ttl in ms, holder) of who leads it.
const TERMS: TableDefinition<&str, (u64, u128, u64, &str)> = TableDefinition::new("terms");
/// Resource name to the token of who leads it and the identity that it campaigned with, where that is known.
const OWNERS: TableDefinition<&str, (u64, &str)> = TableDefinition::new("term-owners");
/// The document of names.
const NAMES: TableDefinition<&str, &str> = TableDefinition::new("names");
const DOCUMENT: &str = "names";
/// Facts about the store as a whole.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

const REVISION: &str = "revision";
/// 1 while no process has the store open and nothing of the last one can be under way.
const CLEAN: &str = "clean";
/// The longest lock-delay any process of this store has promised since the last clean end.
const LOCK_DELAY_MS: &str = "lock-delay-ms";

/// The highest token ever issued by an election.
const ISSUED: &str = "issued";

const RAISED: u8 = 1;
const FROZEN: u8 = 2;
const BLOCK: u8 = 4;
const VACANT: u8 = 8;
const BLOCK_NEXT: u8 = 16;

/// Pages kept in memory. Every mark is in the ledger anyway; this is for the pages that commits touch.
const CACHE_BYTES: usize = 16 << 20;

const FILE_NAME: &str = "marks.redb";

pub(super) struct File {
    database: Database,
    path: PathBuf,
    revision: Revision,
    lock_delay: Duration,
}

/// What a start finds.
pub(super) struct Found {
    pub(super) incarnation: Incarnation,
    /// The revision this process joined at.
    pub(super) revision: Revision,
    pub(super) records: Vec<(Resource, Record)>,
    pub(super) terms: Vec<(Resource, Term)>,
    /// The highest token ever issued by an election.
    pub(super) issued: u64,
    /// How resources were named by the process before; none in a store that nobody has used.
    pub(super) names: Option<Names>,
    /// The revision of a change of names that is not finished.
    pub(super) names_pending: Option<Revision>,
    /// Some if the process before did not end cleanly: how long its last requests may take effect.
    pub(super) inherited_delay: Option<Duration>,
}

/// What goes to disk together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) proposals: Vec<Proposal>,
    /// Who leads from now on; none: nobody.
    pub(super) terms: Vec<(Resource, Option<Term>)>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.proposals.is_empty() && self.terms.is_empty()
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "another process has the store in {} open; end it, or give this one its own --data-dir",
        folder.display()
    )]
    Locked { folder: PathBuf },
    #[error("cannot make or open the folder {}", folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    #[error("cannot open the store {}", path.display())]
    Open { path: PathBuf, source: Box<redb::Error> },
    #[error("the store {} holds the name {name:?}, which is not a resource; it was not written by this program", path.display())]
    BadName { path: PathBuf, name: String },
    #[error("cannot join the fence with what the store holds")]
    Join(#[source] Box<crate::store::StoreFailed>),
    #[error("the store {} cannot be used with this config. If nothing of it is to be fenced any more, give this gateway another --data-dir", path.display())]
    Names { path: PathBuf, source: NamesError },
    #[error("cannot start the store's thread")]
    Thread(#[source] std::io::Error),
}

/// A write that may or may not be on disk.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the store {}", path.display())]
pub struct CommitError {
    path: PathBuf,
    source: Box<redb::Error>,
}

impl File {
    /// Takes the lock, reads everything, and marks the store as in use.
    pub(super) fn open(folder: &Path, lock_delay: Duration) -> Result<(Self, Found), OpenError> {
        let database = open_database(folder)?;
        let path = folder.join(FILE_NAME);
        let wrap = |source: redb::Error| OpenError::Open { path: path.clone(), source: Box::new(source) };
        let before = read_meta(&database).map_err(wrap)?;
        let records = read_records(&database, &path)?;
        let terms = read_terms(&database).map_err(wrap)?;
        let names = read_names(&database).map_err(wrap)?;
        let names = names.map(|text| Names::decode(text.as_bytes())).transpose();
        let names = names.map_err(|source| OpenError::Names { path: path.clone(), source })?;
        let lock_delay = before.lock_delay.max(lock_delay);
        let file = Self { database, path: path.clone(), revision: before.revision + 1, lock_delay };
        file.write(|transaction| {
            put_meta(transaction, CLEAN, 0)?;
            put_meta(transaction, LOCK_DELAY_MS, millis(lock_delay))?;
            put_meta(transaction, REVISION, file.revision)
        })
        .map_err(wrap)?;
        let found = Found {
            incarnation: uuid::Uuid::new_v4().as_u128(),
            revision: file.revision,
            records,
            terms,
            issued: before.issued,
            names,
            names_pending: None,
            inherited_delay: (!before.clean).then_some(lock_delay),
        };
        Ok((file, found))
    }

    /// Commits all proposals that still see what they saw, each as a revision of its own, and the terms, in one
    /// fsync. `issued` is the highest token that any of the terms has, or had.
    pub(super) fn commit(&mut self, batch: Batch, issued: u64) -> Result<Vec<Input>, CommitError> {
        let Batch { proposals, terms } = batch;
        let mut revision = self.revision;
        let mut inputs = Vec::with_capacity(proposals.len());
        self.write(|transaction| {
            if !terms.is_empty() {
                put_terms(transaction, terms)?;
                put_meta(transaction, ISSUED, issued)?;
            }
            let mut table = transaction.open_table(RECORDS)?;
            for Proposal { resource, seen, record, .. } in proposals {
                let modified = table.get(resource.as_str())?.map_or(0, |value| value.value().1);
                if modified != seen {
                    inputs.push(Input::Refused { resource, seen, modified });
                    continue;
                }
                revision += 1;
                let record = Record { modified: revision, ..record };
                table.insert(resource.as_str(), encode(&record))?;
                let changes = vec![Change::Record(resource, record)];
                inputs.push(Input::Applied(Applied { revision, seq: Some(revision), changes }));
            }
            drop(table);
            put_meta(transaction, REVISION, revision)
        })
        .map_err(|source| self.commit_error(source))?;
        self.revision = revision;
        Ok(inputs)
    }

    /// Requests may from now on be under way for this long after an end that nobody saw.
    pub(super) fn promise(&mut self, lock_delay: Duration) -> Result<(), CommitError> {
        if lock_delay <= self.lock_delay {
            return Ok(());
        }
        self.write(|transaction| put_meta(transaction, LOCK_DELAY_MS, millis(lock_delay)))
            .map_err(|source| self.commit_error(source))?;
        self.lock_delay = lock_delay;
        Ok(())
    }

    /// Names count as a revision of their own.
    pub(super) fn put_names(&mut self, names: &Names) -> Result<(), CommitError> {
        let revision = self.revision + 1;
        self.write(|transaction| {
            transaction.open_table(NAMES)?.insert(DOCUMENT, names.encode().as_str())?;
            put_meta(transaction, REVISION, revision)
        })
        .map_err(|source| self.commit_error(source))?;
        self.revision = revision;
        Ok(())
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn names_error(&self, source: NamesError) -> OpenError {
        OpenError::Names { path: self.path.clone(), source }
    }

    pub(super) fn mark_clean(&self) -> Result<(), CommitError> {
        self.write(|transaction| {
            put_meta(transaction, LOCK_DELAY_MS, 0)?;
            put_meta(transaction, CLEAN, 1)
        })
        .map_err(|source| self.commit_error(source))
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    pub(super) fn write(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        change(&transaction)?;
        Ok(transaction.commit()?)
    }

    pub(super) fn commit_error(&self, source: redb::Error) -> CommitError {
        CommitError { path: self.path.clone(), source: Box::new(source) }
    }
}

fn open_database(folder: &Path) -> Result<Database, OpenError> {
    let in_folder = |source| OpenError::Folder { folder: folder.to_owned(), source };
    fs::create_dir_all(folder).map_err(in_folder)?;
    let path = folder.join(FILE_NAME);
    let database =
        Database::builder().set_cache_size(CACHE_BYTES).create(&path).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => OpenError::Locked { folder: folder.to_owned() },
            other => OpenError::Open { path: path.clone(), source: Box::new(other.into()) },
        })?;
    // A new file is durable only when its folder knows it.
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(in_folder)?;
    Ok(database)
}

struct Before {
    revision: Revision,
    issued: u64,
    clean: bool,
    lock_delay: Duration,
}

fn read_meta(database: &Database) -> Result<Before, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(META) {
        Ok(table) => table,
        // A new file: nobody was here before.
        Err(redb::TableError::TableDoesNotExist(_)) => {
            return Ok(Before { revision: 0, issued: 0, clean: true, lock_delay: Duration::ZERO });
        }
        Err(error) => return Err(error.into()),
    };
    let fact = |key| Ok::<_, redb::Error>(table.get(key)?.map(|value| value.value()));
    Ok(Before {
        revision: fact(REVISION)?.unwrap_or(0),
        issued: fact(ISSUED)?.unwrap_or(0),
        clean: fact(CLEAN)? == Some(1),
        lock_delay: Duration::from_millis(fact(LOCK_DELAY_MS)?.unwrap_or(0)),
    })
}

fn read_records(database: &Database, path: &Path) -> Result<Vec<(Resource, Record)>, OpenError> {
    let wrap = |source: redb::Error| OpenError::Open { path: path.to_owned(), source: Box::new(source) };
    let transaction = database.begin_read().map_err(|error| wrap(error.into()))?;
    let table = match transaction.open_table(RECORDS) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(wrap(error.into())),
    };
    let mut records = Vec::new();
    for entry in table.iter().map_err(|error| wrap(error.into()))? {
        let (name, value) = entry.map_err(|error| wrap(error.into()))?;
        let resource = Resource::parse(name.value())
            .map_err(|_| OpenError::BadName { path: path.to_owned(), name: name.value().to_owned() })?;
        records.push((resource, decode(value.value())));
    }
    Ok(records)
}

/// Terms of names or tokens that cannot be are not this program's; nobody can hold them, so nobody does.
fn read_terms(database: &Database) -> Result<Vec<(Resource, Term)>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(TERMS) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let owners = match transaction.open_table(OWNERS) {
        Ok(owners) => Some(owners),
        // No leader has ever had one.
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let mut terms = Vec::new();
    for entry in table.iter()? {
        let (name, value) = entry?;
        let (token, lease, ttl_ms, holder) = value.value();
        if let (Ok(resource), Some(token)) = (Resource::parse(name.value()), Token::new(token)) {
            let ttl = Duration::from_millis(ttl_ms);
            let owner = owners.as_ref().map(|owners| owners.get(name.value())).transpose()?.flatten();
            let owner = owner.filter(|owner| owner.value().0 == token.get());
            let owner = owner.map(|owner| owner.value().1.to_owned());
            let candidate = Candidate { lease, holder: holder.to_owned(), ttl, owner };
            terms.push((resource, Term::kept(candidate, token)));
        }
    }
    Ok(terms)
}

fn read_names(database: &Database) -> Result<Option<String>, redb::Error> {
    match database.begin_read()?.open_table(NAMES) {
        Ok(table) => Ok(table.get(DOCUMENT)?.map(|text| text.value().to_owned())),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn put_terms(
    transaction: &WriteTransaction,
    terms: Vec<(Resource, Option<Term>)>,
) -> Result<(), redb::Error> {
    let (mut table, mut owners) = (transaction.open_table(TERMS)?, transaction.open_table(OWNERS)?);
    for (resource, term) in terms {
        owners.remove(resource.as_str())?;
        match term {
            Some(Term { candidate: Candidate { lease, holder, ttl, owner }, token, .. }) => {
                table.insert(resource.as_str(), (token.get(), lease, millis(ttl), holder.as_str()))?;
                if let Some(owner) = owner {
                    owners.insert(resource.as_str(), (token.get(), owner.as_str()))?;
                }
            }
            None => {
                table.remove(resource.as_str())?;
            }
        }
    }
    Ok(())
}

fn put_meta(transaction: &WriteTransaction, key: &str, value: u64) -> Result<(), redb::Error> {
    transaction.open_table(META)?.insert(key, value)?;
    Ok(())
}

fn encode(record: &Record) -> (u64, u64, u8) {
    let flags = [
        (record.state == State::Raised, RAISED),
        (record.frozen, FROZEN),
        (record.block, BLOCK),
        (record.vacant, VACANT),
        (record.block_next, BLOCK_NEXT),
    ];
    let flags = flags.into_iter().filter(|(is, _)| *is).fold(0, |all, (_, flag)| all | flag);
    (record.token, record.modified, flags)
}

/// What an operator settled is forgotten on purpose: a process that ended uncleanly may have left more.
fn decode((token, modified, flags): (u64, u64, u8)) -> Record {
    let is = |flag| flags & flag != 0;
    Record {
        token,
        modified,
        settled: 0,
        state: if is(RAISED) { State::Raised } else { State::Open },
        frozen: is(FROZEN),
        vacant: is(VACANT),
        block: is(BLOCK),
        block_next: is(BLOCK_NEXT),
        issued: false,
        unreadable: false,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
