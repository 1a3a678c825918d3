//! The routes in force, and under which names of before or of later their requests are checked as well.
//!
//! [`RouteTables`] is shared by the gateway, which brings new routes, the store's driver, which brings new names, and
//! the workers, which take the latest table for each request. A worker keeps the table in use while a fenced request
//! that was claimed by it has not certainly ended, so the gateway knows when nothing of an older table is under way.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::config::{Floors, Naming, Routes};
use crate::controls::{Rule, breaks};
use crate::ledger::Ledger;
use crate::names::Names;
use crate::replica::Revision;

/// What a request is claimed by. Replaced as a whole.
#[derive(Debug)]
pub struct RouteTable {
    pub routes: Routes,
    /// How the routes name resources.
    pub naming: Naming,
    /// Other namings by which a request is fenced, too: those of before and after a change that is not finished.
    pub aliases: Vec<Naming>,
    /// The marks that renamed resources start from.
    pub floors: Floors,
}

/// The table in force, and who has a say in it.
pub struct RouteTables {
    current: ArcSwap<RouteTable>,
    sources: Mutex<Sources>,
}

struct Sources {
    routes: Routes,
    names: Option<(Revision, Arc<Names>)>,
    /// Tables of before that may be in use.
    retired: Vec<Weak<RouteTable>>,
}

impl RouteTable {
    /// Of routes that never had another naming.
    pub fn of(routes: Routes) -> Self {
        Self { naming: Naming::of(&routes), routes, aliases: Vec::new(), floors: Floors::default() }
    }
}

impl RouteTables {
    pub fn new(routes: Routes) -> Self {
        let sources = Sources { routes: routes.clone(), names: None, retired: Vec::new() };
        Self { current: ArcSwap::from_pointee(RouteTable::of(routes)), sources: Mutex::new(sources) }
    }

    pub(super) fn load(&self) -> arc_swap::Guard<Arc<RouteTable>> {
        self.current.load()
    }

    /// The routes in force.
    pub fn routes(&self) -> Routes {
        self.load().routes.clone()
    }

    pub fn naming(&self) -> Naming {
        Naming::of(&self.sources.lock().routes)
    }

    /// New routes, which the store's names know already.
    pub fn set_routes(&self, routes: Routes) {
        let mut sources = self.sources.lock();
        sources.routes = routes;
        self.replace(&mut sources);
    }

    /// The store's names have changed. When this returns, every request that is claimed from now on has them.
    pub fn set_names(&self, revision: Revision, names: Arc<Names>) {
        let mut sources = self.sources.lock();
        sources.names = Some((revision, names));
        self.replace(&mut sources);
    }

    fn replace(&self, sources: &mut Sources) {
        let own = Naming::of(&sources.routes);
        let (mut aliases, floors) = match &sources.names {
            Some((_, names)) => (names.others(&own), names.floors.clone()),
            None => (Vec::new(), Floors::default()),
        };
        if breaks(Rule::OldName) {
            aliases.clear();
        }
        let table = RouteTable { routes: sources.routes.clone(), naming: own, aliases, floors };
        let before = self.current.swap(Arc::new(table));
        sources.retired.retain(|table| table.strong_count() > 0);
        sources.retired.push(Arc::downgrade(&before));
    }

    /// The revision of the names that everything under way has, if that is all that a change waits for here.
    pub fn settled(&self, ledger: &Ledger) -> Option<Revision> {
        let mut sources = self.sources.lock();
        sources.retired.retain(|table| table.strong_count() > 0);
        let (revision, names) = sources.names.as_ref()?;
        // What is left to an operator is not tied to its table any more, so it may be of an older one.
        let settled = names.next.is_some() && sources.retired.is_empty() && ledger.blocked() == 0;
        settled.then_some(*revision)
    }
}
