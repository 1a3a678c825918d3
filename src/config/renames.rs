//! What a change of the config does to the names of resources: which requests get another name, and what the
//! marks of the new names have to start from.
//!
//! A request that was checked under one mark and is checked under another from now on must not find that the
//! fence has forgotten its leader. So the gateway admits it under both names for a while, and every new name
//! starts from the mark of the old one ([`Floors`]). Where that cannot be worked out from the names, the change
//! is refused. Used by reloads, by starts, and by `highgate check --against`.

use std::fmt;

use highgate_elector::Resource;

use super::floors::{Floors, NamePattern};
use super::naming::{Entry, Naming};
use super::pattern::Captured;
use super::resource::{Piece, ResourceRule};
use super::route::Matcher;

/// Requests that are called differently by two configs.
#[derive(Debug, Clone, PartialEq)]
pub struct Rename {
    /// The requests that both match.
    pub requests: Matcher,
    pub from: ResourceRule,
    pub to: ResourceRule,
    old: Shape,
    new: Shape,
}

/// A change of names for which the marks to start from cannot be known.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "requests to {requests} are fenced as `{from}` and would be fenced as `{to}`, and from the name of the one \
     the names of the other do not follow, so nobody knows which marks to start from. Go by way of one fixed \
     name: change the resource to a plain name first, wait until `highgate status` shows no change of names, \
     and change it to `{to}` then; or give the gateways another store (--data-dir, prefix), if no leader of before can \
     write any more"
)]
pub struct Unknowable {
    pub requests: String,
    pub from: String,
    pub to: String,
}

/// What a name consists of, for requests of a certain match.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    /// The client says it; this one is meant if it says nothing.
    Client(Option<Resource>),
    Pieces(Vec<Piece>),
}

/// Every pair of names that some request has, before and after. Refused if one cannot be carried over.
pub fn renames(old: &Naming, new: &Naming) -> Result<Vec<Rename>, Unknowable> {
    let mut found = Vec::new();
    for (at, before) in old.entries().iter().enumerate() {
        for (new_at, after) in new.entries().iter().enumerate() {
            // An earlier route takes the requests away, unless it came later and does not fence them.
            let fences = |entry: &&Entry| entry.fences_all_of(before);
            let earlier = old.entries()[..at].iter().filter(fences).chain(&new.entries()[..new_at]);
            found.extend(rename(before, after, earlier)?);
        }
    }
    Ok(found)
}

/// Requests that are fenced before a change and not after it.
pub fn unfenced(old: &Naming, new: &Naming) -> Vec<(Matcher, ResourceRule)> {
    let mut found = Vec::new();
    for (at, before) in old.entries().iter().enumerate() {
        for (new_at, after) in new.entries().iter().enumerate() {
            let Some(both) = before.matcher.meet(&after.matcher) else { continue };
            let mut earlier = old.entries()[..at].iter().chain(&new.entries()[..new_at]);
            let loses =
                before.fenced != after.fenced && !before.fenced.is_nothing() && after.fenced.is_nothing();
            if loses && !earlier.any(|entry| entry.matcher.covers_exactly(&both)) {
                found.push((both, before.resource.clone()));
            }
        }
    }
    found
}

fn rename<'e>(
    before: &Entry,
    after: &Entry,
    mut earlier: impl Iterator<Item = &'e Entry>,
) -> Result<Option<Rename>, Unknowable> {
    let Some(requests) = before.matcher.meet(&after.matcher) else { return Ok(None) };
    let (old, new) = (shape(before, &requests), shape(after, &requests));
    if old == new
        || earlier.any(|entry| entry.matcher.covers_exactly(&requests))
        || !before.fences_some_of(after, requests.methods.as_deref())
    {
        return Ok(None);
    }
    let rename = Rename { requests, from: before.resource.clone(), to: after.resource.clone(), old, new };
    if rename.is_knowable() { Ok(Some(rename)) } else { Err(rename.unknowable()) }
}

/// What the names of an entry consist of, for requests of this match: a parameter that can only be one text there is
/// that text.
fn shape(entry: &Entry, requests: &Matcher) -> Shape {
    let pieces = match &entry.resource {
        ResourceRule::Client { default } => return Shape::Client(default.clone()),
        ResourceRule::Fixed(resource) => vec![Piece::Text(resource.as_str().to_owned())],
        ResourceRule::Template(template) => template.pieces(&entry.matcher.path),
    };
    let mut shape: Vec<Piece> = Vec::new();
    for piece in pieces {
        let known = match piece {
            Piece::Path(Captured::Segment(at)) => {
                requests.path.literal_at(at).map(|text| spelled(&encoded(text)))
            }
            Piece::Host => requests.exact_host().map(spelled),
            Piece::Text(ref text) => Some(spelled(text)),
            Piece::Path(Captured::Rest(_)) => None,
        };
        match (known, shape.last_mut()) {
            (Some(text), Some(Piece::Text(before))) => before.push_str(&text),
            (Some(text), _) => shape.push(Piece::Text(text)),
            (None, _) => shape.push(piece),
        }
    }
    if let [Piece::Text(name)] = shape.as_mut_slice()
        && let Ok(resource) = Resource::parse(name)
    {
        // One spelling of a name, however it was put together.
        *name = resource.as_str().to_owned();
    }
    Shape::Pieces(shape)
}

