//! Header fields by what they do to a request, whatever their spelling.
//!
//! Many servers know neither the case of a field's name nor the difference of `_` and `-`, so every question here is
//! asked of the folded name. `gate::claim` refuses fields by it, `gate::forward` drops them, and the config file may not
//! list some of them.

/// What the names of the gateway's own fields begin with.
const FENCING: &str = "x-fencing-";

/// Fields by which frameworks let a request stand for another method or path than its first line says.
pub const OVERRIDES: [&str; 5] =
    ["x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url"];

/// Fields that say where a message ends.
pub const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];

/// Fields by which a client could say to the upstream that another host or path was asked for. The gateway says
/// that itself, in `X-Forwarded-For`, `-Host` and `-Proto`.
const FORWARDING: [&str; 4] = ["forwarded", "x-host", "x-original-host", "x-http-host-override"];
const FORWARDED: &str = "x-forwarded-";

/// Fields that frame, route, authorise or condition a message, or speak of one connection: whoever reads them after the
/// body would read another message than the one that was judged.
const NEVER_TRAIL: [&str; 23] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "max-forwards",
    "origin",
    "pragma",
    "range",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];
const NEVER_TRAIL_BEGINNINGS: [&str; 4] = [FENCING, FORWARDED, "proxy-", "if-"];

/// Whether `name` is the field `known` to software that folds names; `known` is in lower case.
pub fn reads_as(name: &[u8], known: &str) -> bool {
    name.len() == known.len() && begins_as(name, known)
}

/// Whether `name` begins with `known` to software that folds names.
pub fn begins_as(name: &[u8], known: &str) -> bool {
    let fold = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() >= known.len() && name.iter().zip(known.bytes()).all(|(own, known)| fold(*own) == fold(known))
}

/// Whether a field is one by which the gateway speaks.
pub fn is_fencing(name: &str) -> bool {
    begins_as(name.as_bytes(), FENCING)
}

/// Whether a field says, in the client's words, whose request this is or where it was meant to go. `name` is in lower case;
/// the list of `X-Forwarded-For` is the one thing of the kind that is gone on with.
pub fn is_forwarding(name: &str) -> bool {
    let bytes = name.as_bytes();
    let plausible = matches!(bytes.first(), Some(b'f' | b'x')) && name != "x-forwarded-for";
    plausible && (begins_as(bytes, FORWARDED) || FORWARDING.iter().any(|known| reads_as(bytes, known)))
}

/// Whether a field may come after the body it belongs to.
pub fn may_trail(name: &str) -> bool {
    let name = name.as_bytes();
    let never = NEVER_TRAIL.iter().chain(&OVERRIDES).any(|known| reads_as(name, known));
    !never && !NEVER_TRAIL_BEGINNINGS.iter().any(|known| begins_as(name, known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_known_in_every_spelling() {
        for name in ["x-http-method", "X-HTTP-Method", "x_http_method", "X-Http_method"] {
            assert!(reads_as(name.as_bytes(), "x-http-method"), "{name}");
        }
        for name in ["x-http-methods", "x-http-metho", "xhttpmethod", ""] {
            assert!(!reads_as(name.as_bytes(), "x-http-method"), "{name}");
        }
        assert!(is_fencing("X_Fencing_Whatever") && !is_fencing("x-fence"));
    }

    #[test]
    fn a_client_does_not_say_where_its_request_was_meant_to_go() {
        for name in [
            "forwarded",
            "x-forwarded-host",
            "x_forwarded_host",
            "x_forwarded_for",
            "x-forwarded-prefix",
            "x_host",
        ] {
            assert!(is_forwarding(name), "{name}");
        }
        for name in ["x-forwarded-for", "via", "host", "x-request-id", "traceparent", "f"] {
            assert!(!is_forwarding(name), "{name}");
        }
    }

    #[test]
    fn what_would_change_the_message_does_not_trail() {
        for name in [
            "Connection",
            "transfer_encoding",
            "X-Fencing-Token",
            "x_forwarded_host",
            "Proxy-Anything",
            "If-Match",
        ] {
            assert!(!may_trail(name), "{name}");
        }
        for name in ["x-checksum", "content-digest", "grpc-status", "etag", "server-timing"] {
            assert!(may_trail(name), "{name}");
        }
    }
}
