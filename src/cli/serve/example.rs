//! The command that the greeting invites to try: one that this gateway passes, as it is configured and as its marks are.
//!
//! The first route that fences something is asked for, by its own method, path, host and resource. Whether the request
//! really is that route's is not guessed here: the gate's own [`claim`] reads it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use highgate::config::{Config, FencedMethods, ResourceRule, Route, Tokens, spelled};
use highgate::gate::claim::{Stand, claim};
use highgate::gate::table::RouteTable;
use highgate::gateway::Gateway;
use highgate_elector::{Resource, headers};
use http::{Method, Request};

/// What stands for a parameter, and for a resource that the client has to name.
const ONE: &str = "1";
const NAMED: &str = "example";
/// The header that names it.
const RESOURCE: &str = "X-Fencing-Resource";

/// Where jobs are elected.
pub(super) enum Jobs<'c> {
    At(SocketAddr, Option<&'c Path>),
    Nowhere,
}

/// How the token gets into the request.
enum Shown<'v> {
    /// In a header that is written out.
    Value(&'v str),
    /// From the file of `highgate run` for curl, which has the resource as well: what is in curl's arguments can be read
    /// by whoever lists processes, and a signed token is not for them.
    CurlConfig,
}

/// A request that one of the routes takes.
struct Example<'c> {
    route: &'c Route,
    resource: Resource,
    method: Method,
    /// Of the host and of the resource, where the route wants them.
    headers: Vec<(&'static str, String)>,
    url: String,
    token_header: String,
    /// What curl has to trust, quoted for a shell.
    ca: Option<String>,
}

/// The line for a gateway that has been started; nothing if no route fences anything.
pub(super) fn line(config: &Config, gateway: &Gateway) -> Option<String> {
    let next = |resource: &Resource| match gateway.ledger().get(resource.as_str()) {
        Some(cell) if cell.is_open() => cell.mark(),
        Some(cell) => cell.mark() + 1,
        None => 1,
    };
    describe(config, gateway.address(), &jobs(config, gateway), next)
}

fn jobs<'c>(config: &'c Config, gateway: &Gateway) -> Jobs<'c> {
    let admin = gateway.admin_address();
    match (&config.elections, gateway.elections_address()) {
        (Some(port), Some(address)) => Jobs::At(address, port.auth.as_ref().map(|secret| secret.file())),
        _ if config.admin.auth.is_none() && admin.ip().to_canonical().is_loopback() => Jobs::At(admin, None),
        _ => Jobs::Nowhere,
    }
}

/// `next` is a token that passes, of a resource whose tokens are trusted.
fn describe(
    config: &Config,
    address: SocketAddr,
    jobs: &Jobs<'_>,
    next: impl Fn(&Resource) -> u64,
) -> Option<String> {
    let example = config.routes.iter().find_map(|route| Example::of(route, config, reachable(address)))?;
    Some(match (example.route.tokens, jobs) {
        (Tokens::Trusted, _) => {
            let number = next(&example.resource).to_string();
            format!("try: {}", example.curl(&Shown::Value(&number), '\''))
        }
        (Tokens::Issued | Tokens::Signed, Jobs::Nowhere) => {
            "elections issue the tokens, and no port serves them: add an [elections] table".to_owned()
        }
        (tokens @ (Tokens::Issued | Tokens::Signed), Jobs::At(jobs, secret)) => {
            let secret = secret.map(|file| format!("HIGHGATE_ELECTIONS_TOKEN=\"$(cat {})\" ", quoted(file)));
            let ca = config.dev_tls.as_ref().map(|dev| format!("--ca {} ", quoted(&dev.ca)));
            let shown = match tokens {
                Tokens::Signed if config.listen.token_header == headers::TOKEN => Shown::CurlConfig,
                Tokens::Signed => Shown::Value("$FENCING_SIGNED_TOKEN"),
                _ => Shown::Value("$FENCING_TOKEN"),
            };
            format!(
                "try: {}highgate run --resource {} --backend highgate://{} {}-- sh -c '{}' # its election issues the token",
                secret.unwrap_or_default(),
                example.resource,
                reachable(*jobs),
                ca.unwrap_or_default(),
                // Between single quotes already.
                example.curl(&shown, '"').replace('\'', r"'\''")
            )
        }
    })
}

