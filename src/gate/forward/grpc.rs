//! What a gRPC response says of its call, beside its HTTP status, which is 200 whatever has become of the call.
//!
//! The word is `grpc-status`: in the trailers, or in the head of a response that has nothing else. Some of its values are
//! also what a balancer, a proxy or the client's own library says that has given up waiting while the server goes on. Those,
//! and a response without any, say nothing of whether the call has ended. The flight asks. gRPC-Web is not read: it has
//! its trailers inside the body.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

const STATUS: &str = "grpc-status";

/// What a gRPC response has said so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Status(u16),
    /// Not one number.
    Nonsense,
}

impl Said {
    /// By a response's head; none if it is not gRPC.
    pub(super) fn in_head(headers: &HeaderMap) -> Option<Self> {
        is_grpc(headers).then(|| Self::Nothing.and_in(headers))
    }

    /// With what these trailers, or this head, say.
    pub(super) fn and_in(self, fields: &HeaderMap) -> Self {
        let mut words = fields.get_all(STATUS).iter();
        match (words.next(), words.next()) {
            (None, _) => self,
            (Some(word), None) => {
                let number = word.to_str().ok().and_then(|word| word.parse().ok());
                number.map_or(Self::Nonsense, Self::Status)
            }
            (Some(_), Some(_)) => Self::Nonsense,
        }
    }

    /// Why this does not say that the call has ended, of a response that is complete.
    pub(super) fn doubt(self) -> Option<&'static str> {
        match self {
            Self::Status(1) => Some("the gRPC call was cancelled (CANCELLED)"),
            Self::Status(2) => Some("the gRPC call ended with UNKNOWN"),
            Self::Status(4) => Some("somebody gave up waiting for the gRPC call (DEADLINE_EXCEEDED)"),
            Self::Status(14) => Some("the gRPC call ended with UNAVAILABLE"),
            Self::Status(_) => None,
            Self::Nothing => Some("the gRPC response had no grpc-status"),
            Self::Nonsense => Some("the gRPC response's grpc-status cannot be read"),
        }
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    let Some((kind, rest)) =
        headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().split_at_checked(TYPE.len()))
    else {
        return false;
    };
    // With a `-` it is gRPC-Web.
    kind.eq_ignore_ascii_case(TYPE) && rest.first().is_none_or(|next| b"+; \t".contains(next))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn the_word_is_in_the_trailers_or_in_a_head_that_is_all() {
        let head = fields(&[("content-type", "application/grpc+proto")]);
        let said = Said::in_head(&head).unwrap();
        assert_eq!(said, Said::Nothing);
        assert_eq!(said.and_in(&fields(&[("grpc-status", "14")])), Said::Status(14));
        let alone = fields(&[("content-type", "application/grpc"), ("grpc-status", "5")]);
        assert_eq!(Said::in_head(&alone), Some(Said::Status(5)));
        assert_eq!(Said::in_head(&alone).unwrap().and_in(&fields(&[("x", "1")])), Said::Status(5));
    }

    #[test]
    fn only_some_words_say_that_the_call_has_ended() {
        let is_in_doubt = |number| Said::Status(number).doubt().is_some();
        let doubtful: Vec<u16> = (0..20).filter(|number| is_in_doubt(*number)).collect();
        assert_eq!(doubtful, [1, 2, 4, 14]);
        for nonsense in [&[("grpc-status", "fine")][..], &[("grpc-status", "0"), ("grpc-status", "0")]] {
            assert_eq!(Said::Nothing.and_in(&fields(nonsense)), Said::Nonsense);
        }
        assert!(Said::Nonsense.doubt().is_some() && Said::Nothing.doubt().is_some());
    }

    #[test]
    fn what_is_not_grpc_has_no_word() {
        for kind in
            ["application/json", "application/grpc-web+proto", "application/grpc-web-text", "application/gr"]
        {
            assert_eq!(
                Said::in_head(&fields(&[("content-type", kind), ("grpc-status", "14")])),
                None,
                "{kind}"
            );
        }
        assert_eq!(Said::in_head(&HeaderMap::new()), None);
        for kind in ["application/grpc", "Application/GRPC; x=y", "application/grpc+json"] {
            assert!(Said::in_head(&fields(&[("content-type", kind)])).is_some(), "{kind}");
        }
    }
}
