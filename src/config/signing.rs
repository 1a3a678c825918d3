//! The table `[signing]`: the folder of the keys of signed tokens.
//!
//! Without the table it is `keys` in the data folder, which need not be there. What must stay true: a gateway does not
//! start on a folder with a key that it cannot use, and no route wants signed tokens that nothing could be verified by.

use std::path::PathBuf;
use std::sync::Arc;

use super::error::Report;
use super::raw::{RawSigning, Section};
use super::scope::Scope;
use super::{Overrides, Store, Tokens};
use crate::signing::{Signing, default_folder};

pub(super) fn build(
    raw: Option<Section<RawSigning>>,
    store: &Store,
    report: &mut Report<'_>,
) -> Arc<Signing> {
    let span = raw.as_ref().map_or(0..0, |raw| raw.span.clone());
    let is_named = raw.is_some();
    let named =
        raw.and_then(|raw| Scope::new(report, "signing").require("dir", &span, raw.into_table().dir, folder));
    let (signing, problems) = Signing::open(named.unwrap_or_else(|| default_folder(store.folder())));
    for problem in problems {
        let span = if is_named { span.clone() } else { 0..0 };
        report.add(span, "signing.dir".to_owned(), problem);
    }
    Arc::new(signing)
}

fn folder(dir: String) -> Result<PathBuf, String> {
    match std::fs::read_dir(&dir) {
        Ok(_) => Ok(dir.into()),
        Err(error) => Err(format!("{dir:?} is no folder that can be read: {error}")),
    }
}

/// Why these tokens cannot be wanted, if they cannot.
pub(super) fn check_tokens(tokens: Tokens, signing: &Signing) -> Result<(), String> {
    if tokens != Tokens::Signed || signing.keys().can_verify() {
        return Ok(());
    }
    let folder = signing.folder().display();
    Err(format!(
        "signed tokens need a key, and there is none in {folder}: make one with `highgate keys new --dir {folder}`, or name \
         the folder of your keys with `dir` in [signing]"
    ))
}

/// The same for the flag that speaks for every route.
pub(super) fn check_flag(overrides: &Overrides, signing: &Signing, report: &mut Report<'_>) {
    if let Some(Err(what)) = overrides.tokens.map(|tokens| check_tokens(tokens, signing)) {
        report.add_flag("--tokens", what, "issued, trusted, or signed with a key");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::config::{Config, Overrides};
    use crate::signing::create;

    const ROUTE: &str = "[[routes]]\nname = 'a'\nupstream = 'http://u'\n";

    fn parse(text: &str, tokens: Option<Tokens>) -> Result<Config, String> {
        let overrides = Overrides { tokens, ..Overrides::default() };
        Config::parse(text, Path::new("a.toml"), &overrides).map_err(|error| format!("{error:?}"))
    }

    fn made(folder: &Path) {
        create(folder, SystemTime::now(), Duration::ZERO).unwrap();
    }

    #[test]
    fn signed_tokens_need_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("keys");
        let store = format!("[store]\npath = '{}'\n{ROUTE}", folder.path().display());
        let signed = format!("{store}tokens = 'signed'\n");
        let error = parse(&signed, None).unwrap_err();
        assert!(error.contains("line: 6") && error.contains("routes[0].tokens"), "{error}");
        assert!(error.contains(&format!("`highgate keys new --dir {}`", dir.display())), "{error}");
        let flag = parse(&store, Some(Tokens::Signed)).unwrap_err();
        assert!(flag.contains("--tokens") && flag.contains("signed tokens need a key"), "{flag}");
        made(&dir);
        assert_eq!(parse(&signed, None).unwrap().signing.folder(), dir);
        assert!(parse(&store, Some(Tokens::Signed)).is_ok());
    }

    #[test]
    fn the_folder_of_keys_is_there_if_it_is_named_and_holds_nothing_but_keys() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("keys");
        let text = format!("[signing]\ndir = '{}'\n{ROUTE}tokens = 'signed'\n", dir.display());
        let error = parse(&text, None).unwrap_err();
        assert!(error.contains("signing.dir") && error.contains("is no folder that can be read"), "{error}");
        made(&dir);
        let config = parse(&text, None).unwrap();
        assert_eq!(config.signing.folder(), dir);
        assert_eq!(config.needs_restart(&parse(ROUTE, None).unwrap()), ["signing.dir"]);
        std::fs::write(dir.join("0123456789abcdef.key"), "nothing").unwrap();
        let error = parse(&text, None).unwrap_err();
        assert!(error.contains("0123456789abcdef.key is no key"), "{error}");
        assert!(parse("[signing]\n", None).unwrap_err().contains("signing.dir"));
    }
}
