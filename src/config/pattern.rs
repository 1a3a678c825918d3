//! What a route matches: [`PathPattern`] and [`HostPattern`].
//!
//! Both parse once, at load, and match without allocating; a matching path's parameters are then captured as
//! borrowed [`Captures`]. `covers` says whether one pattern leaves nothing for another, which is how a route
//! that could never be reached is found.

use std::fmt;

use super::host::canonical_host;
use super::path::{CanonicalPath, PathError};

/// `/accounts/{account}/{*rest}`: literal segments, `{param}` for one segment, a last `{*rest}` for the rest.
///
/// `/` matches every path. Two patterns are equal when they match the same paths, whatever their parameters
/// are called.
#[derive(Debug, Clone)]
pub struct PathPattern {
    source: String,
    segments: Vec<Segment>,
    /// Whether more segments may follow.
    open_ended: bool,
    /// The names of what is captured, in order; the rest, if it is named, comes last.
    params: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Any,
}

/// What a pattern's parameters stand for in one path, as it was sent, in the pattern's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captures<'p>(Vec<&'p str>);

/// Why a path pattern in the config file is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("`{0}` mixes text and a parameter, which has to be a whole segment")]
    Mixed(String),
    #[error("`{0}` is no parameter name: letters, digits and `_`, not starting with a digit")]
    Name(String),
    #[error("`{{{0}}}` occurs twice")]
    Twice(String),
    #[error("`{{host}}` stands for the request's host and cannot be a path parameter")]
    Host,
    #[error("`{{*{0}}}` is only possible as the last segment")]
    RestNotLast(String),
    #[error("`{0}` is no literal segment: `*`, `?` and `#` never occur in a path that is matched")]
    Literal(String),
}

impl PathPattern {
    pub fn parse(source: &str) -> Result<Self, PatternError> {
        let mut pattern = Self {
            source: source.to_owned(),
            segments: Vec::new(),
            open_ended: source == "/",
            params: Vec::new(),
        };
        let inner = source.strip_prefix('/').ok_or(PathError::NotAbsolute)?;
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        if pattern.open_ended {
            return Ok(pattern);
        }
        for segment in inner.split('/') {
            pattern.push(segment)?;
        }
        Ok(pattern)
    }

    fn push(&mut self, segment: &str) -> Result<(), PatternError> {
        if self.open_ended {
            return Err(PatternError::RestNotLast(self.params.last().cloned().unwrap_or_default()));
        }
        let Some(param) = segment.strip_prefix('{').and_then(|param| param.strip_suffix('}')) else {
            self.segments.push(Segment::Literal(literal(segment)?));
            return Ok(());
        };
        match param.strip_prefix('*') {
            Some(_) => self.open_ended = true,
            None => self.segments.push(Segment::Any),
        }
        let name = param.strip_prefix('*').unwrap_or(param);
        check_name(name)?;
        if self.params.iter().any(|other| other == name) {
            return Err(PatternError::Twice(name.to_owned()));
        }
        self.params.push(name.to_owned());
        Ok(())
    }

    pub fn matches(&self, path: &CanonicalPath<'_>) -> bool {
        self.fits(path, |literal, segment| literal == segment)
    }

    /// Whether it matches to a server that does not tell upper from lower case.
    pub fn matches_in_any_case(&self, path: &CanonicalPath<'_>) -> bool {
        self.fits(path, differ_in_case_at_most)
    }

    fn fits(&self, path: &CanonicalPath<'_>, same: impl Fn(&str, &str) -> bool) -> bool {
        let mut actual = path.segments();
        let prefix = self.segments.iter().all(|expected| match (expected, actual.next()) {
            (Segment::Literal(literal), Some(segment)) => same(literal, segment),
            (Segment::Any, Some(_)) => true,
            (_, None) => false,
        });
        prefix && (self.open_ended || actual.next().is_none())
    }

    /// The parameters of a path that matches.
    pub fn captures<'p>(&self, path: &CanonicalPath<'p>) -> Captures<'p> {
        let mut values = Vec::with_capacity(self.params.len());
        let segments = self.segments.iter().zip(path.raw_segments());
        values.extend(segments.filter(|(expected, _)| **expected == Segment::Any).map(|(_, actual)| actual));
        if values.len() < self.params.len() {
            values.push(path.raw_after(self.segments.len()));
        }
        Captures(values)
    }

    /// The place of a parameter in [`Captures`].
    pub fn position(&self, param: &str) -> Option<usize> {
        self.params.iter().position(|name| name == param)
    }

    pub fn params(&self) -> &[String] {
        &self.params
    }

    /// Whether every path that `other` matches is matched by `self`, in this case of its letters or another.
    pub fn covers(&self, other: &Self) -> bool {
        self.covers_if(other, Segment::is_same_in_any_case)
    }

    /// Whether every path that `other` matches is matched by `self`.
    pub(super) fn covers_exactly(&self, other: &Self) -> bool {
        self.covers_if(other, |own, their| own == their)
    }

    fn covers_if(&self, other: &Self, same: impl Fn(&Segment, &Segment) -> bool) -> bool {
        let enough = if self.open_ended {
            other.segments.len() >= self.segments.len()
        } else {
            !other.open_ended && other.segments.len() == self.segments.len()
        };
        enough
            && self
                .segments
                .iter()
                .zip(&other.segments)
                .all(|(own, their)| *own == Segment::Any || same(own, their))
    }

    /// Whether `other` matches a path that differs from one of `self` in the case of its letters only.
    pub fn meets_in_another_case(&self, other: &Self) -> bool {
        let (own, their) = (self.segments.len(), other.segments.len());
        let meet = (own <= their || other.open_ended) && (their <= own || self.open_ended);
        let pairs = || self.segments.iter().zip(&other.segments);
        let beyond = self.segments.iter().skip(their).any(Segment::has_case);
        meet && pairs().all(|(own, their)| {
            *own == Segment::Any || *their == Segment::Any || own.is_same_in_any_case(their)
        }) && (beyond || pairs().any(|(own, their)| own.has_case() && own != their))
    }
}

