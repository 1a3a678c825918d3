//! Configs that call a resource something else, and by which names a gateway claims a request: `src/gate/table.rs`.
//!
//! What a name is checked by is the ledger; here is which names a request has. The judge knows nothing of names: it
//! goes by what the requests are for. Namings, the document in etcd and the marks to start from are the real ones.

use std::path::Path;
use std::rc::{Rc, Weak};

use highgate::config::{CanonicalPath, Config, Naming, Overrides, ResourceRule};
use highgate::ledger::Ledger;
use highgate::names::Names;
use highgate::replica::Revision;
use highgate_elector::Resource;
use http::Method;

use super::control::Control;

/// How many different configs there are in a run that renames.
const CONFIGS: usize = 6;

/// What each of a run's configs calls each resource. Those that elections issue tokens for keep their names.
pub(crate) fn namings(issued: &[bool], renames: bool) -> Vec<Naming> {
    let configs = if renames { CONFIGS } else { 1 };
    (0..configs).map(|config| naming(issued, config)).collect()
}

fn naming(issued: &[bool], config: usize) -> Naming {
    let route = |(index, issued): (usize, &bool)| {
        let name = if config == 0 || *issued { format!("r{index}") } else { format!("r{index}-{config}") };
        format!(
            "[[routes]]\nname = \"{index}\"\nupstream = \"http://127.0.0.1:1\"\nmatch = {{ path = \"/{index}\" }}\n\
             resource = {name:?}\n"
        )
    };
    let text: String = issued.iter().enumerate().map(route).collect();
    let config = Config::parse(&text, Path::new("sim.toml"), &Overrides::default()).expect("a sound config");
    Naming::of(&config.routes)
}

/// What a naming calls a resource.
pub(crate) fn name_of(naming: &Naming, resource: usize) -> Resource {
    let path = format!("/{resource}");
    let path = CanonicalPath::parse(&path).expect("a plain path");
    match naming.find((&Method::POST, false), "", &path) {
        Some((ResourceRule::Fixed(name), _)) => name.clone(),
        _ => unreachable!("every config names every resource"),
    }
}

/// What a request is claimed by.
#[derive(Debug)]
pub(crate) struct Table {
    /// Per resource: its name by the own config, then those by others.
    pub(crate) names: Vec<Rc<[Resource]>>,
    /// Per resource: the lowest token that may pass.
    pub(crate) floors: Vec<u64>,
}

/// The table in force, and those of before that may be in use.
pub(crate) struct Tables {
    pub(crate) own: Naming,
    names: Option<(Revision, Rc<Names>)>,
    pub(crate) current: Rc<Table>,
    retired: Vec<Weak<Table>>,
    resources: usize,
    control: Option<Control>,
}

impl Tables {
    pub(crate) fn new(own: Naming, resources: usize, control: Option<Control>) -> Self {
        let current = Rc::new(Table { names: Vec::new(), floors: Vec::new() });
        let mut tables = Self { own, names: None, current, retired: Vec::new(), resources, control };
        tables.replace();
        tables
    }

    pub(crate) fn set_own(&mut self, own: Naming) {
        self.own = own;
        self.replace();
    }

    pub(crate) fn set_names(&mut self, revision: Revision, names: Rc<Names>) {
        self.names = Some((revision, names));
        self.replace();
    }

    fn replace(&mut self) {
        let table = Rc::new(self.table());
        let before = std::mem::replace(&mut self.current, table);
        self.retired.push(Rc::downgrade(&before));
        drop(before);
        self.retired.retain(|table| table.strong_count() > 0);
    }

    fn table(&self) -> Table {
        let mut others = self.names.as_ref().map_or_else(Vec::new, |(_, names)| names.others(&self.own));
        if self.control == Some(Control::RenamedWithoutOldName) {
            others.clear();
        }
        let all = |resource: usize| {
            let mut names = vec![name_of(&self.own, resource)];
            for name in others.iter().map(|naming| name_of(naming, resource)) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            Rc::from(names)
        };
        let names: Vec<Rc<[Resource]>> = (0..self.resources).map(all).collect();
        let floors = names.iter().map(|names| self.floor(names)).collect();
        Table { names, floors }
    }

    pub(crate) fn floor(&self, names: &[Resource]) -> u64 {
        let known = self.names.as_ref().map(|(_, names)| &names.floors);
        let floors = known.into_iter().flat_map(|floors| names.iter().map(|name| floors.of(name.as_str())));
        floors.max().unwrap_or(0)
    }

    pub(crate) fn are_changing(&self) -> bool {
        self.names.as_ref().is_some_and(|(_, names)| names.next.is_some())
    }

    /// The revision of the names that everything under way has, if that is all that a change waits for here.
    pub(crate) fn settled(&mut self, ledger: &Ledger) -> Option<Revision> {
        self.retired.retain(|table| table.strong_count() > 0);
        let (revision, _) = self.names.as_ref().filter(|(_, names)| names.next.is_some())?;
        let settled = self.retired.is_empty() && ledger.blocked() == 0;
        (settled || self.control == Some(Control::NamesKnownAtOnce)).then_some(*revision)
    }
}
