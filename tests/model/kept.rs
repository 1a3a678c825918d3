//! A part of a state that most actions leave alone: shared until it changes, and hashed only then.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Kept<T> {
    value: Arc<T>,
    digest: u64,
}

impl<T: Clone + Hash> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { digest: digest(&value), value: Arc::new(value) }
    }

    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let value = Arc::make_mut(&mut self.value);
        let result = change(value);
        self.digest = digest(value);
        result
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Hash for Kept<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
    }
}

impl<T: fmt::Debug> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// The same in every run, so that counts can be compared.
pub(crate) fn digest(value: &impl Hash) -> u64 {
    foldhash::fast::FixedState::default().hash_one(value)
}
