//! A reload, or a start with another config, that names resources differently does not throw their fences away.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Ask, Client, GateBuilder, Highgate, Origin, Pending, Running, eventually, gateway_to, highgate, origin,
    post, reply, stays,
};

const ACCOUNTS: &str = "/accounts/{account}/{*rest}";

/// Token 50 is held by the name `fifty` before its answer.
fn slow_for_fifty() -> Origin {
    origin()
        .answering(|request| match request.token() {
            Some(50) => reply(200).body("fifty").held("fifty"),
            _ => reply(200).body("other"),
        })
        .start()
}

/// One resource for everything.
fn one_name(origin: &Origin) -> GateBuilder {
    gateway_to(origin).path("/", "ledger").route("drain_timeout", "30s")
}

/// One for each account, and the old one for the rest.
fn a_name_each(origin: &Origin) -> GateBuilder {
    let accounts = one_name(origin).path(ACCOUNTS, "ledger/{account}");
    accounts.another().path("/", "ledger")
}

fn to_account(account: u32, token: u64) -> Ask {
    post(&format!("/accounts/{account}/x")).token(token)
}

/// Waits until requests have the new names only: then one account's token is nothing to another.
fn change_is_finished(gate: &Running) {
    let mut token = 100;
    eventually("the change of names is finished", || {
        token += 2;
        gate.ask(&to_account(1, token + 1)).is_ok();
        gate.ask(&to_account(2, token)).status == 200
    });
}

#[test]
fn a_slow_write_under_the_old_name_is_waited_for_under_the_new_one() {
    let origin = slow_for_fifty();
    let gate = one_name(&origin).start();
    let fifty = gate.begin(to_account(7, 50));
    origin.receives_token(50);
    gate.reload(&a_name_each(&origin)).unwrap();

    gate.ask(&to_account(7, 49)).is_refused(412, "stale");
    let next = gate.begin(to_account(7, 51));
    eventually("the old name is raised", || gate.mark("ledger") == 51);
    stays("51 is not sent", || !origin.has_token(51));
    origin.release("fifty");
    fifty.answer().is_ok();
    next.answer().is_ok();
    assert_eq!((gate.mark("ledger"), gate.mark("ledger/7")), (51, 51), "it was admitted under both");
    gate.ask(&to_account(7, 50)).is_refused(412, "stale");
    change_is_finished(&gate);
}

#[test]
fn new_names_start_from_the_mark_of_the_old_one_however_late_they_are_used() {
    let origin = origin().start();
    let gate = one_name(&origin).start();
    gate.ask(&to_account(7, 50)).is_ok();
    gate.reload(&a_name_each(&origin)).unwrap();
    change_is_finished(&gate);
    let stale = gate.ask(&to_account(3, 49));
    stale.is_refused(412, "stale");
    assert_eq!(stale.json()["resource"], "ledger/3");
    let floor = stale.json()["mark"].as_u64().unwrap();
    assert!(floor >= 50, "{stale:?}");
    gate.ask(&to_account(4, floor - 1)).is_refused(412, "stale");
    gate.ask(&post("/elsewhere").token(floor + 1000)).is_ok();
    gate.ask(&to_account(4, floor)).is_ok();
}

#[test]
fn a_request_that_was_claimed_before_the_reload_and_comes_to_the_gate_after_it_is_counted() {
    let origin = origin().start();
    let gate = one_name(&origin).listen("workers", 1).start();
    gate.ask(&to_account(7, 50)).is_ok();
    let mut fifty = gate.connect();
    let whole = to_account(7, 50).body("0123456789").bytes();
    fifty.send(&whole[..whole.len() - 1]);
    // On the same core, so the gateway has read what came before.
    gate.ask(&to_account(7, 50)).is_ok();
    gate.reload(&a_name_each(&origin)).unwrap();
    stays("the change waits for it", || gate.change_of_names_under_way());
    let change = gate.admin("/v1/replicas").json()["change_of_names"].clone();
    assert_eq!(
        (&change["from"][0]["resource"], &change["to"][0]["resource"]),
        (&json!("ledger"), &json!("ledger/{account}"))
    );
    gate.ask(&to_account(7, 51)).is_ok();
    fifty.send(&whole[whole.len() - 1..]);
    assert_eq!(fifty.response().status, 412, "the old name was raised meanwhile");
    change_is_finished(&gate);
}

/// Wins an election of the gateway's own: the token and the lease.
fn elect(gate: &Running, resource: &str) -> (u64, Value) {
    let campaign = json!({"resource": resource, "holder": "a", "ttl_seconds": 30, "wait_seconds": 0});
    let won = gate.post_admin("/v1/elections/campaign", &campaign);
    assert_eq!(won.status, 200, "{won:?}");
    (won.json()["token"].as_u64().unwrap(), won.json()["lease"].clone())
}

