//! `unknown_statuses`: which complete answers of an upstream do not say whether the write has ended.
//!
//! A load balancer that gives up waiting answers 504, and what is behind it goes on; a 202 says itself that the effect
//! is still to come. `gate::forward` asks here when a response has ended to its last byte.

use http::StatusCode;
use toml::Spanned;

use super::scope::Scope;

const KEY: &str = "unknown_statuses";
/// "Later", and everything by which a server or whoever is before it says that it gave up.
const USUAL: [u16; 5] = [202, 408, 502, 503, 504];

/// The statuses of a route after which the outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownStatuses(Vec<u16>);

impl UnknownStatuses {
    pub fn contains(&self, status: StatusCode) -> bool {
        self.0.contains(&status.as_u16())
    }

    /// Whether every complete answer is an end, whatever it says.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that usually leave the outcome unknown and are taken for an end here.
    pub fn missing(&self) -> impl Iterator<Item = u16> {
        USUAL.into_iter().filter(|status| !self.0.contains(status))
    }

    /// Why the outcome is unknown after this status, which is one of them.
    pub fn explain(status: StatusCode) -> &'static str {
        match status.as_u16() {
            202 => "the upstream answered 202",
            408 => "the upstream answered 408",
            502 => "the upstream answered 502",
            503 => "the upstream answered 503",
            504 => "the upstream answered 504",
            _ => "the upstream answered with one of unknown_statuses",
        }
    }

    /// The statuses of the file; with a problem reported for each that is none, or is there twice.
    pub(super) fn read(raw: Option<Spanned<Vec<Spanned<i64>>>>, scope: &mut Scope<'_, '_>) -> Self {
        let Some(raw) = raw else { return Self::default() };
        let mut statuses = Vec::with_capacity(raw.get_ref().len());
        for (index, item) in raw.into_inner().into_iter().enumerate() {
            let status =
                scope.read(&format!("{KEY}[{index}]"), Some(item), |number| parse(number, &statuses));
            statuses.extend(status);
        }
        Self(statuses)
    }
}

fn parse(number: i64, earlier: &[u16]) -> Result<u16, String> {
    let status = u16::try_from(number).ok().filter(|status| (100..=599).contains(status));
    let status = status.ok_or_else(|| format!("{number} is not a status code"))?;
    if earlier.contains(&status) { Err(format!("{status} is here twice")) } else { Ok(status) }
}

impl Default for UnknownStatuses {
    fn default() -> Self {
        Self(USUAL.to_vec())
    }
}
