//! Every kind of config error, word for word.

use crate::config::tests::{ROUTE, refusal};

/// The message for a route with one more line, which is line 4.
fn route_refusal(line: &str) -> String {
    refusal(&format!("{ROUTE}{line}\n"))
}

#[test]
fn a_bad_value_is_reported_with_its_place_its_key_and_what_is_allowed() {
    for (line, expected) in [
        (
            "tokens = 'none'",
            r#"f.toml:4:10: routes[0].tokens: unknown value "none"; allowed: issued, trusted, signed"#,
        ),
        (
            "missing_token = ''",
            r#"f.toml:4:17: routes[0].missing_token: unknown value ""; allowed: refuse, allow, audit"#,
        ),
        (
            "hold_timeout = '0s'",
            r#"f.toml:4:16: routes[0].hold_timeout: zero is not possible here; allowed: above zero and at most "24h", such as "500ms", "5s", "2m" or "1h""#,
        ),
        (
            "lock_delay = '0s'",
            r#"f.toml:4:14: routes[0].lock_delay: zero is not possible here; allowed: above zero and at most "24h", such as "5s"; "0s" only with on_unknown = "proceed""#,
        ),
        (
            "match = { host = 'a:80' }",
            r#"f.toml:4:18: routes[0].match.host: "a:80" is not a host pattern; allowed: a host name, or "*." and one, without a port"#,
        ),
        (
            "match = { path = '/a/../b' }",
            r#"f.toml:4:18: routes[0].match.path: the path has a `.` or `..` segment; allowed: "/", or literal segments, {param} for one segment and a last {*rest} for the others"#,
        ),
        (
            "match = { methods = ['PUT', 'get'] }",
            r#"f.toml:4:29: routes[0].match.methods[1]: "get" is not in upper case, and methods have case; allowed: an array of upper-case methods other than CONNECT, such as ["POST", "PUT"]"#,
        ),
        (
            "match = { methods = [] }",
            r#"f.toml:4:21: routes[0].match.methods: without a method nothing matches; allowed: an array of upper-case methods other than CONNECT, such as ["POST", "PUT"]"#,
        ),
        (
            "unknown_statuses = [504, 99]",
            "f.toml:4:26: routes[0].unknown_statuses[1]: 99 is not a status code; allowed: an array of status codes from 100 to 599, each once, such as [202, 504]",
        ),
        (
            "unknown_statuses = [600]",
            "f.toml:4:21: routes[0].unknown_statuses[0]: 600 is not a status code; allowed: an array of status codes from 100 to 599, each once, such as [202, 504]",
        ),
        (
            "unknown_statuses = [504, 202, 504]",
            "f.toml:4:31: routes[0].unknown_statuses[2]: 504 is here twice; allowed: an array of status codes from 100 to 599, each once, such as [202, 504]",
        ),
        (
            "resource = 'ledger/{account}'",
            r#"f.toml:4:12: routes[0].resource: `{account}` is not captured by the path pattern (it captures nothing); allowed: a template such as "ledger/{account}", or { client = true, default = "name" }"#,
        ),
        (
            "resource = { client = false }",
            "f.toml:4:23: routes[0].resource.client: false: leave the table out instead; allowed: true",
        ),
        ("resource = { default = 'a' }", "f.toml:4:12: routes[0].resource.client: is missing; allowed: true"),
        (
            "resource = { client = true, default = 'a//b' }",
            "f.toml:4:39: routes[0].resource.default: a resource name has no empty segments; allowed: a resource name",
        ),
    ] {
        assert_eq!(route_refusal(line), expected);
    }
}

