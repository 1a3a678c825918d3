//! What is true of every request that reaches an upstream, whatever the client sent.

use super::recorder::{Read, Stream};

pub(super) fn check(stream: &Stream) {
    assert_eq!(stream.garbage, None, "{}", String::from_utf8_lossy(&stream.bytes));
    let count = stream.requests.len();
    for (number, request) in stream.requests.iter().enumerate() {
        check_framing(request);
        check_fields(request);
        if values(request, "connection") == ["close"] {
            assert_eq!(
                number + 1,
                count,
                "something followed a request that was to be the last: {request:?}"
            );
        } else {
            assert!(values(request, "connection").is_empty(), "{request:?}");
        }
    }
}

fn values<'r>(request: &'r Read, name: &str) -> Vec<&'r str> {
    let same = request.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    same.map(|(_, value)| value.as_str()).collect()
}

fn check_framing(request: &Read) {
    let lengths = values(request, "content-length");
    match values(request, "transfer-encoding").as_slice() {
        [] => {
            let plain =
                |length: &&str| length.parse::<i64>().is_ok_and(|number| number.to_string() == **length);
            assert!(lengths.len() <= 1 && lengths.iter().all(plain), "{request:?}");
        }
        ["chunked"] => assert!(lengths.is_empty(), "{request:?}"),
        other => panic!("{other:?} in {request:?}"),
    }
    let read = matches!(request.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE");
    assert!(!read || request.body.is_empty(), "a read with a body: {request:?}");
}

fn check_fields(request: &Read) {
    assert_eq!(values(request, "host").len(), 1, "{request:?}");
    assert!(request.target.is_ascii() && !request.target.contains('#'), "{request:?}");
    let tokens = values(request, "x-fencing-token");
    assert!(tokens.len() <= 1, "{request:?}");
    assert!(request.method != "POST" || tokens == ["7"], "{request:?}");
    for (name, _) in &request.headers {
        let folded = name.to_ascii_lowercase().replace('_', "-");
        let hidden = [
            "upgrade",
            "trailer",
            "expect",
            "keep-alive",
            "proxy-connection",
            "forwarded",
            "x-http-method-override",
            "x-original-url",
        ];
        assert!(!hidden.contains(&folded.as_str()), "{name} in {request:?}");
        let ours = folded.starts_with("x-fencing-") || folded.starts_with("x-forwarded-");
        assert!(!ours || !name.contains('_'), "{name} in {request:?}");
    }
}
