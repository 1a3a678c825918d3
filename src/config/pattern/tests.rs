//! What patterns match, capture, cover and refuse.

use super::*;

fn pattern(source: &str) -> PathPattern {
    PathPattern::parse(source).unwrap()
}

fn captured(source: &str, path: &str) -> Option<Vec<String>> {
    let (pattern, path) = (pattern(source), CanonicalPath::parse(path).unwrap());
    pattern.matches(&path).then(|| pattern.captures(&path).0.iter().map(ToString::to_string).collect())
}

#[test]
fn parameters_capture_whole_segments_as_they_were_sent() {
    let accounts = "/accounts/{account}/{*rest}";
    assert_eq!(captured(accounts, "/accounts/7/a/b/"), Some(vec!["7".into(), "a/b".into()]));
    assert_eq!(
        captured(accounts, "/accounts/7"),
        Some(vec!["7".into(), "".into()]),
        "the rest may be nothing"
    );
    assert_eq!(captured(accounts, "/%61ccounts/%37/x"), Some(vec!["%37".into(), "x".into()]));
    assert_eq!(captured(accounts, "/accounts"), None);
    assert_eq!(captured(accounts, "/Accounts/7"), None, "paths have case");
    assert_eq!(captured("/a/{x}/b", "/a/1/b"), Some(vec!["1".into()]));
    assert_eq!(captured("/a/{x}/b", "/a/1/b/c"), None);
    assert_eq!(captured("/{*all}", "/"), Some(vec!["".into()]));
}

#[test]
fn a_slash_alone_matches_everything() {
    for path in ["/", "/a", "/a/b/"] {
        assert_eq!(captured("/", path), Some(vec![]), "{path}");
    }
}

#[test]
fn literals_are_compared_decoded_on_both_sides() {
    assert_eq!(captured("/caf%C3%A9", "/café"), Some(vec![]));
    assert_eq!(captured("/a b/", "/a%20b"), Some(vec![]));
}

#[test]
fn patterns_that_could_not_mean_what_they_say_are_refused() {
    for (source, error) in [
        ("accounts", PatternError::Path(PathError::NotAbsolute)),
        ("", PatternError::Path(PathError::NotAbsolute)),
        ("//", PatternError::Path(PathError::EmptySegment)),
        ("/a//b", PatternError::Path(PathError::EmptySegment)),
        ("/a/../b", PatternError::Path(PathError::DotSegment)),
        ("/a%2Fb", PatternError::Path(PathError::EncodedSlash)),
        ("/a;b", PatternError::Path(PathError::Semicolon)),
        ("/acct-{id}", PatternError::Mixed("acct-{id}".into())),
        ("/{a}{b}", PatternError::Name("a}{b".into())),
        ("/{}", PatternError::Name("".into())),
        ("/{1a}", PatternError::Name("1a".into())),
        ("/{*}", PatternError::Name("".into())),
        ("/{a}/{a}", PatternError::Twice("a".into())),
        ("/{host}", PatternError::Host),
        ("/{*rest}/a", PatternError::RestNotLast("rest".into())),
        ("/a/*", PatternError::Literal("*".into())),
        ("/a?b", PatternError::Literal("a?b".into())),
    ] {
        assert_eq!(PathPattern::parse(source).unwrap_err(), error, "{source:?}");
    }
}

#[test]
fn a_pattern_covers_what_it_leaves_nothing_of() {
    for (wide, narrow) in [
        ("/", "/a/{b}"),
        ("/", "/{*rest}"),
        ("/{*rest}", "/"),
        ("/{x}", "/a"),
        ("/a/{*rest}", "/a"),
        ("/a/{*rest}", "/a/{b}/{*more}"),
        ("/{x}/b", "/a/b"),
    ] {
        assert!(pattern(wide).covers(&pattern(narrow)), "{wide} covers {narrow}");
    }
    for (one, other) in [("/a", "/{x}"), ("/{x}", "/"), ("/a/{x}", "/a"), ("/a", "/b"), ("/a/{x}", "/a/{*x}")]
    {
        assert!(!pattern(one).covers(&pattern(other)), "{one} does not cover {other}");
    }
    assert_eq!(pattern("/a/{x}"), pattern("/a/{y}/"));
}