#[test]
fn all_bad_values_are_reported_in_the_order_of_the_file() {
    let text = "[listen]\naddress = 'x'\nworkers = -1\n[[routes]]\nname = '-'\nhold_timeout = '1'\n[[routes]]\nname = 'é'\nupstream = 'ftp://u'\n";
    let message = refusal(text);
    let places: Vec<_> =
        message.lines().map(|line| line.splitn(5, ':').take(4).collect::<Vec<_>>().join(":")).collect();
    assert_eq!(
        places,
        [
            "f.toml:2:11: listen.address",
            "f.toml:3:11: listen.workers",
            "f.toml:4:1: routes[0].upstream",
            "f.toml:5:8: routes[0].name",
            "f.toml:6:16: routes[0].hold_timeout",
            "f.toml:8:8: routes[1].name",
            "f.toml:9:12: routes[1].upstream",
        ]
    );
    assert!(message.contains(
        "the scheme \"ftp\" is unknown; allowed: http://host[:port][/base], or the same with https://"
    ));
}

#[test]
fn unknown_keys_and_wrong_types_are_named_by_their_full_path() {
    for (text, expected) in [
        (
            "[listen]\nadress = 'x'",
            "f.toml:2:1: listen.adress: unknown key; allowed: address, workers, header_timeout, idle_timeout, request_timeout, send_timeout, max_connections, connections_per_client, requests_per_connection, streams_per_connection, max_head, max_headers, refusals_per_second, refusals_burst, token_header, proxy_protocol, tls, insecure",
        ),
        (
            "listne = 1",
            "f.toml:1:1: listne: unknown key; allowed: listen, admin, elections, store, log, shutdown, metrics, once, history, secrets, signing, grants, routes",
        ),
        (
            "[[routes]]\n[[routes]]\nmatch = { hots = 'x' }",
            "f.toml:3:11: routes[1].match.hots: unknown key; allowed: host, path, methods",
        ),
        (
            "[[routes]]\nresource = { cleint = true }",
            "f.toml:2:14: routes[0].resource.cleint: unknown key; allowed: client, default",
        ),
        (
            "[[routes]]\nmatch.x.y = 1",
            "f.toml:2:7: routes[0].match.x: unknown key; allowed: host, path, methods",
        ),
        (
            "[listen]\n\taddress = 5",
            "f.toml:2:12: listen.address: wrong type: integer `5`; allowed: an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080; localhost:8080 and :8080 are on loopback",
        ),
        (
            "[log]\nlevel = 'é' # é\naccess = 1",
            "f.toml:3:10: log.access: wrong type: integer `1`; allowed: all, refused, off",
        ),
        ("listen = 3", "f.toml:1:10: listen: wrong type: integer `3`; allowed: a table"),
        ("[[log]]", "f.toml:1:1: log: wrong type: sequence; allowed: a table"),
        (
            "[[routes]]\nresource = 3",
            r#"f.toml:2:12: routes[0].resource: wrong type: integer `3`; allowed: a template such as "ledger/{account}", or { client = true, default = "name" }"#,
        ),
        (
            "[[routes]]\nfenced_methods = ['PUT', 1]",
            r#"f.toml:2:26: routes[0].fenced_methods[1]: wrong type: integer `1`; allowed: an array of upper-case methods other than CONNECT, such as ["POST", "PUT"]"#,
        ),
        (
            "[[routes]]\nunknown_statuses = ['504']",
            "f.toml:2:21: routes[0].unknown_statuses[0]: wrong type: string \"504\"; allowed: an array of status codes from 100 to 599, each once, such as [202, 504]",
        ),
        (
            "[routes]\nname = 'a'",
            "f.toml:1:1: routes: wrong type: map; allowed: one or more [[routes]] tables, or --upstream instead of them",
        ),
    ] {
        assert_eq!(refusal(text), expected);
    }
}