impl<'c> Example<'c> {
    /// A fenced request of this route, if there is one.
    fn of(route: &'c Arc<Route>, config: &Config, address: SocketAddr) -> Option<Self> {
        let method = fenced_method(route)?;
        let path = path(&route.matcher.path.to_string());
        let host = route.matcher.host.as_ref().map(|host| host.to_string().replace('*', "www"));
        let named = matches!(route.resource, ResourceRule::Client { default: None });
        let token_header = &config.listen.token_header;
        let request = Request::builder()
            .method(&method)
            .uri(&path)
            .header("host", host.clone().unwrap_or_else(|| address.to_string()))
            .header(headers::RESOURCE, NAMED)
            .header(token_header, ONE);
        let mut head = request.body(()).ok()?.into_parts().0;
        if !named {
            head.headers.remove(headers::RESOURCE);
        }
        let claim = claim(&head, &RouteTable::of(config.routes.clone()), token_header)
            .ok()
            .filter(|claim| Arc::ptr_eq(&claim.route, route))?;
        let Stand::Fenced { resource, .. } = claim.stand else { return None };
        let named = named.then(|| (RESOURCE, NAMED.to_owned()));
        let headers = host.map(|host| ("Host", host)).into_iter().chain(named).collect();
        let scheme = if config.listen.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}{path}");
        let ca = config.dev_tls.as_ref().map(|dev| quoted(&dev.ca));
        Some(Self { route, resource, method, headers, url, token_header: spelled(token_header.as_str()), ca })
    }

    /// The command, with its headers in these quotes.
    fn curl(&self, token: &Shown<'_>, quote: char) -> String {
        let header = |name: &str, value: &str| format!("-H {quote}{name}: {value}{quote} ");
        let (token, has_resource) = match token {
            Shown::Value(value) => (header(&self.token_header, value), false),
            Shown::CurlConfig => (format!("-K {quote}$FENCING_CURL_CONFIG{quote} "), true),
        };
        let others = self.headers.iter().filter(|(name, _)| !(has_resource && *name == RESOURCE));
        let others: String = others.map(|(name, value)| header(name, value)).collect();
        let ca = self.ca.as_ref().map(|ca| format!("--cacert {ca} ")).unwrap_or_default();
        format!("curl {ca}-i -X {} {token}{others}-d hello {}", self.method, self.url)
    }
}

/// An address to connect to: all addresses are not one.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn fenced_method(route: &Route) -> Option<Method> {
    let listed = route.matcher.methods.iter().flatten();
    let fenced = match &route.fenced {
        FencedMethods::Only(methods) => methods.as_slice(),
        FencedMethods::AllButSafe => &[],
    };
    let mut candidates = std::iter::once(&Method::POST).chain(listed).chain(fenced);
    let taken =
        |method: &Method| route.matcher.methods.as_ref().is_none_or(|methods| methods.contains(method));
    candidates.find(|method| taken(method) && route.fenced.contains(method)).cloned()
}

/// A path of this pattern, safe to paste into a shell.
fn path(pattern: &str) -> String {
    let segments = pattern.split('/').filter(|segment| !segment.starts_with("{*"));
    let filled: Vec<_> =
        segments.map(|segment| if segment.starts_with('{') { ONE.into() } else { plain(segment) }).collect();
    let path = filled.join("/");
    if path.is_empty() { "/".to_owned() } else { path }
}

/// Percent-encodes what a URL or a shell would not take as it is.
fn plain(segment: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%:@+,=".contains(&byte);
    let encode =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    segment.bytes().map(encode).collect()
}