#[test]
fn hosts_are_matched_in_their_canonical_form() {
    let exact = HostPattern::parse("Ledger.Internal").unwrap();
    assert!(exact.matches("ledger.internal") && !exact.matches("a.ledger.internal") && !exact.matches(""));
    let below = HostPattern::parse("*.Internal").unwrap();
    assert!(below.matches("ledger.internal") && below.matches("a.b.internal"));
    assert!(!below.matches("internal") && !below.matches(".internal") && !below.matches("xinternal"));
    assert_eq!((exact.to_string(), below.to_string()), ("ledger.internal".into(), "*.internal".into()));
    for source in ["", "*", "*.", "a*b", "*.*.a", "a:80", "[::1]:80", "a b", "http://a"] {
        assert_eq!(HostPattern::parse(source), None, "{source:?}");
    }
    assert_eq!(HostPattern::parse("[::1]"), Some(HostPattern::Exact("[::1]".into())));
}

#[test]
fn a_host_pattern_covers_the_names_below_it() {
    let host = |source| HostPattern::parse(source).unwrap();
    assert!(
        host("*.a").covers(&host("b.a"))
            && host("*.a").covers(&host("*.b.a"))
            && host("*.a").covers(&host("*.a"))
    );
    assert!(
        !host("b.a").covers(&host("*.a"))
            && !host("*.b.a").covers(&host("*.a"))
            && !host("*.a").covers(&host("a"))
    );
}

#[test]
fn a_path_in_another_case_is_known_as_such() {
    let matches = |source: &str, path: &str| {
        let (pattern, path) = (pattern(source), CanonicalPath::parse(path).unwrap());
        (pattern.matches(&path), pattern.matches_in_any_case(&path))
    };
    assert_eq!(matches("/Accounts/{a}", "/Accounts/7"), (true, true));
    for path in ["/accounts/7", "/ACCOUNTS/7", "/a%43counts/7"] {
        assert_eq!(matches("/Accounts/{a}", path), (false, true), "{path}");
    }
    assert_eq!(matches("/caf%C3%A9", "/CAF%C3%89"), (false, true));
    assert_eq!(matches("/sum", "/%C5%BFum"), (false, true), "the long s is a small one");
    for path in ["/accounts", "/account/7", "/accounts/7/x", "/accountt/7"] {
        assert_eq!(matches("/Accounts/{a}", path), (false, false), "{path}");
    }
}

#[test]
fn a_pattern_leaves_nothing_to_another_case_of_itself() {
    assert!(pattern("/Accounts/{a}").covers(&pattern("/accounts/{b}")));
    assert!(!pattern("/Accounts/{a}").covers(&pattern("/accounts/{*b}")));
}

#[test]
fn patterns_meet_where_another_case_of_one_is_the_others() {
    for (narrow, wide, meet) in [
        ("/accounts/{a}", "/", true),
        ("/accounts/{a}", "/{kind}/{a}", true),
        ("/accounts/{a}", "/{*all}", true),
        ("/accounts/{a}", "/Accounts/{*rest}", true),
        ("/accounts/close", "/accounts/{a}", true),
        ("/accounts/{a}", "/accounts/{*rest}", false),
        ("/accounts/{a}", "/{kind}", false),
        ("/accounts/{a}", "/other/{*rest}", false),
        ("/accounts/7", "/accounts/{a}", false),
        ("/{a}/{*rest}", "/", false),
        ("/v1/{*rest}", "/{a}/b/c", true),
    ] {
        assert_eq!(pattern(narrow).meets_in_another_case(&pattern(wide)), meet, "{narrow} and {wide}");
    }
}