#[test]
fn what_is_not_toml_is_placed_as_well_as_it_can_be() {
    for (text, expected) in [
        (
            "[[routes]]\nname = \"a\nupstream = 'x'",
            "f.toml:2:10: routes[0].name: invalid basic string; allowed: `\"`",
        ),
        (
            "[listen]\naddress = \n",
            "f.toml:2:11: listen.address: string values must be quoted; allowed: literal string",
        ),
        (
            "[[routes]]\nname = 'a'\nmatch = { path = '/' }\nname = 'b'",
            "f.toml:4:1: routes[0].name: the key is here twice; allowed: each key once",
        ),
        (
            "[[routes]]\nmatch = { path = '/', path = '/' }",
            "f.toml:2:23: routes[0].match.path: the key is here twice; allowed: each key once",
        ),
        ("[listen]\n[listen]", "f.toml:2:2: listen: the key is here twice; allowed: each key once"),
        ("nonsense", "f.toml:1:9: document: key with no value; allowed: `=`"),
        ("[listen", "f.toml:1:8: listen: unclosed table; allowed: `]`"),
    ] {
        assert_eq!(refusal(text), expected);
    }
}

#[test]
fn what_is_missing_is_placed_where_it_is_missing() {
    let route = |lines: &str| refusal(&format!("[[routes]]\nname = 'a'\n{lines}"));
    let upstream = "upstream = 'http://u'\n";
    let table = "a comma, or the } for line 3, is missing before line";
    let array = "a comma, or the ] for line 3, is missing before line";
    for (lines, expected) in [
        ("match = { path = '/a'\n", format!("f.toml:3:9: routes[0].match: {table} 4; allowed: TOML 1.0")),
        ("match = { path = '/a' # {\n\n# }\n", format!("f.toml:3:9: routes[0].match: {table} 6; ")),
        ("match = { path = '/a',\ntokens = 'issued'\n", format!("f.toml:3:9: routes[0].match: {table} 5; ")),
        ("match = {\n  path = '/a'\n  host = 'h'\n}\n", format!("f.toml:4:14: routes[0].match: {table} 5; ")),
        ("fenced_methods = ['PUT', 'POST'\n", format!("f.toml:3:32: routes[0].fenced_methods: {array} 4; ")),
        ("fenced_methods = ['PUT',\n", format!("f.toml:3:25: routes[0].fenced_methods: {array} 4; ")),
        (
            "fenced_methods = [\n  'PUT'  # ]\n\n  'POST'\n]\n",
            format!("f.toml:4:8: routes[0].fenced_methods: {array} 6; "),
        ),
        (
            "resource = '''a\n",
            "f.toml:3:12: routes[0].resource: what begins here has no '''; allowed: '''".to_owned(),
        ),
    ] {
        let message = route(&format!("{lines}{upstream}"));
        assert!(message.starts_with(&expected), "{message}\nbut expected\n{expected}");
    }
    let header = route("fenced_methods = ['PUT']\nmatch = { path = '/a'\n\n[log]\nlevel = 'info'\n");
    assert!(header.starts_with("f.toml:4:9: routes[0].match: a comma, or the } for line 4"), "{header}");
    let end = route("match = { path = '/a',\nhost = 'h'\n");
    assert!(end.starts_with("f.toml:3:9: routes[0].match: what begins here has no }; "), "{end}");
}

#[test]
fn what_is_wrong_inside_brackets_stays_where_it_is() {
    for (text, expected) in [
        ("[[routes]]\nfenced_methods = ['PUT',\n  POST]\n", "f.toml:3:3: routes[0].fenced_methods"),
        (
            "[[routes]]\nmatch = { path = '/',\n  path = '/' }\n",
            "f.toml:3:3: routes[0].match.path: the key is here twice",
        ),
        (
            "[[routes]]\nmatch = { path = '/',\n  hots = '/' }\n",
            "f.toml:3:3: routes[0].match.hots: unknown key",
        ),
        ("[log]\nlevel = \"a ] } '''\"\naccess =\n", "f.toml:3:9: log.access: "),
    ] {
        let message = refusal(text);
        assert!(message.starts_with(expected), "{message}\nbut expected\n{expected}");
    }
}
