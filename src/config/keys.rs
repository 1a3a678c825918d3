//! Every key of the config file and what it may be: the `allowed` half of each config error.
//!
//! The tests hold this table against the serde structs of `raw` and against `config/highgate.example.toml`,
//! so a key cannot be added in one of the three only.

const ADDRESS: &str = "an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080; localhost:8080 and :8080 are on loopback";
const DURATION: &str = r#"above zero and at most "24h", such as "500ms", "5s", "2m" or "1h""#;
const DURATION_OR_ZERO: &str = r#"from "0s" to "24h", such as "500ms", "5s", "2m" or "1h""#;
const METHODS: &str = r#"an array of upper-case methods other than CONNECT, such as ["POST", "PUT"]"#;
const INSECURE: &str = "true or false; true: plain HTTP on another address than loopback is meant (or --insecure, for every port)";
const SERVER_TLS: &str = r#"a table such as { cert = "path", key = "path" }"#;
const CERT: &str = "a PEM file with a certificate and those that signed it, the certificate itself first";
const KEY: &str = "a PEM file with the private key of cert, not encrypted";
const CERTIFICATES: &str = r#"in the place of cert and key, an array such as [{ cert = "path", key = "path" }], the default one first"#;
const CLIENT_CA: &str = "a PEM file with the certificates of who may have signed the clients'";
pub(super) const UPSTREAM: &str = "http://host[:port][/base], or the same with https://";
pub(super) const ENDPOINTS_OF_FLAG: &str =
    "one or more of http://host:port with commas between, all of them https:// with store.tls";

