use super::*;
use crate::config::Config;
use crate::config::tests::{ROUTE, parse, refusal};

fn grants(tables: &str) -> Grants {
    parse(&format!("{tables}{ROUTE}")).unwrap_or_else(|error| panic!("{error}")).grants
}

/// Somebody with this name alone.
fn named(name: &str) -> Identity {
    Identity::for_tests(&[name])
}

fn resource(name: &str) -> Resource {
    Resource::parse(name).unwrap()
}

const TWO: &str = r#"
    [[grants]]
    who = ["spiffe://corp/job-a", "dns:*.jobs.internal", "bearer:ci"]
    may = ["write", "campaign"]
    resources = ["ledger/*"]
    [[grants]]
    who = ["cn:Ada L"]
    may = ["operate", "observe"]
    resources = ["*"]
"#;

#[test]
fn what_no_grant_allows_is_forbidden() {
    let grants = grants(TWO);
    for (who, right, name, allowed) in [
        ("spiffe://corp/job-a", Right::Write, "ledger/7", true),
        ("spiffe://corp/job-a", Right::Campaign, "ledger/7/x", true),
        ("spiffe://corp/job-a", Right::Observe, "ledger/7", false),
        ("spiffe://corp/job-a", Right::Operate, "ledger/7", false),
        ("spiffe://corp/job-a", Right::Write, "ledger", false),
        ("spiffe://corp/job-a", Right::Write, "other/7", false),
        ("spiffe://corp/job-a/b", Right::Write, "ledger/7", false),
        ("spiffe://corp/job-b", Right::Write, "ledger/7", false),
        ("dns:a.jobs.internal", Right::Write, "ledger/7", true),
        ("dns:jobs.internal", Right::Write, "ledger/7", false),
        ("cn:spiffe://corp/job-a", Right::Write, "ledger/7", false),
        ("bearer:ci", Right::Write, "ledger/7", true),
        ("bearer:ci2", Right::Write, "ledger/7", false),
        ("cn:Ada L", Right::Operate, "ledger/7", true),
        ("cn:Ada L", Right::Write, "ledger/7", false),
    ] {
        assert_eq!(grants.allow(Some(&named(who)), right, &resource(name)), allowed, "{who} {right} {name}");
    }
    assert!(!grants.allow(None, Right::Write, &resource("ledger/7")), "nobody has no rights");
    let both = Identity::for_tests(&["cn:x", "bearer:ci"]);
    assert!(
        grants.allow(Some(&both), Right::Write, &resource("ledger/7")),
        "any of somebody's identities will do"
    );
}

#[test]
fn everywhere_is_what_a_star_alone_grants() {
    let grants = grants(TWO);
    assert!(grants.allow_everywhere(Some(&named("cn:Ada L")), Right::Operate));
    assert!(!grants.allow_everywhere(Some(&named("cn:Ada L")), Right::Write));
    assert!(!grants.allow_everywhere(Some(&named("bearer:ci")), Right::Write));
    assert!(grants.allow_somewhere(Some(&named("bearer:ci")), Right::Write));
    assert!(!grants.allow_somewhere(Some(&named("bearer:ci")), Right::Observe));
}

#[test]
fn names_of_resources_are_granted_in_their_canonical_form() {
    for (pattern, name, expected) in [
        ("Ledger/ACCT-*", "ledger/acct-7", true),
        ("a%20b/*", "a b/x", true),
        ("ledger/{account}", "ledger/7", true),
        ("ledger/{account}", "ledger/7/x", false),
        ("ledger/{*rest}", "ledger/7/x", true),
        ("ledger/{account}/x", "ledger/7/x", true),
        ("{host}", "a/b", false),
        ("ledger/*", "ledger/7/x", true),
    ] {
        let pattern = names(pattern).unwrap();
        assert_eq!(pattern.matches(resource(name).as_str()), expected, "{pattern} {name}");
    }
    for bad in ["", "a//b", "../*", "a/{b", "a}", "a/%2A", "a/%2a*", "%"] {
        assert!(names(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_grant_that_cannot_be_read_names_its_key() {
    for (table, expected) in [
        (
            "who = ['cn:x']\nmay = ['write']\n",
            "f.toml:1:1: grants[0].resources: is missing; allowed: an array",
        ),
        (
            "who = []\nmay = ['write']\nresources = ['*']\n",
            "f.toml:2:7: grants[0].who: an empty list grants nothing",
        ),
        (
            "who = ['cn:x']\nmay = ['write', 'read']\nresources = ['*']\n",
            "f.toml:3:17: grants[0].may[1]: unknown value \"read\"; allowed: an array of write, campaign, observe, operate",
        ),
        (
            "who = ['job-a']\nmay = ['write']\nresources = ['*']\n",
            "f.toml:2:8: grants[0].who[0]: \"job-a\" does not say which kind of identity it is; allowed: an array of",
        ),
        (
            "who = ['*']\nmay = ['write']\nresources = ['*']\n",
            "f.toml:2:8: grants[0].who[0]: \"*\" does not say",
        ),
        (
            "who = ['dns:a..b']\nmay = ['write']\nresources = ['*']\n",
            "f.toml:2:8: grants[0].who[0]: \"dns:a..b\" is not",
        ),
        (
            "who = ['bearer:']\nmay = ['write']\nresources = ['*']\n",
            "f.toml:2:8: grants[0].who[0]: \"bearer:\" is not",
        ),
        (
            "who = ['cn:x']\nmay = ['write']\nresources = ['a//b']\n",
            "f.toml:4:14: grants[0].resources[0]: \"a//b\" is no",
        ),
        (
            "who = ['cn:x']\nmay = ['write']\nresource = ['a']\n",
            "f.toml:4:1: grants[0].resource: unknown key; allowed: who, may",
        ),
    ] {
        let message = refusal(&format!("[[grants]]\n{table}{ROUTE}"));
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn a_grant_is_told_in_one_line() {
    let grants = grants(TWO);
    let told: Vec<_> = grants.iter().map(Grant::to_string).collect();
    assert_eq!(
        told,
        [
            "spiffe://corp/job-a, dns:*.jobs.internal, bearer:ci may write, campaign: ledger/*",
            "cn:Ada L may operate, observe: *"
        ]
    );
}

#[test]
fn a_grant_concerns_the_routes_whose_resources_it_can_be_about() {
    let route = |rule: &str| -> Config {
        let path = "match.path = '/accounts/{account}/{*rest}'\n";
        parse(&format!("[[routes]]\nname = 'a'\nupstream = 'http://u'\n{path}resource = {rule}\n")).unwrap()
    };
    let concerns = |pattern: &str, rule: &str| {
        let grant = Grant { who: Vec::new(), may: Vec::new(), resources: vec![names(pattern).unwrap()] };
        grant.concerns(route(rule).routes.iter().next().unwrap())
    };
    for (pattern, rule, expected) in [
        ("ledger/*", "'ledger/{account}'", true),
        ("ledger/acct-*", "'ledger/{account}'", true),
        ("ledger", "'ledger/{account}'", false),
        ("jobs/*", "'ledger/{account}'", false),
        ("ledger/*", "'Ledger/7'", true),
        ("files/a/b", "'files/{rest}'", true),
        ("other/a/b", "'files/{rest}'", false),
        ("x/y", "{ client = true }", true),
        ("a.internal/7", "'{host}/{account}'", true),
    ] {
        assert_eq!(concerns(pattern, rule), expected, "{pattern} {rule}");
    }
}
