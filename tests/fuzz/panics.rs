//! Panics as values. What a panic said is kept for the report instead of being printed when it happens.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::Mutex;

/// What was said by the first panic since it was last taken, on whichever thread.
static SAID: Mutex<Option<String>> = Mutex::new(None);

/// From now on panics are kept.
pub(crate) fn keep() {
    set_hook(Box::new(|info| {
        SAID.lock().expect("nothing panics while it holds this").get_or_insert(info.to_string());
    }));
}

pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // What it has left half done is not looked at any more: every check builds its own world.
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        let said = SAID.lock().expect("nothing panics while it holds this").take();
        said.unwrap_or_else(|| "it panicked, and said nothing".to_owned())
    })
}
