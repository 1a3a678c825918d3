//! What ended a term, said to every gateway: etcd tells that a key has gone, and not why.
//!
//! Whoever resigns, is evicted or is outlived by an era or a higher mark through a gateway has that put into
//! `<prefix>/x/last` by the transaction that deletes the candidate's key, so every gateway hears of both in one revision. It is
//! for the history and the metrics: nothing is decided by it, and a key that is missing or unreadable only means that
//! nobody knows. Only the revision that puts it has a meaning, so all share one key, however many resources there are.

use highgate_etcd::keys::{Key, Keys};
use highgate_etcd::{KeyValue, Put, Txn};

use super::values::Poll;
use crate::elections::Ended;

const RESIGNED: &str = "resigned";
const EVICTED: &str = "evicted";
const SUPERSEDED: &str = "superseded";

/// The transaction that deletes this candidate's key, and says why.
pub(super) fn saying_why(delete: Txn, keys: &Keys, candidate: &[u8], why: Ended) -> Txn {
    let word = match why {
        Ended::Resigned => RESIGNED,
        Ended::Evicted => EVICTED,
        Ended::Overtaken => SUPERSEDED,
        Ended::Expired | Ended::Gone => return delete,
    };
    let value = [word.as_bytes(), b" ", candidate].concat();
    delete.then(Put::new(place(keys), value))
}

/// What a key says that is none of the fence's and none of an election's.
pub(super) fn read(keys: &Keys, kv: &KeyValue) -> Option<Poll> {
    kv.key.strip_prefix(below(keys).as_bytes())?;
    let cut = kv.value.iter().position(|byte| *byte == b' ')?;
    let (word, candidate) = (&kv.value[..cut], &kv.value[cut + 1..]);
    let why = match std::str::from_utf8(word).ok()? {
        RESIGNED => Ended::Resigned,
        EVICTED => Ended::Evicted,
        SUPERSEDED => Ended::Overtaken,
        _ => return None,
    };
    let Some(Key::Candidate { resource, .. }) = keys.parse(candidate) else { return None };
    Some(Poll::Ends { resource, key: candidate.to_vec(), why })
}

/// Below which they all are.
pub(super) fn below(keys: &Keys) -> String {
    format!("{}x/", keys.root())
}

/// Each overwrites the one before.
fn place(keys: &Keys) -> String {
    format!("{}last", below(keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use highgate_elector::Resource;

    fn kv(key: &str, value: &str) -> KeyValue {
        KeyValue { key: key.into(), value: value.into(), ..KeyValue::default() }
    }

    #[test]
    fn what_is_said_with_a_deletion_is_read_by_everybody() {
        let keys = Keys::new("/p");
        let candidate = keys.candidate(&Resource::parse("ledger/7").unwrap(), 0x7f);
        let told = read(&keys, &kv(&place(&keys), "evicted /p/e/ledger%2F7/7f"));
        let Some(Poll::Ends { resource, key, why }) = told else { panic!("it is not read") };
        assert_eq!((resource.as_str(), key, why), ("ledger/7", candidate.into_bytes(), Ended::Evicted));
    }

    #[test]
    fn what_is_not_said_in_these_words_says_nothing() {
        let keys = Keys::new("/p");
        for (key, value) in [
            ("/p/x/a", ""),
            ("/p/x/a", "evicted"),
            ("/p/x/a", "vanished /p/e/a/7f"),
            ("/p/x/a", "evicted /p/f/a"),
            ("/p/y/a", "evicted /p/e/a/7f"),
            ("/q/x/a", "evicted /p/e/a/7f"),
        ] {
            assert!(read(&keys, &kv(key, value)).is_none(), "{key} {value}");
        }
    }
}
