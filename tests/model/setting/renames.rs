//! Settings in which the resource is given another name. Two names are two marks, each with a gate on every gateway, so
//! these begin in the middle: the first config has changed, and the last gateway has a request under way that
//! was admitted under the old name alone.

use super::{ALOFT, CRASH, Fault, Limits, PLAIN, STOP, Setting, Size};
use crate::action::Action;
use crate::sights::Sight;

/// The first gateway has the new config, and its names are on their way to etcd.
const BEGUN: &[Action] = &[Action::Reload(0)];
/// The same before anything was asked; before that, the second token was raised and has written under the old name.
const WRITTEN: &[Action] = &[
    Action::Claim(0, 2),
    Action::Tick,
    Action::Tick,
    Action::Pass(0, 2),
    Action::Complete(0),
    Action::Reload(0),
];
/// All know of the change, and it waits for the request; the first gateway is asked for the next mark.
const AWAITED: &[Action] = &[Action::Reload(0), Action::Tick, Action::Claim(0, 2)];
/// The same, and then the gateway that is waited for stands still.
const STOPPED: &[Action] =
    &[Action::Reload(0), Action::Tick, Action::Harm(Fault::Stop, 1), Action::Claim(0, 2)];

const ROLLED: &[Sight] = &[
    Sight::AnnouncedOverAnOldRequest,
    Sight::PassedUnderBothNames,
    Sight::Renamed,
    Sight::RoseUnderTheNewName,
];
const FINISHED: &[Sight] = &[Sight::Renamed];
const FINISHED_AND_USED: &[Sight] = &[Sight::Renamed, Sight::RoseUnderTheNewName];
const AFTER_LOSS: &[Sight] = &[Sight::RenamedAfterEviction, Sight::RoseUnderTheNewName];
const AFTER_REJOIN: &[Sight] = &[Sight::RenamedAfterRejoin, Sight::RoseUnderTheNewName];

/// One gateway gets the new config, and a token asks for a mark so often.
const fn once(asks: u8, limits: Limits) -> Limits {
    Limits { asks: Some(asks), reloads: 1, ..limits }
}

const QUIET: Limits = Limits::new(1, 0);
/// The other gateway may get the new config as well, or the first one the old one again.
const ROLLING: Limits = Limits { reloads: 2, ..once(1, QUIET) };
const UNSURE: Limits = Limits::new(1, 1).with(Fault::Ambiguous, 1).with(Fault::Twice, 1).with(Fault::Late, 1);

const RENAME: Setting =
    Setting { name: "rename", prelude: BEGUN, halves: 1, limits: once(2, QUIET), sights: ROLLED, ..ALOFT };
/// Long enough for whoever is lost to be waited for.
const LOSS: Setting = Setting { limits: once(1, CRASH), sights: AFTER_LOSS, size: Size::Minutes, ..ALOFT };

pub(super) const SETTINGS: &[Setting] = &[
    RENAME,
    Setting {
        name: "rename-below",
        prelude: WRITTEN,
        claims: 1,
        limits: once(3, Limits::new(2, 0)),
        sights: FINISHED,
        ..PLAIN
    },
    Setting { name: "rename-crash-brief", prelude: AWAITED, size: Size::Minute, ..LOSS },
    Setting {
        name: "rename-stop-rejoin",
        prelude: STOPPED,
        joins: 2,
        limits: once(1, STOP),
        sights: AFTER_REJOIN,
        size: Size::Minute,
        ..LOSS
    },
    Setting { name: "rename-crash", prelude: BEGUN, ..LOSS },
    Setting { name: "rename-rejoin", prelude: AWAITED, joins: 2, sights: AFTER_REJOIN, ..LOSS },
    Setting { name: "rename-stop", prelude: AWAITED, limits: once(1, STOP), ..LOSS },
    Setting { name: "rename-race", prelude: &[], limits: once(1, QUIET), size: Size::Minutes, ..RENAME },
    Setting { name: "rename-rolling", limits: ROLLING, size: Size::Hour, ..RENAME },
    Setting {
        name: "rename-ambiguous",
        limits: once(1, UNSURE),
        sights: FINISHED_AND_USED,
        size: Size::Hour,
        ..RENAME
    },
];
