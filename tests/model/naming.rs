//! What the resource is called, by which config, and the document of names that etcd keeps: the real one (`src/names.rs`).
//!
//! There is one resource. Two configs call it differently, and an operator may give a gateway the other one at any time.
//! The judge goes by the resource; marks and gates go by its names, and so a request holds a place under each of those
//! that its gateway checks it under.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use highgate::config::{Config, Naming, Overrides};
use highgate::names::Names;
use highgate::replica::{Record, Replica};
use highgate_elector::Resource;

use crate::control::Control;
use crate::hooks::Broken;
use crate::kept::digest;

/// What the resource is called; and the config that calls it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    Old,
    New,
}

/// What there is one of for each name.
pub(crate) type ByName<T> = [T; Name::ALL.len()];

/// The names of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NameSet(ByName<bool>);

/// By what a gateway claims requests: `src/gate/table.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    /// The config that the gateway has taken.
    pub(crate) own: Name,
    pub(crate) names: NameSet,
    /// The lowest token that may pass: the mark that the resource had under another name.
    pub(crate) floor: u64,
}

/// The names in force, those to come, and the marks that new names start from.
#[derive(Clone)]
pub(crate) struct Document {
    names: Arc<Names>,
    namings: Arc<ByName<Naming>>,
    digest: u64,
}

impl Name {
    pub(crate) const ALL: [Self; 2] = [Self::Old, Self::New];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Old => Self::New,
            Self::New => Self::Old,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Old => "r",
            Self::New => "renamed",
        }
    }

    pub(crate) fn resource(self) -> Resource {
        Resource::parse(self.text()).expect("a plain name is a resource")
    }

    pub(crate) fn of(resource: &Resource) -> Self {
        if resource.as_str() == Self::New.text() { Self::New } else { Self::Old }
    }
}

impl NameSet {
    pub(crate) fn one(name: Name) -> Self {
        Self::default().and(name)
    }

    pub(crate) fn and(mut self, name: Name) -> Self {
        self.0[name as usize] = true;
        self
    }

    pub(crate) fn without(mut self, name: Name) -> Self {
        self.0[name as usize] = false;
        self
    }

    pub(crate) fn contains(&self, name: Name) -> bool {
        self.0[name as usize]
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Name> {
        Name::ALL.into_iter().filter(move |name| self.contains(*name))
    }
}

impl Table {
    /// Of a gateway that knows of no other names than those of its config.
    pub(crate) fn of(own: Name) -> Self {
        Self { own, names: NameSet::one(own), floor: 0 }
    }

    /// In the order in which a request asks for its marks: by its own config first.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = Name> {
        let names = self.names;
        [self.own, self.own.other()].into_iter().filter(move |name| names.contains(*name))
    }
}

impl Document {
    /// All gateways have the first config.
    pub(crate) fn first() -> Self {
        let namings = Arc::new(Name::ALL.map(naming));
        let names = Names::first(&namings[Name::Old as usize]);
        Self::new(names, namings)
    }

    fn new(names: Names, namings: Arc<ByName<Naming>>) -> Self {
        Self { digest: digest(&names.encode()), names: Arc::new(names), namings }
    }

    fn with(&self, names: Names) -> Self {
        Self::new(names, self.namings.clone())
    }

    fn naming(&self, config: Name) -> &Naming {
        &self.namings[config as usize]
    }

    /// Whether a change is announced and not finished.
    pub(crate) fn is_changing(&self) -> bool {
        self.names.next.is_some()
    }

    pub(crate) fn knows(&self, config: Name) -> bool {
        self.names.knows(self.naming(config))
    }

    /// What has to be put before a gateway that starts may serve with this config; an error if it may not.
    pub(crate) fn plan(&self, config: Name) -> Result<Option<Self>, Refused> {
        let planned = self.names.plan(self.naming(config)).map_err(|_| Refused)?;
        Ok(planned.map(|names| self.with(names)))
    }

    /// The same for one that has another config so far. It takes back a change that it has.
    pub(crate) fn plan_change(&self, from: Name, to: Name) -> Result<Option<Self>, Refused> {
        match self.plan(to)? {
            None if self.names.is_next(self.naming(from)) && !self.names.is_next(self.naming(to)) => {
                Ok(Some(self.with(Names { next: None, ..Names::clone(&self.names) })))
            }
            planned => Ok(planned),
        }
    }

    /// The end of the change under way, with the marks that this replica knows of.
    pub(crate) fn finished(&self, control: Broken, replica: &Replica) -> Self {
        let forgets = control == Some(Control::NewNameFromNothing);
        self.with(self.names.finished(replica.marks().filter(|_| !forgets)))
    }

    /// By what a gateway that has taken this config claims requests.
    pub(crate) fn table(&self, control: Broken, own: Name) -> Table {
        let others = self.names.others(self.naming(own));
        let is_meant = |name: &Name| others.iter().any(|other| other.begins_with(self.naming(*name)));
        let others = Name::ALL.into_iter().filter(is_meant);
        let others = others.filter(|_| control != Some(Control::RenamedWithoutOldName));
        let names = others.fold(NameSet::one(own), NameSet::and);
        let floor = names.iter().map(|name| self.names.floors.of(name.text())).max().unwrap_or(0);
        Table { own, names, floor }
    }
}

/// The store's names do not allow a config now.
#[derive(Debug)]
pub(crate) struct Refused;

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Document {}

impl Hash for Document {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.encode())
    }
}

fn naming(name: Name) -> Naming {
    let text = format!(
        "[[routes]]\nname = \"a\"\nupstream = \"http://127.0.0.1:1\"\nmatch = {{ path = \"/\" }}\nresource = {:?}\n",
        name.text()
    );
    let config = Config::parse(&text, Path::new("model.toml"), &Overrides::default());
    Naming::of(&config.expect("a sound config").routes)
}

/// Those that there are.
pub(crate) fn listed(records: &ByName<Record>) -> Vec<(Resource, Record)> {
    let there = Name::ALL.into_iter().zip(records).filter(|(_, record)| record.modified > 0);
    there.map(|(name, record)| (name.resource(), *record)).collect()
}