#[test]
fn who_led_under_the_old_name_and_left_meanwhile_does_not_pass_when_the_change_is_over() {
    let origin = origin().answering(|request| match request.target() {
        "/slow" => reply(200).body("slow").held("slow"),
        _ => reply(200).body("other"),
    });
    let origin = origin.start();
    let gate = one_name(&origin).route("tokens", "issued").start();
    let (old, lease) = elect(&gate, "ledger");
    let slow = gate.begin(post("/slow").token(old));
    origin.receives(1);
    gate.reload(&gateway_to(&origin).path("/", "books").route("tokens", "issued")).unwrap();
    gate.ask(&post("/x").token(old)).is_ok();
    assert_eq!(gate.mark("books"), old, "the new name's gate is open at it as well");

    let resigned = gate.post_admin("/v1/elections/resign", &json!({"resource": "ledger", "lease": lease}));
    assert_eq!(resigned.status, 204, "{resigned:?}");
    gate.ask(&post("/x").token(old)).is_refused(403, "not-issued");
    stays("the change waits", || gate.change_of_names_under_way());
    origin.release("slow");
    slow.answer().is_ok();
    eventually("the change is over", || !gate.change_of_names_under_way());
    gate.ask(&post("/x").token(old)).is_refused(403, "not-issued");
    let (new, _) = elect(&gate, "books");
    gate.ask(&post("/x").token(new)).is_ok();
    gate.ask(&post("/x").token(old)).is_refused(412, "stale");
}

#[test]
fn who_leads_under_the_old_name_goes_on_until_somebody_leads_under_the_new_one() {
    let origin = origin().answering(|request| match request.target() {
        "/slow" => reply(200).body("slow").held("slow"),
        _ => reply(200).body("other"),
    });
    let origin = origin.start();
    let gate = one_name(&origin).route("tokens", "issued").start();
    let lead = |resource: &str| elect(&gate, resource).0;
    let old = lead("ledger");
    let slow = gate.begin(post("/slow").token(old));
    origin.receives(1);
    let issued = a_name_each(&origin).route("tokens", "issued");
    gate.reload(&issued.first("tokens", "issued")).unwrap();

    gate.ask(&to_account(7, old)).is_ok();
    gate.ask(&to_account(7, old + 100)).is_refused(403, "not-issued");
    let new = lead("ledger/7");
    assert!(new > old);
    origin.release("slow");
    gate.ask(&to_account(7, new)).is_ok();
    gate.ask(&to_account(7, old)).is_refused(412, "stale");
    slow.answer().is_ok();
    eventually("the old leader leads nothing under the new names", || {
        gate.ask(&to_account(9, old)).status == 412
    });
    let ninth = lead("ledger/9");
    gate.ask(&to_account(9, ninth)).is_ok();
}

#[test]
fn what_is_frozen_under_its_old_name_raises_no_mark_under_the_new_one() {
    let origin = slow_for_fifty();
    let gate = one_name(&origin).start();
    let fifty = gate.begin(post("/x").token(50));
    origin.receives_token(50);
    gate.operate("freeze", "ledger");
    gate.reload(&gateway_to(&origin).path("/", "books")).unwrap();
    gate.ask(&post("/x").token(60)).is_refused(423, "frozen");
    assert_eq!(gate.mark("books"), 0, "it is not opened for who may not pass");
    origin.release("fifty");
    fifty.answer().is_ok();
}

#[test]
fn a_reload_whose_marks_cannot_be_known_is_refused_and_changes_nothing() {
    let origin = origin().start();
    let gate = gateway_to(&origin).path("/{a}/{b}", "x/{a}").start();
    gate.ask(&post("/1/2").token(50)).is_ok();
    let refused = gate.reload(&gateway_to(&origin).path("/{a}/{b}", "x/{b}")).unwrap_err().to_string();
    assert!(
        refused.contains("x/{a}") && refused.contains("x/{b}") && refused.contains("fixed name"),
        "{refused}"
    );
    gate.ask(&post("/1/2").token(49)).is_refused(412, "stale");
    assert_eq!(gate.mark("x/2"), 0);
}

fn serve(folder: &Path, origin: &Origin, path: &str, resource: &str) -> Highgate {
    serve_with(folder, origin, path, resource, "lock_delay = \"200ms\"")
}

fn serve_with(folder: &Path, origin: &Origin, path: &str, resource: &str, delays: &str) -> Highgate {
    let config = write_config(folder, origin, path, resource, delays);
    highgate().config(&config).data(&folder.join("data")).start()
}

