//! What the tests of this crate share: the authority of the gateway's own tests.

#[path = "../../tests/it/support/authority.rs"]
mod authority;

use std::sync::OnceLock;

pub(crate) use authority::{Authority, replace};

impl Authority {
    /// One for tests that do not mind each other.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Authority> = OnceLock::new();
        SHARED.get_or_init(Self::new)
    }

    /// Some certificate.
    pub(crate) fn shared_leaf() -> &'static [u8] {
        static LEAF: OnceLock<Vec<u8>> = OnceLock::new();
        LEAF.get_or_init(|| Self::shared().server(&["a.test"]).cert.der().to_vec())
    }
}
