//! What a token is, and what every answer of the table says about a request that does not pass.

use crate::support::{H2, Origin, Running, ask, delete, gateway_to, get, origin, post, put};

fn stand() -> (Origin, Running) {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    (origin, gate)
}

/// Values that are no token, each with a reason to be tried.
const NO_TOKENS: &[&str] = &[
    "0",
    "-1",
    "+1",
    "7 8",
    "7,8",
    "7, 8",
    "0x7",
    "1e3",
    "9223372036854775808",
    "10000000000000000000",
    "18446744073709551623",
    "99999999999999999999",
    "07",
    "7.0",
    "7;8",
    "seven",
    "\"7\"",
    "７",
    "7\t8",
    "1_000",
];

#[test]
fn what_is_no_token_is_malformed() {
    let (origin, gate) = stand();
    for value in NO_TOKENS.iter().chain(&[""]) {
        let answer = gate.ask(&post("/").header("X-Fencing-Token", value).body("x"));
        answer.is_refused(400, "malformed");
        assert!(answer.header("retry-after").is_none());
    }
    assert!(origin.received_nothing());
}

#[test]
fn what_is_no_token_is_malformed_over_http2_too() {
    let (origin, gate) = stand();
    let client = H2::connect(gate.address);
    for value in NO_TOKENS.iter().chain(&["", " 7", "7 "]) {
        // A space at either end is not allowed in HTTP/2 at all; whatever says so, nothing is forwarded.
        if *value == value.trim() {
            client.ask(&post("/").header("x-fencing-token", value)).is_refused(400, "malformed");
        }
    }
    client.ask(&post("/").token(7).token(7)).is_refused(400, "malformed");
    client.ask(&post("/").token(7).header("x_fencing_token", "7")).is_refused(400, "malformed");
    client.ask(&post("/")).is_refused(428, "missing");
    assert!(origin.received_nothing());
}

#[test]
fn a_token_is_at_most_63_bits() {
    let (origin, gate) = stand();
    gate.ask(&post("/").token(9_223_372_036_854_775_807)).is_ok();
    gate.ask(&post("/").token(9_223_372_036_854_775_806)).is_refused(412, "stale");
    assert_eq!(origin.count(), 1);
}

#[test]
fn two_token_headers_are_malformed_even_if_they_agree() {
    let (origin, gate) = stand();
    gate.ask(&post("/").token(7).token(7)).is_refused(400, "malformed");
    gate.ask(&post("/").token(7).header("x-fencing-token", "8")).is_refused(400, "malformed");
    assert!(origin.received_nothing());
}

#[test]
fn an_underscore_alias_is_malformed_on_every_request() {
    let (origin, gate) = stand();
    for alias in ["X_Fencing_Token", "X-Fencing_Token", "x_fencing_resource"] {
        gate.ask(&post("/").header(alias, "7")).is_refused(400, "malformed");
        gate.ask(&post("/").token(7).header(alias, "9")).is_refused(400, "malformed");
        gate.ask(&get("/").header(alias, "7")).is_refused(400, "malformed");
    }
    assert!(origin.received_nothing());
}

#[test]
fn a_connection_header_cannot_take_the_token_away() {
    let (origin, gate) = stand();
    for value in ["X-Fencing-Token", "keep-alive, x-fencing-token", "X-Fencing-Resource", "x_fencing_token"] {
        let mut client = gate.connect();
        let answer = client.ask(&post("/").token(7).header("Connection", value));
        answer.is_refused(400, "malformed");
        assert!(client.is_closed_within(crate::support::PATIENCE), "the connection is closed after {value}");
    }
    assert!(origin.received_nothing());
}

#[test]
fn a_fenced_request_without_a_token_is_refused() {
    let (origin, gate) = stand();
    for method in ["POST", "PUT", "DELETE", "PATCH", "PROPFIND", "WHATEVER"] {
        let answer = gate.ask(&ask(method, "/"));
        answer.is_refused(428, "missing");
        assert_eq!(answer.json()["resource"], "default");
    }
    assert!(origin.received_nothing());
}

#[test]
fn reads_need_no_token_and_raise_no_mark() {
    let (origin, gate) = stand();
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        gate.ask(&ask(method, "/")).is_ok();
        gate.ask(&ask(method, "/").token(9)).is_ok();
    }
    assert_eq!((origin.count(), gate.mark("default")), (8, 0));
    gate.ask(&post("/").token(1)).is_ok();
}

#[test]
fn a_route_says_which_methods_are_fenced() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("fenced_methods", vec!["GET", "PUT"]).start();
    gate.ask(&get("/")).is_refused(428, "missing");
    gate.ask(&put("/")).is_refused(428, "missing");
    gate.ask(&put("/").token(7)).is_ok();
    gate.ask(&post("/search")).is_ok();
    gate.ask(&get("/").token(6)).is_refused(412, "stale");
}

#[test]
fn a_method_in_another_case_is_no_way_around_the_list() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("fenced_methods", vec!["POST"]).start();
    let h2 = H2::connect(gate.address);
    for method in ["post", "pOST", "Post", "get", "patch"] {
        for request in [ask(method, "/"), ask(method, "/").token(7)] {
            gate.ask(&request).is_refused(400, "malformed");
            h2.ask(&request).is_refused(400, "malformed");
        }
    }
    assert!(origin.received_nothing());
    gate.ask(&ask("PATCH", "/")).is_ok();
}

