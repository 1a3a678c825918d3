//! What a gateway calls the resource: `src/store/etcd/names.rs`, `agree_on_names` in `load.rs`, and `src/gate/table.rs`.

use highgate::replica::Revision;

use super::{Deed, Deeds, Gateway, Moment, Phase};
use crate::control::Control;
use crate::etcd::{Entry, Etcd};
use crate::hooks::Broken;
use crate::naming::{Document, Name, Table};
use crate::txn::{Putter, Txn};

impl Gateway {
    /// The next incarnation asks to be a member. Before it does, a process that starts has the names of its config put,
    /// if they are not there. Nothing if its config is refused.
    pub(crate) fn join(&mut self, etcd: &Etcd, control: Broken) -> Option<Txn> {
        let starts = !self.has_served;
        if starts {
            self.table = Table::of(self.file);
        }
        let planned = match etcd.names.as_ref().filter(|_| starts) {
            Some((seen, names)) => names.plan(self.file).ok()?.map(|names| (*seen, names)),
            None => None,
        };
        self.joins += 1;
        self.phase = Phase::Joining;
        let (me, era) = (self.incarnation(control), etcd.era);
        Some(match planned {
            Some((seen, names)) => Txn::PutNames { era, seen, names, by: Putter::Joiner(me) },
            None => Txn::Join { me, era },
        })
    }

    /// Whether an incarnation that has loaded these names may serve.
    pub(crate) fn may_serve_with(&self, names: Option<&(Revision, Document)>) -> bool {
        self.has_served || names.is_none_or(|(_, names)| names.knows(self.table.own))
    }

    /// The names of its config could not be put, so it did not ask to be a member.
    pub(crate) fn stay_outside(&mut self) {
        self.phase = Phase::Outside;
    }

    /// Whether the config in its file is not the one that it goes by, and nothing is being done about that.
    pub(crate) fn may_change_config(&self) -> bool {
        let asks = self.session().is_some_and(|session| {
            let planned =
                session.names.as_ref().map(|(_, names)| names.plan_change(self.table.own, self.file));
            session.renaming.is_none() && matches!(planned, Some(Ok(_)))
        });
        asks && self.file != self.table.own
    }

    /// The config in its file is put into force, or etcd is asked for its names first.
    pub(crate) fn change_config(&mut self, moment: Moment) -> Deeds {
        let (mut deeds, from, to) = (Vec::new(), self.table.own, self.file);
        let Some(session) = self.session_mut() else { return deeds };
        let Some((seen, names)) = session.names.clone() else { return deeds };
        match names.plan_change(from, to) {
            Err(_) => {}
            Ok(None) => self.take_config(moment, to, &mut deeds),
            Ok(Some(names)) => {
                session.renaming = Some(to);
                let era = session.replica.era();
                deeds.push(Deed::Send(Txn::PutNames { era, seen, names, by: Putter::Changer }));
            }
        }
        deeds
    }

    /// Names that were put arrive with the watch; only a refusal is news.
    pub(crate) fn config_refused(&mut self) {
        if let Some(session) = self.session_mut() {
            session.renaming = None;
        }
    }

    fn take_config(&mut self, moment: Moment, config: Name, deeds: &mut Deeds) {
        self.table.own = config;
        let known = self.session().and_then(|session| session.names.clone());
        self.replace_table(moment, known.as_ref(), deeds);
    }

    fn replace_table(&mut self, moment: Moment, names: Option<&(Revision, Document)>, deeds: &mut Deeds) {
        if let Some((_, names)) = names {
            self.table = names.table(moment.control, self.table.own);
            deeds.push(Deed::TableReplaced);
        }
    }

    pub(super) fn hear_names(&mut self, moment: Moment, entry: &Entry, deeds: &mut Deeds) {
        // Where something before it was missed, it was not applied.
        if entry.names.is_some() && self.session().is_some_and(|session| !session.listing) {
            let names = entry.names.clone().map(|names| (entry.revision, names));
            self.take_names(moment, names, deeds);
        }
    }

    /// From now on every request that is claimed has these names.
    pub(super) fn take_names(
        &mut self,
        moment: Moment,
        names: Option<(Revision, Document)>,
        deeds: &mut Deeds,
    ) {
        self.replace_table(moment, names.as_ref(), deeds);
        let Some(session) = self.session_mut() else { return };
        let knows = |config: &mut Name| names.as_ref().is_some_and(|(_, names)| names.knows(*config));
        let config = session.renaming.take_if(knows);
        session.names = names;
        if let Some(config) = config {
            self.take_config(moment, config, deeds);
        }
    }

    /// Nothing is under way any more, anywhere, that lacks the new names.
    pub(super) fn finish_names(&self, moment: Moment, seen: Revision, deeds: &mut Deeds) {
        let Some(session) = self.session() else { return };
        let Some((_, names)) = session.names.as_ref().filter(|(known, _)| *known == seen) else { return };
        let (era, names) = (session.replica.era(), names.finished(moment.control, &session.replica));
        deeds.push(Deed::Send(Txn::PutNames { era, seen, names, by: Putter::Finisher }));
    }

    /// The change of names for which this member has not said yet that nothing under way here lacks the new ones.
    /// `lacking`: something was admitted by an older table and has not ended.
    pub(crate) fn names_to_acknowledge(&self, control: Broken, lacking: bool) -> Option<Revision> {
        let session = self.session()?;
        let announced = session.replica.names_pending()?;
        let is_draining = session.replica.members().get(&session.me)?.draining.contains(&announced);
        (is_draining && (!lacking || control == Some(Control::NamesKnownAtOnce))).then_some(announced)
    }
}
