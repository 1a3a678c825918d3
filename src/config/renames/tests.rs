use std::path::Path;

use super::*;
use crate::config::{Config, Overrides};

/// Routes as (path, resource), all to one upstream; a resource `client` is named by the client.
fn naming(routes: &[(&str, &str)]) -> Naming {
    let mut toml = String::new();
    for (number, (path, resource)) in routes.iter().enumerate() {
        let resource = match *resource {
            "client" => "{ client = true, default = \"d\" }".to_owned(),
            name => format!("{name:?}"),
        };
        toml += &format!(
            "[[routes]]\nname = \"r{number}\"\nupstream = \"http://127.0.0.1:1\"\nmatch = {{ path = {path:?} }}\n\
             resource = {resource}\n"
        );
    }
    Naming::of(&Config::parse(&toml, Path::new("f.toml"), &Overrides::default()).unwrap().routes)
}

/// What the marks of the new names start from.
fn floors(old: &[(&str, &str)], new: &[(&str, &str)], marks: &[(&str, u64)]) -> Vec<(String, u64)> {
    let mut floors = Floors::default();
    for rename in renames(&naming(old), &naming(new)).unwrap() {
        floors.merge(rename.floors(marks.iter().copied(), &Floors::default()));
    }
    floors.iter().map(|(names, floor)| (names.to_string(), floor)).collect()
}

fn one(name: &str, floor: u64) -> Vec<(String, u64)> {
    vec![(name.to_owned(), floor)]
}

#[test]
fn the_same_names_are_no_renaming() {
    let split = [("/accounts/{account}/{*rest}", "ledger/{account}"), ("/", "misc")];
    let other_words = [("/accounts/{id}/{*more}", "ledger/{id}"), ("/", "misc")];
    let with_a_new_route =
        [("/new", "misc"), ("/accounts/{account}/{*rest}", "ledger/{account}"), ("/", "misc")];
    let by_hand =
        [("/accounts/7/{*rest}", "ledger/7"), ("/accounts/{id}/{*more}", "ledger/{id}"), ("/", "misc")];
    for new in [&split[..], &other_words, &with_a_new_route, &by_hand] {
        assert_eq!(renames(&naming(&split), &naming(new)), Ok(Vec::new()), "{new:?}");
        assert_eq!(renames(&naming(new), &naming(&split)), Ok(Vec::new()), "{new:?}");
    }
}

#[test]
fn a_narrower_route_above_a_wider_one_renames() {
    let old = [("/", "ledger")];
    let new = [("/accounts/{account}/{*rest}", "ledger/{account}"), ("/", "ledger")];
    let found = renames(&naming(&old), &naming(&new)).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].requests.path.to_string(), "/accounts/*/...");
    assert_eq!(floors(&old, &new, &[("ledger", 50), ("other", 70)]), one("ledger/{}", 50));
}

#[test]
fn many_names_that_become_one_start_from_the_highest() {
    let old = [("/accounts/{account}", "ledger/{account}"), ("/", "misc")];
    let new = [("/", "misc")];
    let marks = [("ledger/7", 50), ("ledger/8", 30), ("ledger/7/x", 90), ("misc", 10)];
    assert_eq!(floors(&old, &new, &marks), one("misc", 50));
}

#[test]
fn each_name_is_carried_over_by_itself_where_its_parameters_are_the_same() {
    let old = [("/accounts/{account}/{*rest}", "ledger/{account}")];
    let new = [("/accounts/{account}/{*rest}", "accounts/{account}/main")];
    let expected = vec![("accounts/7/main".to_owned(), 50), ("accounts/8/main".to_owned(), 30)];
    assert_eq!(floors(&old, &new, &[("ledger/7", 50), ("ledger/8", 30)]), expected);
}

#[test]
fn a_finer_name_starts_from_the_coarser_one_that_it_was_part_of() {
    let old = [("/{region}/{account}", "ledger/{region}")];
    let new = [("/{region}/{account}", "ledger/{region}/{account}")];
    let expected = vec![("ledger/eu/{}".to_owned(), 50), ("ledger/us/{}".to_owned(), 30)];
    assert_eq!(floors(&old, &new, &[("ledger/eu", 50), ("ledger/us", 30)]), expected);
}

#[test]
fn a_coarser_name_starts_from_the_highest_of_its_parts() {
    let old = [("/{region}/{account}", "ledger/{region}/{account}")];
    let new = [("/{region}/{account}", "ledger/{region}")];
    let marks = [("ledger/eu/1", 50), ("ledger/eu/2", 60), ("ledger/us/1", 30)];
    assert_eq!(floors(&old, &new, &marks), vec![("ledger/eu".to_owned(), 60), ("ledger/us".to_owned(), 30)]);
}

