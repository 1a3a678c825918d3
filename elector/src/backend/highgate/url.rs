//! `highgate://h1:9902,h2:9902[?ca=…&cert=…&key=…]`, taken apart.
//!
//! One rule says whether TLS is spoken, with all gateways of a URL alike: `highgates://` says so, and so does whoever
//! names an authority, a certificate or a key.

use std::path::PathBuf;

#[cfg(not(feature = "tls"))]
use super::no_tls::Roots;
#[cfg(feature = "tls")]
use super::secure::Roots;
use crate::ClientTls;

/// What a URL says.
pub(super) struct GatewayUrl<'u> {
    /// `host:port,host:port`
    pub(super) addresses: &'u str,
    pub(super) security: Security,
}

/// How its gateways are spoken to.
#[derive(Default)]
pub(super) struct Security {
    /// None: in plain HTTP.
    pub(super) tls: Option<ClientTls>,
    pub(super) roots: Roots,
}

/// Takes a URL apart. What it names itself goes before what `tls` names.
pub(super) fn parse(url: &str, tls: ClientTls) -> Result<GatewayUrl<'_>, String> {
    let (rest, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, addresses) = rest.split_once("://").unwrap_or(("highgate", rest));
    let tls = files(query)?.or(tls);
    let is_meant = scheme == "highgates" || tls.is_named();
    let security = Security { tls: is_meant.then_some(tls), roots: Roots::default() };
    Ok(GatewayUrl { addresses: addresses.strip_suffix('/').unwrap_or(addresses), security })
}

fn files(query: &str) -> Result<ClientTls, String> {
    let mut files = ClientTls::default();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let file = match name {
            "ca" => &mut files.ca,
            "cert" => &mut files.cert,
            "key" => &mut files.key,
            _ => return Err(format!("it has a parameter {name:?}; there are only ca, cert and key")),
        };
        if value.is_empty() {
            return Err(format!("its parameter {name:?} names no file"));
        }
        *file = Some(PathBuf::from(decoded(value).unwrap_or_else(|| value.to_owned())));
    }
    Ok(files)
}

/// Without percent-encoding. None if it is not good, so that a name with a percent sign means itself.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca(file: &str) -> ClientTls {
        ClientTls { ca: Some(file.into()), ..ClientTls::default() }
    }

    fn tls(url: &str, named: ClientTls) -> Option<ClientTls> {
        parse(url, named).unwrap().security.tls
    }

    #[test]
    fn tls_is_spoken_where_the_scheme_or_a_file_says_so() {
        let nothing = ClientTls::default;
        assert_eq!(tls("highgate://a:1,b:2", nothing()), None);
        assert_eq!(tls("a:1", nothing()), None);
        assert_eq!(tls("highgates://a:1", nothing()), Some(nothing()));
        assert_eq!(tls("highgate://a:1", ca("x")), Some(ca("x")), "named by a flag or the environment");
        assert_eq!(tls("highgate://a:1,b:2/?ca=/etc/a%20b", nothing()), Some(ca("/etc/a b")));
        assert_eq!(tls("highgate://a:1?ca=own", ca("x")), Some(ca("own")));
        assert_eq!(tls("highgate://a:1?ca=100%", nothing()), Some(ca("100%")));
        let both = tls("highgate://a:1?cert=c&key=k", ca("x")).unwrap();
        assert_eq!((both.ca, both.cert, both.key), (Some("x".into()), Some("c".into()), Some("k".into())));
    }

    #[test]
    fn addresses_are_what_is_left() {
        for url in ["highgate://a:1,b:2", "highgates://a:1,b:2/", "a:1,b:2", "highgate://a:1,b:2/?ca=f"] {
            assert_eq!(parse(url, ClientTls::default()).unwrap().addresses, "a:1,b:2", "{url}");
        }
        for bad in ["highgate://a:1?tls=yes", "highgate://a:1?ca", "highgate://a:1?ca="] {
            assert!(parse(bad, ClientTls::default()).is_err(), "{bad}");
        }
    }
}