#[test]
fn a_route_may_let_requests_without_a_token_pass() {
    for waiver in ["allow", "audit"] {
        let origin = origin().start();
        let gate = gateway_to(&origin).route("missing_token", waiver).start();
        gate.ask(&post("/")).is_ok();
        gate.ask(&post("/").token(8)).is_ok();
        gate.ask(&post("/")).is_ok();
        gate.ask(&post("/").token(7)).is_refused(412, "stale");
        gate.ask(&post("/").header("X-Fencing-Token", "seven")).is_refused(400, "malformed");
        assert_eq!(origin.count(), 3, "{waiver}");
    }
}

#[test]
fn what_no_route_takes_is_not_found() {
    let origin = origin().start();
    let gate = gateway_to(&origin).path("/accounts/{account}", "ledger/{account}").start();
    gate.ask(&post("/elsewhere").token(7)).is_refused(404, "no-route");
    gate.ask(&get("/accounts")).is_refused(404, "no-route");
    gate.ask(&ask("OPTIONS", "*")).is_refused(404, "no-route");
    assert!(origin.received_nothing());
    gate.ask(&delete("/accounts/7").token(7)).is_ok();
}

#[test]
fn a_frozen_resource_is_locked_until_it_is_thawed() {
    let (origin, gate) = stand();
    gate.ask(&post("/").token(7)).is_ok();
    assert!((200..300).contains(&gate.operate("freeze", "default").status));
    gate.ask(&post("/").token(7)).is_refused(423, "frozen");
    gate.ask(&post("/").token(8)).is_refused(423, "frozen");
    gate.ask(&post("/").token(6)).is_refused(412, "stale");
    gate.ask(&post("/").token(1).resource("other")).is_ok();
    gate.ask(&get("/")).is_ok();
    assert!((200..300).contains(&gate.operate("thaw", "default").status));
    gate.ask(&post("/").token(7)).is_ok();
    assert_eq!(origin.count(), 4);
}

#[test]
fn a_token_that_nobody_issued_raises_nothing() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("tokens", "issued").start();
    gate.ask(&post("/").token(7)).is_refused(403, "not-issued");
    gate.ask(&post("/").token(4_611_686_018_427_387_904)).is_refused(403, "not-issued");
    assert!(origin.received_nothing());
    assert_eq!(gate.mark("default"), 0);
}

#[test]
fn a_request_names_one_resource() {
    let (origin, gate) = stand();
    gate.ask(&post("/").token(7).resource("a").resource("b")).is_refused(400, "malformed");
    for name in ["", "a//b", "../a", "a/./b", "%2e", "a%"] {
        gate.ask(&post("/").token(7).resource(name)).is_refused(400, "malformed");
    }
    assert!(origin.received_nothing());
}

#[test]
fn the_token_header_can_have_another_name() {
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("token_header", "X-Leader-Epoch").start();
    gate.ask(&post("/").header("X-Leader-Epoch", "7")).is_ok();
    gate.ask(&post("/").header("X-Leader-Epoch", "6")).is_refused(412, "stale");
    gate.ask(&post("/").header("X_Leader_Epoch", "8")).is_refused(400, "malformed");
    gate.ask(&post("/").token(8)).is_refused(428, "missing");
}

/// What a refusal says in words.
fn detail(gate: &Running, request: &crate::support::Ask) -> String {
    gate.ask(request).json()["detail"].as_str().unwrap().to_owned()
}

#[test]
fn a_refusal_says_which_resource_was_meant_and_why() {
    let origin = origin().start();
    let by_path = gateway_to(&origin).path("/accounts/{account}", "ledger/{account}");
    let gate = by_path.and_route().route("name", "fixed").start();
    gate.ask(&post("/accounts/7").token(8)).is_ok();
    assert_eq!(
        detail(&gate, &post("/accounts/7").token(7)),
        "token 7 is below the mark 8 of ledger/7 (by ledger/{account} of route ledger): a later leader has taken over; stop writing"
    );
    gate.ask(&post("/").token(8)).is_ok();
    let fixed = detail(&gate, &post("/").token(7).resource("mine"));
    assert!(fixed.contains("of other (the resource of route fixed):"), "{fixed}");

    let (_origin, gate) = stand();
    gate.ask(&post("/").token(8)).is_ok();
    let default = detail(&gate, &post("/").token(7));
    let why = "of default (the default of route ledger, as the request has no X-Fencing-Resource; send it to name another):";
    assert!(default.contains(why), "{default}");
    let named = detail(&gate, &post("/").token(7).resource("Default"));
    assert!(named.contains("of default (named by the request's X-Fencing-Resource):"), "{named}");
}

#[test]
fn a_missing_token_says_which_header_to_send() {
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("token_header", "x-leader-epoch").start();
    assert_eq!(
        detail(&gate, &post("/").resource("ledger/7")),
        "a write to ledger/7 (named by the request's X-Fencing-Resource) needs a fencing token: send the one that its election gave you in the header X-Leader-Epoch"
    );
}