fn write_config(folder: &Path, origin: &Origin, path: &str, resource: &str, delays: &str) -> PathBuf {
    let config = folder.join("highgate.toml");
    let text = format!(
        "[shutdown]\nunready_delay = \"0s\"\n[[routes]]\nname = \"ledger\"\nupstream = \"http://{}\"\n\
         match = {{ path = {path:?} }}\nresource = {resource:?}\ntokens = \"trusted\"\n{delays}\n",
        origin.address
    );
    std::fs::write(&config, text).unwrap();
    config
}

#[test]
fn a_start_with_other_names_begins_with_the_marks_of_the_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin().start();
    let first = serve(folder.path(), &origin, "/{account}", "ledger");
    first.ask(&post("/7").token(50)).is_ok();
    first.kill();
    let second = serve(folder.path(), &origin, "/{account}", "ledger/{account}");
    second.ask(&post("/7").token(49)).is_refused(412, "stale");
    second.ask(&post("/7").token(50)).is_ok();
    second.kill();
    let third = serve(folder.path(), &origin, "/{account}", "accounts");
    third.ask(&post("/8").token(49)).is_refused(412, "stale");
    third.ask(&post("/8").token(51)).is_ok();
}

#[test]
fn a_name_that_nobody_has_used_is_no_way_around_the_mark_that_it_starts_from() {
    let origin = slow_for_fifty();
    let called = |name: &str| gateway_to(&origin).path("/other", "other").another().path("/", name);
    let gate = called("ledger").start();
    gate.ask(&post("/x").token(60)).is_ok();
    gate.reload(&called("accounts")).unwrap();
    eventually("the change of names is finished", || !gate.change_of_names_under_way());
    // The next change cannot be finished as long as this is under way.
    let slow = gate.begin(post("/other").token(50));
    origin.receives_token(50);
    gate.reload(&called("books")).unwrap();
    assert!(gate.change_of_names_under_way());
    gate.ask(&post("/x").token(59)).is_refused(412, "stale");
    assert_eq!((gate.mark("accounts"), gate.mark("books")), (0, 0), "nobody has written under these names");
    gate.ask(&post("/x").token(60)).is_ok();
    origin.release("fifty");
    slow.answer().is_ok();
    eventually("the change of names is finished", || !gate.change_of_names_under_way());
    gate.ask(&post("/x").token(59)).is_refused(412, "stale");
}

#[test]
fn a_crash_in_the_middle_of_a_change_is_waited_for_under_both_names() {
    let folder = tempfile::tempdir().unwrap();
    let origin = slow_for_fifty();
    let delays = "lock_delay = \"3s\"\nhold_timeout = \"20s\"\ndrain_timeout = \"60s\"";
    let first = serve_with(folder.path(), &origin, "/{account}", "ledger", delays);
    let address = first.address();
    let _fifty = Pending::new(move || Client::connect(address).ask(&post("/7").token(50)));
    origin.receives_token(50);
    write_config(folder.path(), &origin, "/{account}", "ledger/{account}", delays);
    eventually("the new name is in force beside the old one", || {
        !first.admin("/v1/replicas").json()["change_of_names"].is_null()
    });
    let _next = Pending::new(move || Client::connect(address).ask(&post("/7").token(51)));
    eventually("the new name is open for 51", || {
        first.admin("/v1/resource?name=ledger/7").json()["state"] == "open"
    });
    stays("51 waits for the slow write", || !origin.has_token(51));
    first.kill();

    let started = Instant::now();
    let config = folder.path().join("highgate.toml");
    let second = highgate().config(&config).data(&folder.path().join("data")).start();
    second.ask(&post("/7").token(51)).is_ok();
    assert!(started.elapsed() >= Duration::from_secs(3), "the write of 50 may take effect for so long");
    eventually("the change is finished", || second.admin("/v1/replicas").json()["change_of_names"].is_null());
    second.ask(&post("/8").token(49)).is_refused(412, "stale");
}

#[test]
fn what_is_frozen_under_its_old_name_stays_frozen_under_the_new_one() {
    let origin = origin().start();
    let gate = one_name(&origin).start();
    gate.ask(&to_account(7, 50)).is_ok();
    gate.operate("freeze", "ledger");
    gate.ask(&to_account(7, 50)).is_refused(423, "frozen");
    gate.reload(&a_name_each(&origin)).unwrap();
    stays("the old name is in force", || gate.change_of_names_under_way());
    gate.ask(&to_account(7, 51)).is_refused(423, "frozen");
    gate.operate("thaw", "ledger");
    gate.ask(&to_account(7, 51)).is_ok();
    change_is_finished(&gate);
}
