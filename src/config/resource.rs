//! How a route names the resource of a request: [`ResourceRule`].
//!
//! A template is checked at load: its parameters exist in the route's path pattern, and what it fills in to
//! can be a resource name. What a request fills in still goes through [`Resource::parse`], the only place
//! that decides what a name is.

use std::fmt;

use highgate_elector::{Resource, ResourceError};

use super::glob::Glob;
use super::grants::names;
use super::pattern::{Captured, Captures, PathPattern};

#[derive(Debug, Clone, PartialEq)]
pub enum ResourceRule {
    /// Every request of the route has the same one.
    Fixed(Resource),
    /// It depends on the request's path or host.
    Template(Template),
    /// The client says it in `X-Fencing-Resource`; without that, the default if there is one.
    Client { default: Option<Resource> },
}

/// `ledger/{account}`, with the parameters' places resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Param(usize),
    Host,
}

/// Why a template in the config file is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("a `{{` or `}}` without its other half")]
    Braces,
    #[error("`{{{0}}}` is not captured by the path pattern ({1})")]
    Unknown(String, String),
    #[error(transparent)]
    Name(#[from] ResourceError),
}

impl ResourceRule {
    pub fn parse(source: &str, pattern: &PathPattern) -> Result<Self, TemplateError> {
        let template = Template { source: source.to_owned(), parts: parts(source, pattern)? };
        if let [Part::Text(name)] = template.parts.as_slice() {
            return Ok(Self::Fixed(Resource::parse(name)?));
        }
        template.fill_with(|_| "x", "x")?;
        Ok(Self::Template(template))
    }
}

/// A part of a name, with parameters by their places in the path instead of in one pattern's captures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Host,
    Path(Captured),
}

impl Template {
    pub(super) fn pieces(&self, pattern: &PathPattern) -> Vec<Piece> {
        let piece = |part: &Part| match part {
            Part::Text(text) => Piece::Text(text.clone()),
            Part::Param(position) => Piece::Path(pattern.captured(*position)),
            Part::Host => Piece::Host,
        };
        self.parts.iter().map(piece).collect()
    }

    /// The names that it fills in to; more than these, where a parameter for several segments is not the last.
    pub(super) fn glob(&self, pattern: &PathPattern) -> Glob {
        let mut source = String::new();
        for piece in self.pieces(pattern) {
            match piece {
                Piece::Text(text) => source.push_str(&text),
                Piece::Host | Piece::Path(Captured::Segment(_)) => source.push_str("{}"),
                Piece::Path(Captured::Rest(_)) => {
                    let start =
                        source.strip_suffix('/').map_or_else(String::new, |start| format!("{start}/"));
                    source = format!("{start}*");
                    break;
                }
            }
        }
        names(&source).unwrap_or_else(|_| Glob::everything())
    }

    /// Whether filling it in needs the request's host.
    pub fn uses_host(&self) -> bool {
        self.parts.contains(&Part::Host)
    }

    /// The resource of a request: `captures` are of the pattern the template was parsed with.
    pub fn fill(&self, captures: &Captures<'_>, host: &str) -> Result<Resource, ResourceError> {
        self.fill_with(|position| captures.get(position), host)
    }

    fn fill_with<'a>(&self, param: impl Fn(usize) -> &'a str, host: &str) -> Result<Resource, ResourceError> {
        let mut name = String::with_capacity(64);
        for part in &self.parts {
            name.push_str(match part {
                Part::Text(text) => text,
                Part::Param(position) => param(*position),
                Part::Host => host,
            });
        }
        Resource::parse(&name)
    }
}

fn parts(source: &str, pattern: &PathPattern) -> Result<Vec<Part>, TemplateError> {
    let mut parts = Vec::new();
    let mut rest = source;
    while let Some((text, after)) = rest.split_once('{') {
        let (param, after) = after.split_once('}').ok_or(TemplateError::Braces)?;
        push_text(&mut parts, text)?;
        parts.push(match param {
            "host" => Part::Host,
            _ => Part::Param(pattern.position(param).ok_or_else(|| unknown(param, pattern))?),
        });
        rest = after;
    }
    push_text(&mut parts, rest)?;
    Ok(parts)
}

fn push_text(parts: &mut Vec<Part>, text: &str) -> Result<(), TemplateError> {
    if text.contains('}') {
        return Err(TemplateError::Braces);
    }
    if !text.is_empty() || parts.is_empty() {
        parts.push(Part::Text(text.to_owned()));
    }
    Ok(())
}

fn unknown(param: &str, pattern: &PathPattern) -> TemplateError {
    let captured = match pattern.params() {
        [] => "it captures nothing".to_owned(),
        params => format!("it captures {}", params.join(", ")),
    };
    TemplateError::Unknown(param.to_owned(), captured)
}

impl fmt::Display for ResourceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(resource) => resource.fmt(f),
            Self::Template(template) => f.write_str(&template.source),
            Self::Client { default: None } => f.write_str("named by the client"),
            Self::Client { default: Some(default) } => write!(f, "named by the client, or {default}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CanonicalPath;

    fn rule(source: &str, pattern: &str) -> Result<ResourceRule, TemplateError> {
        ResourceRule::parse(source, &PathPattern::parse(pattern).unwrap())
    }

    fn filled(source: &str, pattern: &str, path: &str) -> Result<String, ResourceError> {
        let pattern = PathPattern::parse(pattern).unwrap();
        let ResourceRule::Template(template) = ResourceRule::parse(source, &pattern).unwrap() else {
            panic!("{source} has a parameter");
        };
        let captures = pattern.captures(&CanonicalPath::parse(path).unwrap());
        template.fill(&captures, "ledger.internal").map(|resource| resource.to_string())
    }

    #[test]
    fn templates_fill_in_to_canonical_names() {
        let accounts = "/{kind}/{account}/{*rest}";
        assert_eq!(filled("ledger/{account}", accounts, "/a/ACCT%2D7/x").unwrap(), "ledger/acct-7");
        assert_eq!(filled("{host}/{kind}-{account}", accounts, "/a/7").unwrap(), "ledger.internal/a-7");
        assert_eq!(filled("files/{rest}", accounts, "/a/7/b/c").unwrap(), "files/b/c");
        assert_eq!(filled("files/{rest}", accounts, "/a/7"), Err(ResourceError::EmptySegment));
    }

    #[test]
    fn a_template_without_parameters_is_one_resource() {
        assert_eq!(
            rule("Ledger/Main", "/"),
            Ok(ResourceRule::Fixed(Resource::parse("ledger/main").unwrap()))
        );
    }

    #[test]
    fn templates_that_could_never_name_anything_are_refused() {
        let unknown = |param: &str, captured: &str| TemplateError::Unknown(param.into(), captured.into());
        for (source, error) in [
            ("a/{b}", unknown("b", "it captures account")),
            ("a/{}", unknown("", "it captures account")),
            ("a/{account", TemplateError::Braces),
            ("a/account}", TemplateError::Braces),
            ("a/{account}}", TemplateError::Braces),
            ("", TemplateError::Name(ResourceError::EmptySegment)),
            ("/{account}", TemplateError::Name(ResourceError::EmptySegment)),
            ("../{account}", TemplateError::Name(ResourceError::DotSegment)),
            ("a%/{account}", TemplateError::Name(ResourceError::BadEscape)),
        ] {
            assert_eq!(rule(source, "/{account}"), Err(error), "{source:?}");
        }
        assert_eq!(rule("{a}", "/"), Err(unknown("a", "it captures nothing")));
    }
}
