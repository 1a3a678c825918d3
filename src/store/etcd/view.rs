//! The overview that operators see, made from what the driver knows; and what is kept on disk.

use std::time::{Duration, Instant};

use super::driver::{Driver, Stage, now_time};
use super::session::Session;
use crate::replica::{Incarnation, Member, Replica, Revision, Time};
use crate::store::overview::{Overview, RaiseView, ReplicaView, TombstoneView};

/// The overview is made anew at most this often.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// How far etcd has come is written down at most this often.
const SAVE_EVERY: Duration = Duration::from_secs(2);
const MAX_RAISES: usize = 100;

/// Of a replica that does not serve.
pub(super) fn outside(location: &str, why: &str) -> Overview {
    Overview {
        store: "etcd",
        location: location.to_owned(),
        era: 0,
        valid: false,
        fenced_because: Some(why.to_owned()),
        me: None,
        watermark: 0,
        replicas: Vec::new(),
        tombstones: Vec::new(),
        raises: Vec::new(),
        raising: 0,
        warnings: Vec::new(),
    }
}

impl Driver {
    /// Publishes what has changed, now and then.
    pub(super) fn show(&mut self) {
        if self.shown.is_some_and(|shown| shown.elapsed() < SHOW_EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let overview = match &self.stage {
            Stage::Outside { why, .. } => {
                Overview { era: self.link.memory.era(), ..outside(&self.location, why) }
            }
            Stage::Inside(session) => inside(&self.location, session),
        };
        let overview = Overview { warnings: self.upkeep.warnings(), ..overview };
        self.shared.overview.store(overview.into());
    }

    pub(super) fn save_memory(&mut self) {
        if self.saved.elapsed() >= SAVE_EVERY {
            self.save_now();
        }
    }

    /// How long the slowest of all that are known has to be waited for: a new era's tombstone stands for it.
    pub(super) fn note_longest_wait(&self) {
        let Stage::Inside(session) = &self.stage else { return };
        let members = session.replica.members().values().map(|member| member.wait);
        let tombstones = session.replica.tombstones().values().map(|tombstone| tombstone.wait);
        self.link.memory.waits(members.chain(tombstones).max().unwrap_or_default());
    }

    /// Not on this thread: a slow disk must not hold up a renewal.
    pub(super) fn save_now(&mut self) {
        self.saved = Instant::now();
        self.note_longest_wait();
        // A thread that is gone has said so.
        let _ = self.save.send(());
    }
}

fn inside(location: &str, session: &Session) -> Overview {
    let (now, replica) = (now_time(), &session.replica);
    Overview {
        store: "etcd",
        location: location.to_owned(),
        era: replica.era(),
        valid: true,
        fenced_because: None,
        me: Some(session.me),
        watermark: replica.watermark(),
        replicas: replica
            .members()
            .iter()
            .map(|(id, member)| view(now, *id, member, session.me, replica.watermark()))
            .collect(),
        tombstones: replica
            .tombstones()
            .iter()
            .map(|(name, tombstone)| TombstoneView { id: name.clone(), left: tombstone.left(now) })
            .collect(),
        raises: raises(now, replica),
        raising: replica.raising(),
        warnings: Vec::new(),
    }
}

fn view(now: Time, id: Incarnation, member: &Member, me: Incarnation, watermark: Revision) -> ReplicaView {
    ReplicaView {
        id,
        name: member.name.clone(),
        me: id == me,
        created: member.created,
        watermark: member.watermark,
        lag: watermark.saturating_sub(member.watermark.max(member.created)),
        draining: member.draining.iter().copied().collect(),
        renewed: now.saturating_sub(member.heard_at),
    }
}

fn raises(now: Time, replica: &Replica) -> Vec<RaiseView> {
    let raise = |(revision, resource): (Revision, &highgate_elector::Resource)| {
        let record = replica.record(resource);
        let (members, tombstones) = replica.waits_for(now, &record);
        let members = members.into_iter().map(|member| member.name.clone());
        let tombstones = tombstones.into_iter().map(|name| format!("the tombstone {name}"));
        RaiseView {
            resource: resource.to_string(),
            mark: record.token,
            revision,
            sealer: replica.sealer(resource).map_or_else(String::new, |member| member.name.clone()),
            waits_for: members.chain(tombstones).collect(),
        }
    };
    replica.raises().take(MAX_RAISES).map(raise).collect()
}
