//! `upstream_tls` of a route: how an `https://` upstream is known, and what this gateway shows of itself.
//!
//! What must stay true: an upstream that is `https://` has a certificate that somebody trusted has signed for its name, and
//! nothing that looks like encryption is silently ignored.

use std::ops::Range;
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::ServerName;

use super::raw::{RawUpstreamTls, Section};
use super::scope::Scope;
use super::tls::Named;
use super::upstream::Url;
use crate::tls::{Client, ClientFiles, NoSystemRoots, SystemRoots};

/// The TLS of a URL that nothing more was said of; none of an `http://` one.
pub(super) fn plain(url: &Url, system: &SystemRoots) -> Result<Option<Arc<Client>>, NoSystemRoots> {
    if !url.https {
        return Ok(None);
    }
    let files = ClientFiles { ca: None, identity: None, name: url.server_name() };
    let client = Client::load(files, Some(system.load()?)).expect("no file is named that could be a bad one");
    Ok(Some(Arc::new(client)))
}

/// What to do where nobody is trusted.
pub(super) fn unnamed(error: &NoSystemRoots) -> String {
    format!("{error}: name the upstream's in upstream_tls.ca")
}

/// The TLS of a route's upstream. The outer none: something is wrong, and reported.
pub(super) fn build(
    url: &Url,
    place: Range<usize>,
    raw: Option<Section<RawUpstreamTls>>,
    system: &SystemRoots,
    scope: &mut Scope<'_, '_>,
) -> Option<Option<Arc<Client>>> {
    let Some(raw) = raw else {
        let built = plain(url, system);
        return built.map_err(|error| scope.problem(place, "upstream", unnamed(&error))).ok();
    };
    let (span, raw) = (raw.span.clone(), raw.into_table());
    if !url.https {
        let what = "the upstream is an http:// one, so nothing would be encrypted: make it https://";
        scope.problem(span, "upstream_tls", what);
        return None;
    }
    let mut inner = scope.below("upstream_tls");
    inner.check_pair(&raw.cert, &raw.key);
    let name = inner.read("server_name", raw.server_name, |name| {
        ServerName::try_from(name.clone())
            .map_err(|_| format!("{name:?} is not a host name or an IP address"))
    });
    let mut named = Named::new(inner.path());
    let ca = raw.ca.map(|ca| named.file("ca", ca.span(), ca.into_inner()));
    let identity = named.pair("", raw.cert, raw.key);
    let system = match ca {
        Some(_) => None,
        None => Some(system.load().map_err(|error| inner.problem(span.clone(), "ca", unnamed(&error))).ok()?),
    };
    let files = ClientFiles { ca, identity, name: name.unwrap_or_else(|| url.server_name()) };
    let loaded = Client::load(files, system);
    loaded
        .map_err(|error| named.blame(&error, span, inner.report()))
        .ok()
        .map(|client| Some(Arc::new(client)))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::tests::{parse, refusal};
    use crate::tls::tests::Authority;

    fn route(folder: &tempfile::TempDir, url: &str, tls: &str) -> String {
        let tls = tls.replace("DIR", &folder.path().display().to_string());
        format!("[[routes]]\nname = 'a'\nupstream = '{url}'\n{tls}\n")
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        Authority::shared().client("job-a").write(folder.path(), "own");
        Authority::shared().write(folder.path(), "ca.pem");
        folder
    }

    fn client(config: &Config) -> String {
        format!("{:?}", config.routes.iter().next().unwrap().upstream.to.tls)
    }

    #[test]
    fn an_https_upstream_is_known_by_its_host_unless_a_name_is_given() {
        let folder = folder();
        let own = "upstream_tls = { ca = 'DIR/ca.pem', cert = 'DIR/own.pem', key = 'DIR/own-key.pem' }";
        for (url, tls, expected) in [
            ("https://ledger.test", own, "DnsName(\"ledger.test\")"),
            ("https://127.0.0.1:8443/api", own, "IpAddress(V4("),
            ("https://[::1]:8443", own, "IpAddress(V6("),
            (
                "https://127.0.0.1",
                "upstream_tls = { ca = 'DIR/ca.pem', server_name = 'b.test' }",
                "DnsName(\"b.test\")",
            ),
        ] {
            let config = parse(&route(&folder, url, tls)).unwrap();
            assert!(client(&config).contains(expected), "{url}: {}", client(&config));
        }
    }

    #[test]
    fn what_is_wrong_with_it_is_reported_where_it_is() {
        let folder = folder();
        let dir = folder.path().display().to_string();
        for (url, tls, expected) in [
            (
                "http://a",
                "upstream_tls = { ca = 'DIR/ca.pem' }",
                "f.toml:4:16: routes[0].upstream_tls: the upstream is an http:// one".to_owned(),
            ),
            (
                "https://a",
                "upstream_tls = { ca = 'DIR/x.pem' }",
                format!("f.toml:4:23: routes[0].upstream_tls.ca: {dir}/x.pem cannot be read: "),
            ),
            (
                "https://a",
                "upstream_tls = { ca = 'DIR/ca.pem', cert = 'DIR/own.pem' }",
                "routes[0].upstream_tls.key: is missing: cert and key come together".to_owned(),
            ),
            (
                "https://a",
                "upstream_tls = { ca = 'DIR/ca.pem', server_name = 'a b' }",
                "routes[0].upstream_tls.server_name: \"a b\" is not a host name".to_owned(),
            ),
        ] {
            let message = refusal(&route(&folder, url, tls));
            assert!(message.contains(&expected), "{tls}\n{message}");
        }
    }
}