/// A part of a name, spelled as it is in the names of resources.
fn spelled(text: &str) -> String {
    let part =
        |part: &str| Resource::parse(part).map_or_else(|_| part.to_owned(), |name| name.as_str().to_owned());
    text.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// A decoded segment of a path as a request would send it.
fn encoded(segment: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    segment.bytes().map(escape).collect()
}

impl Rename {
    /// Whether every new name belongs to old names that follow from it: the old name is fixed; or all that the new
    /// name is made of is in the old one; or all that the old one is made of is in the new one.
    fn is_knowable(&self) -> bool {
        let params = |shape: &Shape| match shape {
            Shape::Client(_) => None,
            Shape::Pieces(pieces) => Some(
                pieces.iter().filter(|piece| !matches!(piece, Piece::Text(_))).cloned().collect::<Vec<_>>(),
            ),
        };
        match (params(&self.old), params(&self.new)) {
            (Some(old), Some(_)) if old.is_empty() => true,
            (_, Some(new)) if new.is_empty() => true,
            (Some(old), Some(new)) => {
                let within = |one: &[Piece], other: &[Piece]| one.iter().all(|piece| other.contains(piece));
                can_be_taken_apart(&self.old) && (within(&old, &new) || within(&new, &old))
            }
            _ => false,
        }
    }

    fn unknowable(&self) -> Unknowable {
        Unknowable {
            requests: self.requests.to_string(),
            from: self.from.to_string(),
            to: self.to.to_string(),
        }
    }

    /// What the marks of the new names have to start from, given every mark there is.
    pub fn floors<'m>(&self, marks: impl Iterator<Item = (&'m str, u64)>, before: &Floors) -> Floors {
        let mut floors = Floors::default();
        let names = self.old_names();
        for (name, mark) in marks.filter(|(name, _)| names.matches(name)) {
            floors.raise(self.new_names(name), mark);
        }
        for (pattern, floor) in before.iter() {
            match pattern.as_name() {
                Some(name) if names.matches(name) => floors.raise(self.new_names(name), floor),
                Some(_) => {}
                // Nobody has written under it since the change before: all the new names start from it.
                None if names.may_meet(&pattern) => floors.raise(self.any_new_name(), floor),
                None => {}
            }
        }
        floors
    }

    /// The names that the requests have before the change.
    pub fn old_names(&self) -> NamePattern {
        pattern(&self.old, &[])
    }

    /// Whether one old name becomes many, so that not all of the new ones are raised along with it meanwhile.
    pub fn splits(&self) -> bool {
        match (&self.old, &self.new) {
            (Shape::Pieces(old), Shape::Pieces(new)) => {
                new.iter().any(|piece| !matches!(piece, Piece::Text(_)) && !old.contains(piece))
            }
            _ => false,
        }
    }

    fn any_new_name(&self) -> NamePattern {
        pattern(&self.new, &[])
    }

    /// The new names of what has this old name.
    fn new_names(&self, old: &str) -> NamePattern {
        let known = match &self.old {
            Shape::Client(_) => Vec::new(),
            Shape::Pieces(pieces) => take_apart(pieces, old).unwrap_or_default(),
        };
        pattern(&self.new, &known)
    }
}

impl fmt::Display for Rename {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "requests to {} are fenced as `{}` now and will be as `{}`",
            self.requests, self.from, self.to
        )
    }
}

/// Whether a name shows what each parameter stands for: between two of them there is a slash, and the rest of a path
/// comes last.
fn can_be_taken_apart(shape: &Shape) -> bool {
    let Shape::Pieces(pieces) = shape else { return false };
    pieces.iter().enumerate().all(|(at, piece)| match (piece, pieces.get(at + 1)) {
        (Piece::Text(_), _) | (_, None) => true,
        (Piece::Path(Captured::Rest(_)), Some(_)) => false,
        (_, Some(next)) => matches!(next, Piece::Text(text) if text.starts_with('/')),
    })
}

/// What each parameter of a name stands for. Nothing if the name is not of these pieces.
fn take_apart<'n>(pieces: &[Piece], name: &'n str) -> Option<Vec<(Piece, &'n str)>> {
    let mut rest = name;
    let mut values = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => rest = rest.strip_prefix(text.as_str())?,
            Piece::Path(Captured::Rest(_)) => values.push((piece.clone(), std::mem::take(&mut rest))),
            Piece::Host | Piece::Path(Captured::Segment(_)) => {
                let (value, after) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                values.push((piece.clone(), value));
                rest = after;
            }
        }
    }
    rest.is_empty().then_some(values)
}

fn pattern(shape: &Shape, known: &[(Piece, &str)]) -> NamePattern {
    let pieces = match shape {
        Shape::Client(_) => return NamePattern::anything(),
        Shape::Pieces(pieces) => pieces,
    };
    let mut pattern = NamePattern::default();
    for piece in pieces {
        let value = known.iter().find(|(param, _)| param == piece).map(|(_, value)| *value);
        match (piece, value) {
            (Piece::Text(text), _) => pattern.push_text(text),
            (_, Some(value)) => pattern.push_text(value),
            (Piece::Path(Captured::Rest(_)), None) => pattern.push_rest(),
            (Piece::Host | Piece::Path(Captured::Segment(_)), None) => pattern.push_segment(),
        }
    }
    pattern
}

#[cfg(test)]
mod tests;
