//! Upstreams that lie about where their response ends, or say more than one.

use std::sync::{Arc, Mutex};

use super::recorder::Recorder;
use super::table::cases;
use crate::support::{gateway, post};

/// Each case is an answer in exact bytes, after which the upstream says no more on that connection unless it is asked.
/// `pass` is 200 with the body `hello`, `502` is the gateway's, `cut` a response that visibly breaks off; whatever it
/// is, the next request gets its own answer, and a higher token its turn.
pub(super) fn try_all(table: &str) {
    for case in cases(table) {
        let lie = Arc::new(Mutex::new(Some(case.bytes.clone())));
        let recorder = Recorder::answering(move |request| match lie.lock().expect("nobody panics").take() {
            Some(lie) => lie,
            None => format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
                request.target.len(),
                request.target
            )
            .into_bytes(),
        });
        let gate = gateway(recorder.address)
            .route("lock_delay", "10ms")
            .route("response_timeout", "1s")
            .route("idle_timeout", "1s")
            .listen("workers", 1)
            .start();
        let mut client = gate.connect();
        client.send(post("/lie").token(7).bytes());
        let answer = client.response();
        let name = &case.name;
        match case.want.as_str() {
            "pass" => {
                assert_eq!((answer.is_ok().text().as_str(), answer.reason()), ("hello", None), "{name}");
            }
            "cut" => assert!(answer.status == 200 && !answer.complete, "{name}: {answer:?}"),
            status => {
                assert_eq!(answer.status.to_string(), status, "{name}: {answer:?}");
                assert_eq!(
                    (answer.reason(), answer.outcome()),
                    (Some("upstream"), Some("unknown")),
                    "{name}"
                );
            }
        }
        assert!(answer.head.headers.iter().all(|(name, _)| !name.contains("injected")), "{name}: {answer:?}");
        for (path, token) in [("/next", 7), ("/last", 8)] {
            let own = gate.ask(&post(path).token(token));
            assert_eq!((own.status, own.text().as_str()), (200, path), "{name}: somebody else's answer");
        }
    }
}
