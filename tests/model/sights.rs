//! What must happen sometimes in a setting, or its silence says nothing: what has happened so far is part of a state.

use stateright::Property;

use crate::naming::{Name, NameSet};
use crate::world::{Protocol, World};

/// What has to be seen, or the exploration was about nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    TopSealed,
    SealedAfterCrash,
    SealedAfterRejoin,
    SealedAfterEviction,
    /// A change of names is announced while a request is under way that lacks the new one.
    AnnouncedOverAnOldRequest,
    PassedUnderBothNames,
    /// A change of names was finished; and so after a gateway was lost in the middle of it.
    Renamed,
    RenamedAfterEviction,
    RenamedAfterRejoin,
    /// A higher token than all before passes under the new name alone.
    RoseUnderTheNewName,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Notes {
    crashed: bool,
    rejoined: bool,
    evicted: bool,
    changing: bool,
    seen: [bool; Sight::COUNT],
}

impl Notes {
    pub(crate) fn crashed(&mut self) {
        self.crashed = true;
    }

    pub(crate) fn joined(&mut self, joins: u8) {
        self.rejoined |= joins > 1;
    }

    pub(crate) fn evicted(&mut self) {
        self.evicted = true;
    }

    pub(crate) fn sealed(&mut self, is_top: bool) {
        self.see(Sight::TopSealed, is_top);
        self.see(Sight::SealedAfterCrash, self.crashed);
        self.see(Sight::SealedAfterRejoin, self.rejoined);
        self.see(Sight::SealedAfterEviction, self.evicted);
    }

    /// A change of names was announced, or it ended. `over_old`: something is under way that lacks the new name.
    pub(crate) fn names_put(&mut self, is_changing: bool, over_old: bool) {
        let finished = self.changing && !is_changing;
        self.changing = is_changing;
        self.see(Sight::AnnouncedOverAnOldRequest, is_changing && over_old);
        self.see(Sight::Renamed, finished);
        self.see(Sight::RenamedAfterEviction, finished && self.evicted);
        self.see(Sight::RenamedAfterRejoin, finished && self.rejoined);
    }

    /// `rises`: with a higher token than all before.
    pub(crate) fn forwarded(&mut self, names: NameSet, rises: bool) {
        self.see(Sight::PassedUnderBothNames, Name::ALL.iter().all(|name| names.contains(*name)));
        self.see(Sight::RoseUnderTheNewName, rises && names == NameSet::one(Name::New));
    }

    fn see(&mut self, sight: Sight, now: bool) {
        self.seen[sight as usize] |= now;
    }

    fn shows(&self, sight: Sight) -> bool {
        self.seen[sight as usize]
    }
}

impl Sight {
    const COUNT: usize = Self::RoseUnderTheNewName as usize + 1;

    /// That it is seen at least once. The checker takes no closure that knows anything, so that each has its own.
    pub(crate) fn property(self) -> Property<Protocol> {
        macro_rules! seen {
            ($($sight:ident: $text:literal,)*) => {
                match self {
                    $(Self::$sight => Property::sometimes($text, |_, world: &World| world.notes.shows(Self::$sight)),)*
                }
            };
        }
        seen! {
            TopSealed: "the top token is sealed",
            SealedAfterCrash: "sealed after a crash",
            SealedAfterRejoin: "sealed after a rejoin",
            SealedAfterEviction: "sealed after an eviction",
            AnnouncedOverAnOldRequest: "a change of names is announced over a request of the old name alone",
            PassedUnderBothNames: "a request passes under both names",
            Renamed: "a change of names is finished",
            RenamedAfterEviction: "a change of names is finished after an eviction",
            RenamedAfterRejoin: "a change of names is finished after a rejoin",
            RoseUnderTheNewName: "a higher token than all before passes under the new name alone",
        }
    }
}
