//! One resource has one name, whatever its spelling; a path with two readings has none.

use crate::support::{Origin, Running, gateway_to, get, origin, post};

fn accounts() -> (Origin, Running) {
    let origin = origin().start();
    let gate = gateway_to(&origin).path("/accounts/{account}/{*rest}", "ledger/{account}").start();
    (origin, gate)
}

#[test]
fn a_path_with_two_readings_is_malformed() {
    let (origin, gate) = accounts();
    for path in [
        "//accounts/acct-7/x",
        "/accounts//acct-7/x",
        "/accounts/./acct-7/x",
        "/accounts/../accounts/acct-7/x",
        "/accounts/other/../acct-7",
        "/accounts/%2e%2e/accounts/acct-7/x",
        "/accounts/%2E/acct-7/x",
        "/accounts/other/.%2e/acct-7",
        "/accounts/acct%2F7/x",
        "/accounts/acct-7%2fx",
        "/accounts/acct-7;v=1/x",
        "/accounts/acct-7%3Bv=1/x",
        "/accounts/acct-7%5Cx/y",
        "/accounts/acct-7%00/x",
        "/accounts/acct-7%/x",
        "/accounts/acct-7%zz/x",
        "/accounts/%ff/x",
    ] {
        gate.ask(&post(path).token(7)).is_refused(400, "malformed");
        gate.ask(&get(path)).is_refused(400, "malformed");
    }
    assert!(origin.received_nothing());
}

#[test]
fn every_spelling_of_a_resource_has_its_mark() {
    let (origin, gate) = accounts();
    gate.ask(&post("/accounts/acct-7/x").token(8)).is_ok();
    for path in [
        "/accounts/acct-7/y",
        "/accounts/acct-7/x/",
        "/accounts/acct-7/x?account=other",
        "/accounts/ACCT-7/x",
        "/accounts/acct%2D7/x",
        "/accounts/acct%2d7/x",
        "/accounts/%61cct-7/x",
        "/accounts/%41CCT-7/x",
        "/%61ccounts/acct-7/x",
        "http://ledger.test/accounts/acct-7/x",
    ] {
        let answer = gate.ask(&post(path).token(7));
        answer.is_refused(412, "stale");
        assert_eq!(answer.json()["resource"], "ledger/acct-7", "{path}");
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn every_spelling_in_the_resource_header_has_its_mark() {
    let origin = origin().start();
    let gate = gateway_to(&origin).start();
    gate.ask(&post("/").token(8).resource("ledger/acct-7")).is_ok();
    for name in ["Ledger/ACCT-7", "ledger/acct%2D7", "%6cedger/acct-7", "%4CEDGER/acct-7"] {
        gate.ask(&post("/").token(7).resource(name)).is_refused(412, "stale");
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn the_header_does_not_name_the_resource_where_the_route_does() {
    let (_origin, gate) = accounts();
    gate.ask(&post("/accounts/acct-7/x").token(8)).is_ok();
    gate.ask(&post("/accounts/acct-7/x").token(7).resource("free")).is_refused(412, "stale");
}

#[test]
fn every_spelling_of_a_host_has_its_mark() {
    let origin = origin().start();
    let gate = gateway_to(&origin).route("resource", "{host}/ledger").start();
    gate.ask(&post("/").host("ledger.test").token(8)).is_ok();
    for host in ["LEDGER.test", "ledger.test:80", "ledger.test.", "ledger.test:8080"] {
        gate.ask(&post("/").host(host).token(7)).is_refused(412, "stale");
    }
    // The request line's host counts, as it does to every server behind.
    gate.ask(&post("http://ledger.test/").host("other.test").token(7)).is_refused(412, "stale");
    gate.ask(&post("/").host("other.test").token(7)).is_ok();
}

#[test]
fn two_hosts_or_none_are_malformed() {
    let (origin, gate) = accounts();
    let path = "/accounts/acct-7/x";
    gate.ask(&post(path).token(7).header("Host", "ledger.test")).is_refused(400, "malformed");
    for host in ["a b", "a,b", "a/b", "a@b"] {
        let status = gate.ask(&post(path).token(7).host(host)).status;
        assert_eq!(status, 400, "{host}");
    }
    let mut client = gate.connect();
    client.send(format!("POST {path} HTTP/1.1\r\nX-Fencing-Token: 7\r\nContent-Length: 0\r\n\r\n"));
    assert_eq!(client.response().status, 400);
    assert!(origin.received_nothing());
}

#[test]
fn a_path_in_another_case_is_no_way_around_a_narrow_route() {
    let origin = origin().start();
    let narrow = gateway_to(&origin).path("/Accounts/{account}", "ledger/{account}");
    let gate = narrow.and_route().route("name", "rest").route("fenced_methods", Vec::<String>::new()).start();
    gate.ask(&post("/Accounts/7").token(8)).is_ok();
    for path in ["/accounts/7", "/ACCOUNTS/7", "/%61ccounts/7"] {
        for request in [post(path), post(path).token(7), post(path).token(9), get(path)] {
            let refused = gate.ask(&request);
            refused.is_refused(400, "malformed");
            assert!(refused.text().contains("`/Accounts/{account}`"), "it says how to spell it: {refused:?}");
        }
    }
    assert_eq!(origin.count(), 1);
    gate.ask(&post("/elsewhere")).is_ok();
    assert_eq!(gate.mark("ledger/7"), 8);
}