impl Segment {
    fn is_same_in_any_case(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Literal(own), Self::Literal(their)) => differ_in_case_at_most(own, their),
            _ => self == other,
        }
    }

    /// Whether it is text with letters that have a case.
    fn has_case(&self) -> bool {
        let has_case = |letter: char| letter.is_lowercase() || letter.is_uppercase();
        matches!(self, Self::Literal(text) if text.contains(has_case))
    }
}

/// Whether two segments are one to a server that does not tell upper from lower case, whichever of the two it compares.
fn differ_in_case_at_most(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
        || !(one.is_ascii() && other.is_ascii())
            && (one.to_lowercase() == other.to_lowercase() || one.to_uppercase() == other.to_uppercase())
}

/// One segment that a pattern's parameter stands for, counted from the start of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Captured {
    Segment(usize),
    /// This segment and all that follow.
    Rest(usize),
}

impl PathPattern {
    /// Where in a path the parameter of this position in [`Captures`] is.
    pub(super) fn captured(&self, position: usize) -> Captured {
        let mut params = self.segments.iter().enumerate().filter(|(_, segment)| **segment == Segment::Any);
        params.nth(position).map_or(Captured::Rest(self.segments.len()), |(at, _)| Captured::Segment(at))
    }

    /// The text that every matching path has at this segment, if there is one.
    pub(super) fn literal_at(&self, at: usize) -> Option<&str> {
        match self.segments.get(at)? {
            Segment::Literal(literal) => Some(literal),
            Segment::Any => None,
        }
    }

    /// The pattern of the paths that both match, if there are any. It captures nothing.
    pub(super) fn meet(&self, other: &Self) -> Option<Self> {
        let (short, long) =
            if self.segments.len() <= other.segments.len() { (self, other) } else { (other, self) };
        if short.segments.len() < long.segments.len() && !short.open_ended {
            return None;
        }
        let mut segments = Vec::with_capacity(long.segments.len());
        for (at, segment) in long.segments.iter().enumerate() {
            segments.push(match (segment, short.segments.get(at)) {
                (Segment::Literal(one), Some(Segment::Literal(other))) if one != other => return None,
                (Segment::Any, Some(theirs)) => theirs.clone(),
                (own, _) => own.clone(),
            });
        }
        let open_ended = self.open_ended && other.open_ended;
        let mut source = String::new();
        for segment in &segments {
            source.push('/');
            source.push_str(match segment {
                Segment::Literal(literal) => literal,
                Segment::Any => "*",
            });
        }
        if open_ended {
            source.push_str("/...");
        }
        Some(Self { source, segments, open_ended, params: Vec::new() })
    }
}

impl Captures<'_> {
    pub fn get(&self, position: usize) -> &str {
        self.0.get(position).copied().unwrap_or_default()
    }
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        self.open_ended == other.open_ended && self.segments == other.segments
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn literal(segment: &str) -> Result<String, PatternError> {
    if segment.contains(['{', '}']) {
        return Err(PatternError::Mixed(segment.to_owned()));
    }
    if segment == "*" || segment.contains(['?', '#']) {
        return Err(PatternError::Literal(segment.to_owned()));
    }
    if segment.is_empty() {
        return Err(PathError::EmptySegment.into());
    }
    Ok(CanonicalPath::parse(&format!("/{segment}"))?.into_decoded())
}

fn check_name(name: &str) -> Result<(), PatternError> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !plain || name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(PatternError::Name(name.to_owned()));
    }
    if name == "host" { Err(PatternError::Host) } else { Ok(()) }
}

/// `ledger.internal`, or `*.internal` for every name below it, however deep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Exact(String),
    /// What follows the star, dot included.
    Below(String),
}

impl HostPattern {
    /// Nothing if it is neither a host nor `*.` and a host, or if it has a port.
    pub fn parse(source: &str) -> Option<Self> {
        let (name, below) = source.strip_prefix("*.").map_or((source, false), |name| (name, true));
        let port = if name.starts_with('[') { !name.ends_with(']') } else { name.contains(':') };
        let name = canonical_host(name).ok().filter(|_| !port)?;
        Some(if below { Self::Below(format!(".{name}")) } else { Self::Exact(name.into_owned()) })
    }

    /// Whether it matches a host in canonical form.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
        }
    }

    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(own), Self::Below(their)) => their.ends_with(own.as_str()),
            (Self::Exact(_), Self::Below(_)) => false,
            (_, Self::Exact(name)) => self.matches(name),
        }
    }
}

impl HostPattern {
    /// The pattern of the hosts that both match, if there are any.
    pub(super) fn meet(&self, other: &Self) -> Option<Self> {
        if self.covers(other) {
            return Some(other.clone());
        }
        other.covers(self).then(|| self.clone())
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(suffix) => write!(f, "*{suffix}"),
        }
    }
}

#[cfg(test)]
mod tests;
