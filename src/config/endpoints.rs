//! The etcd endpoints of the file and of `--etcd`: `http://host:port`, `https://host:port` or `host:port`.
//!
//! Used by `store`. One list is of one scheme, since a replica that spoke to one node in the clear would have
//! told that node's network everything. An endpoint without a scheme goes with the others.

use std::ops::Range;

use highgate_etcd::url::parse_endpoint;
use toml::Spanned;

use super::error::Report;
use super::keys;

const KEY: &str = "store.endpoints";
const FLAG: &str = "--etcd";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// Where etcd is.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    /// As `host:port`.
    pub(super) names: Vec<String>,
    /// None where no endpoint has one.
    pub(super) scheme: Option<Scheme>,
    /// In the file; none for the flag.
    span: Option<Range<usize>>,
}

impl Endpoints {
    /// Reports a problem of the list as a whole.
    pub(super) fn complain(&self, what: &str, report: &mut Report<'_>) {
        match &self.span {
            Some(span) => report.add(span.clone(), KEY.to_owned(), what),
            None => complain_of_flag(what, report),
        }
    }

    fn push(&mut self, text: &str) -> Result<(), String> {
        let (scheme, name) = parse(text)?;
        self.names.push(name);
        match (self.scheme, scheme) {
            (Some(before), Some(scheme)) if before != scheme => {
                Err(format!("{text:?} and an endpoint before it mix http:// and https://"))
            }
            _ => {
                self.scheme = self.scheme.or(scheme);
                Ok(())
            }
        }
    }
}

pub(super) fn of_file(raw: Spanned<Vec<Spanned<String>>>, report: &mut Report<'_>) -> Endpoints {
    let mut endpoints = Endpoints { span: Some(raw.span()), ..Endpoints::default() };
    if raw.get_ref().is_empty() {
        endpoints.complain("without an endpoint there is no etcd", report);
    }
    for (index, text) in raw.into_inner().into_iter().enumerate() {
        if let Err(what) = endpoints.push(text.get_ref()) {
            report.add(text.span(), format!("{KEY}[{index}]"), what);
        }
    }
    endpoints
}

pub(super) fn of_flag(urls: &[String], report: &mut Report<'_>) -> Endpoints {
    let mut endpoints = Endpoints::default();
    for url in urls {
        if let Err(what) = endpoints.push(url) {
            complain_of_flag(&what, report);
        }
    }
    endpoints
}

fn complain_of_flag(what: &str, report: &mut Report<'_>) {
    report.add_flag(FLAG, format!("{what} (or in HIGHGATE_ETCD)"), keys::ENDPOINTS_OF_FLAG);
}

fn parse(text: &str) -> Result<(Option<Scheme>, String), String> {
    // Not repeated: it may be a password.
    if text.contains('@') {
        return Err("an endpoint holds no user name and no password; store.user does".to_owned());
    }
    let (scheme, name) = match text.split_once("://") {
        Some(("http", name)) => (Some(Scheme::Http), name),
        Some(("https", name)) => (Some(Scheme::Https), name),
        Some((scheme, _)) => return Err(format!("the scheme {scheme:?} is unknown")),
        None => (None, text),
    };
    let name = if scheme.is_some() { name.strip_suffix('/').unwrap_or(name) } else { name };
    let name = parse_endpoint(name).map_err(|_| format!("{text:?} is not a host with a port"))?;
    Ok((scheme, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port_with_or_without_a_scheme() {
        for (text, scheme, name) in [
            ("http://h1:2379", Some(Scheme::Http), "h1:2379"),
            ("https://etcd-1.internal:2379/", Some(Scheme::Https), "etcd-1.internal:2379"),
            ("h1:2379", None, "h1:2379"),
            ("http://[::1]:2379", Some(Scheme::Http), "[::1]:2379"),
        ] {
            assert_eq!(parse(text), Ok((scheme, name.to_owned())), "{text}");
        }
        for text in [
            "",
            "h1",
            "http://h1",
            "http://",
            "http://h1:2379/v3",
            "etcd://h1:2379",
            "h1:2379/",
            "HTTP://h:1",
            "h:0",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_password_in_an_endpoint_is_refused_and_not_repeated() {
        let what = parse("http://me:s3cret@h1:2379").unwrap_err();
        assert_eq!(what, "an endpoint holds no user name and no password; store.user does");
    }

    #[test]
    fn endpoints_without_a_scheme_go_with_the_others_and_two_schemes_do_not_mix() {
        let list = |texts: &[&str]| {
            let mut endpoints = Endpoints::default();
            texts.iter().try_for_each(|text| endpoints.push(text)).map(|()| endpoints.scheme)
        };
        assert_eq!(list(&["a:1", "https://b:1", "c:1"]), Ok(Some(Scheme::Https)));
        assert_eq!(list(&["a:1", "b:1"]), Ok(None));
        let mixed = list(&["http://a:1", "b:1", "https://c:1"]).unwrap_err();
        assert_eq!(mixed, "\"https://c:1\" and an endpoint before it mix http:// and https://");
    }
}
