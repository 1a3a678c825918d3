//! What a route takes of a request's body: on which methods, how much, and which fields after it.
//!
//! An upstream that does not read a body takes it for the next request on its connection, which no fence has seen. Many
//! servers read none of a GET, so a body there passes only where the file says that the upstream wants it.

use http::{HeaderName, Method};
use toml::Spanned;

use super::fields::may_trail;
use super::raw::{Flag, Text, Texts};
use super::route::is_safe;
use super::scope::{BODY_SIZES, Scope, size};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bodies {
    /// Whether GET, HEAD, OPTIONS and TRACE may have one.
    pub of_reads: bool,
    /// How many bytes one may have; none: any number.
    pub max: Option<u64>,
    /// The fields that may come after one.
    pub trailers: Vec<HeaderName>,
    /// Whether the upstream may be sent another request on the connection of one.
    pub keep_alive: bool,
}

/// The keys of a route that are read here.
pub(super) struct RawBodies {
    pub(super) of_reads: Flag,
    pub(super) max: Text,
    pub(super) trailers: Texts,
    pub(super) keep_alive: Flag,
}

impl Bodies {
    pub fn allow(&self, method: &Method) -> bool {
        self.of_reads || !is_safe(method)
    }

    pub(super) fn read(raw: RawBodies, scope: &mut Scope<'_, '_>) -> Self {
        let flag = |flag: Flag, default| flag.map_or(default, Spanned::into_inner);
        let max = scope.read("max_body", raw.max, |text| match text.as_str() {
            "none" => Ok(None),
            text => size(text, BODY_SIZES).map(Some),
        });
        let names = raw.trailers.map(Spanned::into_inner).unwrap_or_default().into_iter().enumerate();
        let trailers = names
            .filter_map(|(index, name)| {
                scope.read(&format!("request_trailers[{index}]"), Some(name), |name| trailer(&name))
            })
            .collect();
        Self {
            of_reads: flag(raw.of_reads, false),
            max: max.flatten(),
            trailers,
            keep_alive: flag(raw.keep_alive, true),
        }
    }
}

fn trailer(name: &str) -> Result<HeaderName, String> {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(name) if may_trail(name.as_str()) => Ok(name),
        Ok(_) => Err(format!("{name:?} would change the request that was judged")),
        Err(_) => Err(format!("{name:?} is not a header name")),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{ROUTE, parse, refusal};

    #[test]
    fn bodies_on_reads_and_trailers_are_off_unless_the_file_says_so() {
        let bodies = |lines: &str| {
            let config = parse(&format!("{ROUTE}{lines}")).unwrap();
            config.routes.iter().next().unwrap().bodies.clone()
        };
        let usual = bodies("");
        assert!(!usual.of_reads && usual.trailers.is_empty() && usual.keep_alive && usual.max.is_none());
        assert!(!usual.allow(&http::Method::GET) && usual.allow(&http::Method::POST));
        let other =
            bodies("read_bodies = true\nrequest_trailers = ['X-Checksum']\nupstream_keep_alive = false");
        assert!(other.allow(&http::Method::GET) && !other.keep_alive);
        assert_eq!(other.trailers, ["x-checksum"]);
        assert_eq!(bodies("max_body = '10MiB'").max, Some(10 << 20));
        assert_eq!(bodies("max_body = 'none'").max, None);
    }

    #[test]
    fn a_limit_has_a_unit() {
        for text in ["", "10", "0KiB", "10MB", "2TiB", "off"] {
            let message = refusal(&format!("{ROUTE}max_body = '{text}'"));
            assert!(message.starts_with("f.toml:4:12: routes[0].max_body: "), "{message}");
        }
    }

    #[test]
    fn a_trailer_that_would_change_its_request_cannot_be_listed() {
        for name in ["Connection", "x-fencing-token", "X_Forwarded_Host", "content-length", "a b", ""] {
            let message = refusal(&format!("{ROUTE}request_trailers = ['x-checksum', '{name}']"));
            assert!(message.starts_with("f.toml:4:35: routes[0].request_trailers[1]: "), "{message}");
        }
    }
}