/// A key's path without array indices, and what may be there.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("listen", "a table"),
    ("listen.address", ADDRESS),
    ("listen.workers", "an integer from 0 (one per core) to 1024"),
    ("listen.header_timeout", DURATION),
    ("listen.idle_timeout", DURATION),
    ("listen.request_timeout", DURATION),
    ("listen.send_timeout", DURATION),
    ("listen.max_connections", "an integer from 1 to 1000000"),
    ("listen.connections_per_client", "an integer from 0 (no limit) to 1000000"),
    ("listen.requests_per_connection", "an integer from 0 (no limit) to 1000000"),
    ("listen.streams_per_connection", "an integer from 1 to 100000"),
    ("listen.max_head", r#"from "8KiB" to "256KiB", such as "64KiB""#),
    ("listen.max_headers", "an integer from 10 to 1000"),
    ("listen.refusals_per_second", "an integer from 0 (no limit) to 1000000"),
    ("listen.refusals_burst", "an integer from 1 to 1000000"),
    ("listen.token_header", "a header name that means nothing else, such as x-fencing-token"),
    ("listen.proxy_protocol", r#"a table such as { from = ["10.0.0.0/8"] }"#),
    (
        "listen.proxy_protocol.from",
        r#"an array of addresses and networks of load balancers, such as ["10.0.0.0/8", "2001:db8::7"]"#,
    ),
    ("listen.tls", SERVER_TLS),
    ("listen.tls.cert", CERT),
    ("listen.tls.key", KEY),
    ("listen.tls.certificates", CERTIFICATES),
    ("listen.tls.certificates.cert", CERT),
    ("listen.tls.certificates.key", KEY),
    ("listen.tls.client_ca", CLIENT_CA),
    ("listen.tls.client_auth", "required, optional"),
    ("listen.insecure", INSECURE),
    ("admin", "a table"),
    ("admin.address", "an IP address and a port of its own, such as 127.0.0.1:9901, localhost:9901 or :9901"),
    ("admin.auth", r#"a table such as { bearer_file = "path" }"#),
    ("admin.auth.bearer_file", "a file with one line of visible ASCII characters without spaces"),
    ("admin.tls", SERVER_TLS),
    ("admin.tls.cert", CERT),
    ("admin.tls.key", KEY),
    ("admin.tls.certificates", CERTIFICATES),
    ("admin.tls.certificates.cert", CERT),
    ("admin.tls.certificates.key", KEY),
    ("admin.tls.client_ca", CLIENT_CA),
    ("admin.tls.client_auth", "required, optional"),
    ("admin.insecure", INSECURE),
    ("elections", "a table"),
    (
        "elections.address",
        "an IP address and a port of its own, such as 127.0.0.1:9902, localhost:9902 or :9902",
    ),
    ("elections.auth", r#"a table such as { bearer_file = "path" }"#),
    (
        "elections.auth.bearer_file",
        "a file with one line of visible ASCII characters without spaces, other than the one of admin.auth",
    ),
    ("elections.tls", SERVER_TLS),
    ("elections.tls.cert", CERT),
    ("elections.tls.key", KEY),
    ("elections.tls.certificates", CERTIFICATES),
    ("elections.tls.certificates.cert", CERT),
    ("elections.tls.certificates.key", KEY),
    ("elections.tls.client_ca", CLIENT_CA),
    ("elections.tls.client_auth", "required, optional"),
    ("elections.insecure", INSECURE),
    ("store", "a table"),
    ("store.kind", "embedded, etcd"),
    ("store.path", "a folder"),
    (
        "store.endpoints",
        r#"with kind = "etcd", one or more of http://host:port, all of them https:// with store.tls"#,
    ),
    (
        "store.prefix",
        r#"with kind = "etcd", a slash and names with slashes between, such as "/highgate/default""#,
    ),
    ("store.tls", r#"with kind = "etcd", a table such as { ca = "path", cert = "path", key = "path" }"#),
    ("store.tls.ca", "a PEM file with the certificates of who may have signed etcd's"),
    ("store.tls.cert", "a PEM file with this replica's own certificate, together with key"),
    ("store.tls.key", "a PEM file with the private key of cert"),
    ("store.user", r#"with kind = "etcd", a table such as { name = "highgate", password_file = "path" }"#),
    ("store.user.name", "a user of etcd"),
    ("store.user.password_file", "a file with one line, the password"),
    ("store.validity", r#"with kind = "etcd", from "1s" to "60s""#),
    ("store.compact", r#"with kind = "etcd", from "10s" to "24h", or "off""#),
    ("store.max_resources", "an integer from 1 to 1000000000"),
    ("log", "a table"),
    ("log.format", "text, json"),
    ("log.access", "all, refused, off"),
    ("log.level", LEVELS),
    ("shutdown", "a table"),
    ("shutdown.unready_delay", DURATION_OR_ZERO),
    ("shutdown.drain_limit", DURATION),
    ("metrics", "a table"),
    ("metrics.max_resources", "an integer from 0 to 1000000"),
    ("once", "a table"),
    ("once.keep", r#"above zero and at most "3650d", such as "90d""#),
    ("history", "a table"),
    ("history.keep", r#"above zero and at most "3650d", such as "30d""#),
    ("history.max_size", r#"from "1MiB" to "1TiB", such as "64MiB""#),
    ("secrets", "a table"),
    (
        "secrets.file",
        "a file with lines of a name and a secret, such as `ci 8a3f...`, with a space between; empty lines and lines that start with # do not count",
    ),
    ("signing", "a table"),
    ("signing.dir", "a folder with keys as `highgate keys new` makes them"),
    ("grants", "[[grants]] tables"),
    (
        "grants.who",
        r#"an array of identities, such as ["spiffe://corp/job-a", "dns:*.internal", "cn:job-a", "bearer:ci"]"#,
    ),
    ("grants.may", "an array of write, campaign, observe, operate"),
    ("grants.resources", r#"an array of names of resources, with * for others, such as ["ledger/*"]"#),
    ("routes", "one or more [[routes]] tables, or --upstream instead of them"),
    (
        "routes.name",
        "a name of its own: up to 64 letters, digits, `-`, `_` and `.`, starting with a letter or digit",
    ),
    ("routes.match", r#"a table such as { host = "ledger.internal", path = "/accounts/{account}/{*rest}" }"#),
    ("routes.match.host", r#"a host name, or "*." and one, without a port"#),
    (
        "routes.match.path",
        r#""/", or literal segments, {param} for one segment and a last {*rest} for the others"#,
    ),
    ("routes.match.methods", METHODS),
    ("routes.upstream", UPSTREAM),
    (
        "routes.upstream_tls",
        r#"with an https:// upstream, a table such as { ca = "path", cert = "path", key = "path", server_name = "name" }"#,
    ),
    ("routes.upstream_tls.ca", "a PEM file with the certificates of who may have signed the upstream's"),
    ("routes.upstream_tls.cert", "a PEM file with this gateway's own certificate, together with key"),
    ("routes.upstream_tls.key", "a PEM file with the private key of cert, not encrypted"),
    ("routes.upstream_tls.server_name", "the host name or IP address that the upstream's certificate is for"),
    ("routes.upstream_keep_alive", "true, false"),
    ("routes.upstream_protocol", "http1, h2"),
    ("routes.resource", r#"a template such as "ledger/{account}", or { client = true, default = "name" }"#),
    ("routes.resource.client", "true"),
    ("routes.resource.default", "a resource name"),
    ("routes.fenced_methods", METHODS),
    ("routes.read_bodies", "true, false"),
    ("routes.max_body", r#""none", or from "1KiB" to "1TiB", such as "10MiB""#),
    (
        "routes.request_trailers",
        r#"an array of header names that neither frame, route nor authorise a request, such as ["x-checksum"]"#,
    ),
    ("routes.tokens", "issued, trusted, signed"),
    ("routes.bind_holder", r#"true or false; true not with tokens = "trusted""#),
    ("routes.missing_token", "refuse, allow, audit"),
    (
        "routes.upgrades",
        r#"an array of protocols other than h2c and tls, such as ["websocket"]; [] with upstream_protocol = "h2""#,
    ),
    ("routes.drain_timeout", DURATION_OR_ZERO),
    ("routes.hold_timeout", DURATION),
    (
        "routes.lock_delay",
        r#"above zero and at most "24h", such as "5s"; "0s" only with on_unknown = "proceed""#,
    ),
    ("routes.on_unknown", "block, delay, proceed"),
    ("routes.unknown_statuses", "an array of status codes from 100 to 599, each once, such as [202, 504]"),
    ("routes.connect_timeout", DURATION),
    ("routes.response_timeout", DURATION),
    ("routes.idle_timeout", DURATION),
    ("routes.total_timeout", r#""none", or above zero and at most "24h", such as "5m""#),
];

pub(super) const LEVELS: &str = "error, warn, info, debug, trace";

/// What may be at `key`, a path with or without array indices; nothing if there is no such key.
pub(super) fn allowed(key: &str) -> Option<&'static str> {
    let plain = without_indices(key);
    KEYS.iter().find(|(known, _)| *known == plain).map(|(_, allowed)| *allowed)
}

/// The keys of the table that `key` is in: what an unknown one could have been.
pub(super) fn siblings(key: &str) -> String {
    let plain = without_indices(key);
    let table = plain.rsplit_once('.').map_or("", |(table, _)| table);
    let names: Vec<_> = KEYS.iter().filter_map(|(known, _)| child_of(table, known)).collect();
    names.join(", ")
}

fn child_of<'k>(table: &str, key: &'k str) -> Option<&'k str> {
    let name = if table.is_empty() { key } else { key.strip_prefix(table)?.strip_prefix('.')? };
    (!name.contains('.')).then_some(name)
}

/// `routes[1].match.methods[0]` is `routes.match.methods`.
pub(super) fn without_indices(key: &str) -> String {
    let mut plain = String::with_capacity(key.len());
    let mut rest = key;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        rest = after.split_once(']').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_whatever_their_indices() {
        assert_eq!(allowed("routes[12].match.methods[0]"), Some(METHODS));
        assert_eq!(allowed("routes[0].nonsense"), None);
        assert_eq!(siblings("routes[3].match.hots"), "host, path, methods");
        assert_eq!(
            siblings("nonsense"),
            "listen, admin, elections, store, log, shutdown, metrics, once, history, secrets, signing, grants, routes"
        );
    }
}
