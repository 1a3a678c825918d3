//! The end in order: unready, then nothing new, then what is under way, then the store.

/// How far the gateway's end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Requests are served.
    Serving,
    /// No new connections; connections end after what they are doing.
    Draining,
    /// Whatever is left is dropped.
    Ended,
}
