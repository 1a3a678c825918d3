//! When two replicas are the same to a model checker: what they will do is decided by what is hashed here, in an
//! order that does not depend on how maps happen to lie in memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};

use super::Replica;

impl Hash for Replica {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Everything is named, so that a new field cannot be forgotten here.
        let Self {
            me,
            timing,
            era,
            seq,
            records,
            members,
            tombstones,
            work,
            raises,
            undrained,
            agenda,
            renewal,
            names,
            news,
            next_round,
            over,
        } = self;
        (me, timing, era, seq, members, tombstones).hash(state);
        (raises, agenda, renewal, names, news, next_round, over).hash(state);
        (in_order(records), in_order(work), in_order(undrained)).hash(state);
    }
}

fn in_order<K: Ord, V, S: BuildHasher>(map: &HashMap<K, V, S>) -> BTreeMap<&K, &V> {
    map.iter().collect()
}
