//! Single keys that somebody waits to see changed.
//!
//! A winner that waits for the gateways registers the mark and its own key here, and [`super::mirror`], which
//! has the process's only watch, tells of their changes. The changes of all other marks pass by: nothing is kept
//! but what is waited for. What must stay true: whoever was registered before a change hears of it, or hears that
//! something may have been missed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use highgate_etcd::KeyValue;
use tokio::sync::watch;

/// What a key holds now; None of one that was deleted, or may have been changed.
type News = Option<Vec<u8>>;

#[derive(Default)]
pub(super) struct Interests {
    keys: Mutex<HashMap<Vec<u8>, watch::Sender<News>>>,
}

/// One key. Dropping it ends the interest.
pub(super) struct Interest {
    interests: Arc<Interests>,
    key: Vec<u8>,
    news: watch::Receiver<News>,
}

impl Interests {
    /// From now on.
    pub(super) fn of(self: &Arc<Self>, key: &str) -> Interest {
        let key = key.as_bytes().to_vec();
        let news = self.keys().entry(key.clone()).or_insert_with(|| watch::channel(None).0).subscribe();
        Interest { interests: Arc::clone(self), key, news }
    }

    /// The key was put; or it was deleted, and its value is empty.
    pub(super) fn tell(&self, kv: &KeyValue) {
        if let Some(tell) = self.keys().get(&kv.key) {
            tell.send_replace(Some(kv.value.clone()).filter(|value| !value.is_empty()));
        }
    }

    /// Everything may be different.
    pub(super) fn tell_all(&self) {
        for tell in self.keys().values() {
            tell.send_replace(None);
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Vec<u8>, watch::Sender<News>>> {
        self.keys.lock().expect("nothing panics while it holds this lock")
    }
}

impl Interest {
    /// What there is after the next changes. Dropping the future loses none of them.
    pub(super) async fn changed(&mut self) -> News {
        self.news.changed().await.expect("the sender stays while somebody is interested");
        self.news.borrow_and_update().clone()
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut keys = self.interests.keys();
        // This one's own receiver is still there.
        if keys.get(&self.key).is_some_and(|tell| tell.receiver_count() == 1) {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &str, value: &str) -> KeyValue {
        KeyValue { key: key.into(), value: value.into(), ..KeyValue::default() }
    }

    #[tokio::test]
    async fn the_latest_change_of_a_key_is_heard_by_all_who_wait_for_it() {
        let interests = Arc::new(Interests::default());
        let (mut one, mut other) = (interests.of("/p/f/a"), interests.of("/p/f/a"));
        interests.tell(&kv("/p/f/b", "not this"));
        interests.tell(&kv("/p/f/a", "first"));
        interests.tell(&kv("/p/f/a", "second"));
        assert_eq!(one.changed().await, Some(b"second".to_vec()));
        assert_eq!(other.changed().await, Some(b"second".to_vec()));
        interests.tell(&kv("/p/f/a", ""));
        assert_eq!(one.changed().await, None);
        interests.tell_all();
        assert_eq!((one.changed().await, other.changed().await), (None, None));
    }

    #[tokio::test]
    async fn nothing_is_kept_of_what_nobody_waits_for() {
        let interests = Arc::new(Interests::default());
        let (one, mut other) = (interests.of("/p/f/a"), interests.of("/p/f/a"));
        drop(one);
        interests.tell(&kv("/p/f/a", "still heard"));
        assert_eq!(other.changed().await, Some(b"still heard".to_vec()));
        drop(other);
        assert!(interests.keys().is_empty());
    }
}
