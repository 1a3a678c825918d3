//! Why a flight has to end before it does so by itself, once somebody waits for it.
//!
//! A response ends, so only a higher token that waits makes it late. A stream without an end of its own lasts no longer
//! than its token passes, and no longer than the name that it was admitted under is enough.

/// From then on the drain time-out runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outstayed {
    /// A higher token waits for a response.
    Superseded,
    /// Another request with the token of a stream would be refused.
    ShutOut,
    /// A change of names waits for a stream that lacks the new ones.
    Renamed,
}

impl Outstayed {
    /// What the client of a WebSocket is told.
    pub(super) fn farewell(self) -> &'static str {
        match self {
            Self::Superseded | Self::ShutOut => "its token passes no longer",
            Self::Renamed => "its resource is being renamed",
        }
    }

    /// Why it was cut in the end.
    pub(super) fn cut(self) -> &'static str {
        match self {
            Self::Superseded => "a higher token waits and the drain time-out has passed",
            Self::ShutOut => "its token passes no longer and the drain time-out has passed",
            Self::Renamed => "its resource is being renamed and the drain time-out has passed",
        }
    }
}