/// A file's name as one word of a shell.
pub(super) fn quoted(file: &Path) -> String {
    let name = file.to_string_lossy();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/+,=@%:".contains(&byte);
    if name.bytes().all(is_plain) { name.into_owned() } else { format!("'{}'", name.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use highgate::config::Overrides;
    use highgate::signing::create;

    use super::*;

    fn described(text: &str, jobs: &Jobs<'_>) -> Option<String> {
        let config = Config::parse(text, Path::new("f.toml"), &Overrides::default()).expect("a good config");
        let mark = |resource: &Resource| if resource.as_str() == "known" { 41 } else { 1 };
        describe(&config, "0.0.0.0:8080".parse().expect("an address"), jobs, mark)
    }

    const TRUSTED: &str = "[[routes]]\nname = 'known'\nupstream = 'http://u'\ntokens = 'trusted'\n";

    #[test]
    fn the_invitation_is_what_the_route_takes() {
        for (more, expected) in [
            ("", "try: curl -i -X POST -H 'X-Fencing-Token: 41' -d hello http://127.0.0.1:8080/"),
            (
                "match = { host = '*.internal', path = '/a b/{x}/{*rest}', methods = ['GET', 'PUT'] }\nresource = 'r/{x}'",
                "try: curl -i -X PUT -H 'X-Fencing-Token: 1' -H 'Host: www.internal' -d hello http://127.0.0.1:8080/a%20b/1",
            ),
            (
                "fenced_methods = ['PURGE']\nresource = { client = true }",
                "try: curl -i -X PURGE -H 'X-Fencing-Token: 1' -H 'X-Fencing-Resource: example' -d hello http://127.0.0.1:8080/",
            ),
        ] {
            assert_eq!(described(&format!("{TRUSTED}{more}"), &Jobs::Nowhere).as_deref(), Some(expected));
        }
        let renamed = format!("[listen]\ntoken_header = 'x-leader-epoch'\n{TRUSTED}");
        let line = described(&renamed, &Jobs::Nowhere).expect("a line");
        assert!(line.contains("-H 'X-Leader-Epoch: 41'"), "{line}");
    }

    #[test]
    fn a_route_that_fences_nothing_is_passed_over() {
        let unfenced =
            "[[routes]]\nname = 'a'\nmatch.path = '/a'\nupstream = 'http://u'\nfenced_methods = []\n";
        assert_eq!(described(unfenced, &Jobs::Nowhere), None);
        let line = described(&format!("{unfenced}{TRUSTED}"), &Jobs::Nowhere).expect("a line");
        assert!(line.ends_with("http://127.0.0.1:8080/"), "{line}");
    }

    #[test]
    fn where_elections_issue_the_tokens_one_is_won_first() {
        let issued = TRUSTED.replace("trusted", "issued");
        let at = |secret| Jobs::At("127.0.0.1:9901".parse().expect("an address"), secret);
        let curl = r#"curl -i -X POST -H "X-Fencing-Token: $FENCING_TOKEN" -d hello http://127.0.0.1:8080/"#;
        let run = format!(
            "highgate run --resource known --backend highgate://127.0.0.1:9901 -- sh -c '{curl}' # its election issues the token"
        );
        assert_eq!(described(&issued, &at(None)), Some(format!("try: {run}")));
        let secret = at(Some(Path::new("/etc/it's")));
        let expected = format!(r#"try: HIGHGATE_ELECTIONS_TOKEN="$(cat '/etc/it'\''s')" {run}"#);
        assert_eq!(described(&issued, &secret), Some(expected));
        let keys = tempfile::tempdir().expect("a folder");
        create(keys.path(), SystemTime::now(), Duration::ZERO).expect("a key");
        let signing = format!("[signing]\ndir = '{}'\n", keys.path().display());
        let signed = TRUSTED.replace("trusted", "signed");
        for more in ["", "resource = { client = true }"] {
            let line = described(&format!("{signing}{signed}{more}"), &at(None)).expect("a line");
            let curl = r#"'curl -i -X POST -K "$FENCING_CURL_CONFIG" -d hello http://127.0.0.1:8080/'"#;
            assert!(line.contains(curl) && !line.contains("SIGNED"), "{line}");
        }
        let nowhere = described(&issued, &Jobs::Nowhere).expect("a line");
        assert!(nowhere.ends_with("add an [elections] table"), "{nowhere}");
    }
}
