//! Why a config was refused, one line per problem: `FILE:LINE:COLUMN: KEY: what is wrong; allowed: ...`.
//!
//! Problems of what the file says are collected and reported together; a file that is not TOML, or has an
//! unknown key or a value of the wrong type, ends at the first.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::gap::Gap;
use super::{keys, locate};
use crate::tls::TlsError;
use crate::tls::dev::DevTlsError;

/// A config that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: the config file cannot be read", file.display())]
    Unreadable {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("--dev-tls (or HIGHGATE_DEV_TLS) has no certificate")]
    DevTls(#[from] DevTlsError),
    #[error("--dev-tls (or HIGHGATE_DEV_TLS) has no usable certificate")]
    DevFiles(#[from] TlsError),
    #[error("{}", Lines(problems))]
    Invalid { problems: Vec<Problem> },
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Absent where a flag, the environment or a default is at fault.
    pub place: Option<Place>,
    /// The full path, such as `routes[1].drain_timeout`, or a flag.
    pub key: String,
    pub what: String,
    pub allowed: String,
}

/// Where in a file; lines and columns (in characters) count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: PathBuf,
    pub line: usize,
    pub column: usize,
}

impl ConfigError {
    /// What the TOML parser or serde said about `text`, with the key found from the place in the document.
    pub(super) fn of_toml(text: &str, file: &Path, error: &toml::de::Error) -> Self {
        let span = error.span().unwrap_or_default();
        if let Some(Gap { at, opening, what, allowed }) = Gap::before(text, span.start, error.message()) {
            let place = Some(Place::at(text, file, at));
            let key = locate::key_at(text, &(opening..opening + 1), error.message());
            return Self::Invalid {
                problems: vec![Problem { place, key, what, allowed: allowed.to_owned() }],
            };
        }
        let place = Some(Place::at(text, file, span.start));
        let key = locate::key_at(text, &span, error.message());
        let (what, allowed) = explain(error.message(), &key);
        Self::Invalid { problems: vec![Problem { place, key, what, allowed }] }
    }
}

/// Splits `... expected ...` into what is wrong and what is allowed, in the words of the key table.
fn explain(message: &str, key: &str) -> (String, String) {
    if message.starts_with("unknown field") {
        return ("unknown key".to_owned(), keys::siblings(key));
    }
    if message == "duplicate key" {
        return ("the key is here twice".to_owned(), "each key once".to_owned());
    }
    let (what, expected) = message.split_once(", expected ").unwrap_or((message, "TOML 1.0"));
    match keys::allowed(key).filter(|_| message.starts_with("invalid type")) {
        Some(allowed) => (what.replacen("invalid type:", "wrong type:", 1), allowed.to_owned()),
        None => (what.to_owned(), expected.to_owned()),
    }
}

impl Place {
    pub(super) fn at(text: &str, file: &Path, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// Collects the problems of one config; `text` is what its spans point into.
pub(super) struct Report<'t> {
    text: &'t str,
    file: Option<&'t Path>,
    problems: Vec<Problem>,
}

impl<'t> Report<'t> {
    pub(super) fn new(text: &'t str, file: Option<&'t Path>) -> Self {
        Self { text, file, problems: Vec::new() }
    }

    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Adds a problem of what the file says at `span`.
    pub(super) fn add(&mut self, span: Range<usize>, key: String, what: impl Into<String>) {
        let place = self.file.map(|file| Place::at(self.text, file, span.start));
        let allowed = keys::allowed(&key).map_or_else(|| keys::siblings(&key), str::to_owned);
        self.problems.push(Problem { place, key, what: what.into(), allowed });
    }

    /// Adds a problem of a flag, or of its environment variable.
    pub(super) fn add_flag(&mut self, flag: &str, what: impl Into<String>, allowed: &str) {
        let (key, what, allowed) = (flag.to_owned(), what.into(), allowed.to_owned());
        self.problems.push(Problem { place: None, key, what, allowed });
    }

    /// `value`, unless something was wrong; in the order of the file.
    pub(super) fn finish<T>(mut self, value: T) -> Result<T, ConfigError> {
        if self.problems.is_empty() {
            return Ok(value);
        }
        self.problems.sort_by_key(|problem| problem.place.as_ref().map(|place| (place.line, place.column)));
        Err(ConfigError::Invalid { problems: self.problems })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { file, line, column }) = &self.place {
            write!(f, "{}:{line}:{column}: ", file.display())?;
        }
        write!(f, "{}: {}; allowed: {}", self.key, self.what, self.allowed)
    }
}

/// One problem per line.
struct Lines<'p>(&'p [Problem]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}
