//! The companion of the Highgate gateway: what a leader and the gate in front of its resource agree on.
//!
//! This crate defines the wire contract once: the [`Token`] a leader sends, the [`Resource`] it writes to,
//! and the header names that carry both. The gateway and its clients parse with the same code, so there is
//! no second opinion on what a token is.
//!
//! ```
//! use highgate_elector::{Resource, Token};
//!
//! let token = Token::parse(b"42")?;
//! let resource = Resource::parse("Ledger/acct%2D7")?;
//! assert_eq!((token.get(), resource.as_str()), (42, "ledger/acct-7"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod token;

pub use token::{Resource, ResourceError, Token, TokenError, headers};
