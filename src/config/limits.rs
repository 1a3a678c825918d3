//! The limits in `[listen]`: what one client, one connection and one head may be.
//!
//! `sections` calls [`build`] once a load. What must stay true: 0 is no limit wherever a key says so, and nowhere else.

use std::time::Duration;

use super::raw::RawListen;
use super::scope::{HEAD_SIZES, Scope, size};

/// What clients of the data port may do at the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of one address. None: as many as there may be in all.
    pub connections_per_client: Option<usize>,
    /// After so many requests a connection ends. None: it does not.
    pub requests_per_connection: Option<usize>,
    /// Streams at once on an HTTP/2 connection.
    pub streams_per_connection: u32,
    pub head: HeadLimits,
    /// None: requests that fail for their tokens are not counted.
    pub refusals: Option<RefusalLimits>,
    /// How long a client may take nothing of an answer that waits for it.
    pub send_timeout: Duration,
}

/// The largest head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    pub bytes: usize,
    pub fields: usize,
}

/// How many of the requests of one address may fail for their tokens before more of them are turned away unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusalLimits {
    pub per_second: u32,
    /// So many at once, after a time without any.
    pub burst: u32,
}

/// The most fields that a head may be allowed to have.
pub(crate) const MOST_FIELDS: usize = 1000;

const HEAD_SIZE: u64 = 64 << 10;
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Takes the limits out of the table.
pub(super) fn build(raw: &mut RawListen, scope: &mut Scope<'_, '_>) -> Limits {
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let per_second = scope.number("refusals_per_second", raw.refusals_per_second.take(), 1000, 0..=1_000_000);
    let burst = scope.number("refusals_burst", raw.refusals_burst.take(), 10_000, 1..=1_000_000);
    let mut or_none = |name, raw| Some(scope.number(name, raw, 0, 0..=1_000_000)).filter(|most| *most > 0);
    let connections_per_client = or_none("connections_per_client", raw.connections_per_client.take());
    let requests_per_connection = or_none("requests_per_connection", raw.requests_per_connection.take());
    let bytes = scope.read("max_head", raw.max_head.take(), |text| size(&text, HEAD_SIZES));
    let fields = scope.number("max_headers", raw.max_headers.take(), 100, 10..=1000);
    let streams = scope.number("streams_per_connection", raw.streams_per_connection.take(), 200, 1..=100_000);
    Limits {
        connections_per_client,
        requests_per_connection,
        streams_per_connection: narrow(streams),
        head: HeadLimits {
            bytes: usize::try_from(bytes.unwrap_or(HEAD_SIZE)).unwrap_or(usize::MAX),
            fields: fields.min(MOST_FIELDS),
        },
        refusals: (per_second > 0)
            .then(|| RefusalLimits { per_second: narrow(per_second), burst: narrow(burst) }),
        send_timeout: scope.duration("send_timeout", raw.send_timeout.take(), SEND_TIMEOUT),
    }
}

impl Limits {
    /// The keys that differ in `other`.
    pub(super) fn changes(&self, other: &Self) -> impl Iterator<Item = &'static str> + use<> {
        let per_second = |limits: &Self| limits.refusals.map(|refusals| refusals.per_second);
        let burst = |limits: &Self| limits.refusals.map(|refusals| refusals.burst);
        let both = self.refusals.is_some() && other.refusals.is_some();
        let changes = [
            ("listen.connections_per_client", self.connections_per_client != other.connections_per_client),
            ("listen.requests_per_connection", self.requests_per_connection != other.requests_per_connection),
            ("listen.streams_per_connection", self.streams_per_connection != other.streams_per_connection),
            ("listen.max_head", self.head.bytes != other.head.bytes),
            ("listen.max_headers", self.head.fields != other.head.fields),
            ("listen.refusals_per_second", per_second(self) != per_second(other)),
            ("listen.refusals_burst", both && burst(self) != burst(other)),
            ("listen.send_timeout", self.send_timeout != other.send_timeout),
        ];
        changes.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{ROUTE, parse, refusal};

    fn listen(lines: &str) -> String {
        format!("[listen]\n{lines}\n{ROUTE}")
    }

    #[test]
    fn none_is_no_limit_and_a_change_needs_a_restart() {
        let limits = parse(ROUTE).unwrap().listen.limits;
        assert_eq!((limits.connections_per_client, limits.requests_per_connection), (None, None));
        assert_eq!(
            (limits.head.bytes, limits.head.fields, limits.streams_per_connection),
            (65_536, 100, 200)
        );
        assert!(parse(&listen("refusals_per_second = 0")).unwrap().listen.limits.refusals.is_none());
        let lines = "connections_per_client = 5\nmax_head = '8KiB'\nrefusals_burst = 1";
        let changed = parse(&listen(lines)).unwrap();
        assert_eq!(
            parse(ROUTE).unwrap().needs_restart(&changed),
            ["listen.connections_per_client", "listen.max_head", "listen.refusals_burst"]
        );
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (line, start) in [
            ("connections_per_client = -1", "f.toml:2:26: listen.connections_per_client: -1 is out of range"),
            ("streams_per_connection = 0", "f.toml:2:26: listen.streams_per_connection: 0 is out of range"),
            ("max_headers = 5", "f.toml:2:15: listen.max_headers: 5 is out of range"),
            ("max_head = '4KiB'", "f.toml:2:12: listen.max_head: \"4KiB\" is too small or too large"),
            ("send_timeout = '0s'", "f.toml:2:16: listen.send_timeout: zero is not possible here"),
            ("proxy_protocol = {}", "f.toml:2:18: listen.proxy_protocol.from: is missing"),
            ("proxy_protocol = { from = [] }", "f.toml:2:27: listen.proxy_protocol.from: is empty"),
            (
                "proxy_protocol = { from = ['10.0.0.1/8'] }",
                "f.toml:2:28: listen.proxy_protocol.from[0]: \"10.0.0.1/8\" has bits set beyond its prefix; allowed: ",
            ),
        ] {
            let message = refusal(&listen(line));
            assert!(message.starts_with(start), "{message}");
        }
    }
}