#[test]
fn what_does_not_follow_from_the_names_is_refused_with_what_to_do() {
    for (old, new) in [
        ([("/{a}/{b}", "x/{a}")], [("/{a}/{b}", "x/{b}")]),
        ([("/{a}/{b}", "x/{a}-{b}")], [("/{a}/{b}", "y/{a}")]),
        ([("/{a}/{b}", "client")], [("/{a}/{b}", "y/{a}")]),
        ([("/{a}/{b}", "y")], [("/{a}/{b}", "client")]),
    ] {
        let refused = renames(&naming(&old), &naming(&new)).unwrap_err().to_string();
        assert!(refused.contains("Go by way of one fixed name"), "{refused}");
    }
    let by_way_of_one = [("/{a}/{b}", "x")];
    assert!(renames(&naming(&[("/{a}/{b}", "x/{a}")]), &naming(&by_way_of_one)).is_ok());
    assert!(renames(&naming(&by_way_of_one), &naming(&[("/{a}/{b}", "x/{b}")])).is_ok());
}

#[test]
fn floors_of_an_earlier_change_are_carried_on() {
    let before = {
        let mut floors = Floors::default();
        floors.merge(
            Floors::from_json(&serde_json::json!({"ledger/{}": 50, "ledger/7": 60, "other": 99})).unwrap(),
        );
        floors
    };
    let old = naming(&[("/{account}", "ledger/{account}")]);
    let new = naming(&[("/{account}", "l/{account}")]);
    let [rename] = renames(&old, &new).unwrap().try_into().unwrap();
    let floors = rename.floors(std::iter::empty(), &before);
    assert_eq!((floors.of("l/7"), floors.of("l/8"), floors.of("other")), (60, 50, 0));
}

#[test]
fn a_route_that_was_taken_away_and_comes_back_under_another_name_is_a_renaming() {
    let first = naming(&[("/a", "one"), ("/b", "two")]);
    let without = naming(&[("/b", "two")]);
    let again = naming(&[("/a", "three"), ("/b", "two")]);
    assert_eq!(renames(&first, &without), Ok(Vec::new()));
    assert_eq!(renames(&without, &again), Ok(Vec::new()), "what is not remembered is not known");
    assert_eq!(renames(&without.remembering(&first), &again).unwrap().len(), 1);
}

#[test]
fn requests_that_lose_their_fence_are_named() {
    let old = Config::parse(
        "[[routes]]\nname = \"a\"\nupstream = \"http://127.0.0.1:1\"\n",
        Path::new("f.toml"),
        &Overrides::default(),
    );
    let new = Config::parse(
        "[[routes]]\nname = \"a\"\nupstream = \"http://127.0.0.1:1\"\nfenced_methods = []\n",
        Path::new("f.toml"),
        &Overrides::default(),
    );
    let (old, new) = (Naming::of(&old.unwrap().routes), Naming::of(&new.unwrap().routes));
    assert_eq!(renames(&old, &new), Ok(Vec::new()));
    assert_eq!(unfenced(&old, &new).len(), 1);
    assert_eq!(unfenced(&new, &old).len(), 0);
}

#[test]
fn names_are_compared_in_the_one_spelling_that_resources_have() {
    let old = [("/{account}", "Ledger/{account}")];
    let new = [("/{account}", "Accounts%2DOf/{account}")];
    assert_eq!(floors(&old, &new, &[("ledger/7", 50)]), one("accounts-of/7", 50));
    let old = [("/{kind}/{id}", "x/{kind}/{id}")];
    let new = [("/Acc%20ounts/{id}", "y/{id}"), ("/{kind}/{id}", "x/{kind}/{id}")];
    assert_eq!(floors(&old, &new, &[("x/acc%20ounts/7", 50), ("x/other/7", 60)]), one("y/7", 50));
}

#[test]
fn a_name_is_not_forgotten_while_its_requests_are_not_fenced_or_written_in_another_case() {
    let naming_of = |path: &str, rest: &str| {
        let text = format!(
            "[[routes]]\nname = \"a\"\nupstream = \"http://127.0.0.1:1\"\nmatch = {{ path = {path:?} }}\n{rest}\n"
        );
        Naming::of(&Config::parse(&text, Path::new("f.toml"), &Overrides::default()).unwrap().routes)
    };
    let one = naming_of("/a", "resource = \"one\"");
    let open = naming_of("/a", "resource = \"one\"\nfenced_methods = []").remembering(&one);
    assert_eq!(renames(&open, &naming_of("/a", "resource = \"three\"")).unwrap().len(), 1);
    let one = naming_of("/Accounts/{a}", "resource = \"one/{a}\"");
    let two = naming_of("/accounts/{a}", "resource = \"two/{a}\"").remembering(&one);
    assert_eq!(renames(&two, &naming_of("/Accounts/{a}", "resource = \"three/{a}\"")).unwrap().len(), 1);
}

#[test]
fn only_one_name_that_becomes_many_depends_on_marks_that_are_not_raised_along() {
    let splits = |old: &str, new: &str| {
        let found = renames(&naming(&[("/{a}/{b}", old)]), &naming(&[("/{a}/{b}", new)])).unwrap();
        found[0].splits()
    };
    assert!(splits("x", "x/{a}") && splits("x/{a}", "y/{a}/{b}"));
    assert!(!splits("x", "y") && !splits("x/{a}", "y/{a}") && !splits("x/{a}", "y"));
}
