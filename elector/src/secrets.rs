//! Secrets in the environment: which variables hold one, and what a child process must not inherit.
//!
//! The elector starts no processes, so what a child gets is the program's own business: take [`variables`] out of its
//! environment. What must stay true: no secret is ever printed, and the operators' secret is never sent to elections.

use std::path::Path;
use std::{env, fs, io};

/// The jobs' secret: it opens a gateway's elections, and nothing else.
pub const ELECTIONS_TOKEN: &str = "HIGHGATE_ELECTIONS_TOKEN";
/// The operators' secret. Elections never get it; it is known here to be kept from children.
pub const ADMIN_TOKEN: &str = "HIGHGATE_ADMIN_TOKEN";
/// The URL of the backend, which may contain a password.
pub const BACKEND: &str = "HIGHGATE_BACKEND";

/// The file that a gateway's secret is read from: by the elector and by all of highgate's own commands.
pub const TOKEN_FILE: &str = "HIGHGATE_TOKEN_FILE";

/// The file with the authorities that may have signed a gateway's certificate. Nothing about it is secret.
pub const CA: &str = "HIGHGATE_CA";
/// The file with the certificate that is shown to a gateway.
pub const CERT: &str = "HIGHGATE_CERT";
/// The file with the private key of that certificate.
pub const KEY: &str = "HIGHGATE_KEY";

/// A file has no usable secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the secret in {path} cannot be read")]
    Unreadable { path: String, source: io::Error },
    #[error("{path} is empty: it has to contain the secret that opens the gateway")]
    Empty { path: String },
    #[error("{variable} is not a secret: it is no text")]
    NotText { variable: String },
}

/// The secret in a file, without the space around it.
pub fn from_file(path: &Path) -> Result<String, SecretError> {
    let name = || path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| SecretError::Unreadable { path: name(), source })?;
    match text.trim() {
        "" => Err(SecretError::Empty { path: name() }),
        secret => Ok(secret.to_owned()),
    }
}

/// The secret that the environment holds: in this variable ([`ELECTIONS_TOKEN`], [`ADMIN_TOKEN`]), or else in the file that
/// [`TOKEN_FILE`] names.
pub fn find(variable: &str) -> Result<Option<String>, SecretError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(secret) = set(variable) {
        let secret =
            secret.into_string().map_err(|_| SecretError::NotText { variable: variable.to_owned() })?;
        return Ok(Some(secret));
    }
    set(TOKEN_FILE).map(|file| from_file(Path::new(&file))).transpose()
}

/// The variables that hold a secret in this process's environment, or say where one is: what a child process must not inherit.
///
/// ```no_run
/// let mut child = std::process::Command::new("./job.sh");
/// for variable in highgate_elector::secrets::variables() {
///     child.env_remove(variable);
/// }
/// ```
pub fn variables() -> Vec<&'static str> {
    let backend = env::var_os(BACKEND).map(|url| url.to_string_lossy().into_owned());
    let backend = backend.is_some_and(|url| has_password(&url) || names_key(&url));
    // A certificate is of no use without its key, and an error.
    let always = [ELECTIONS_TOKEN, ADMIN_TOKEN, TOKEN_FILE, CERT, KEY];
    let always = always.into_iter().filter(|name| env::var_os(name).is_some());
    always.chain(backend.then_some(BACKEND)).collect()
}

/// Whether a URL has anything but a name before the last `@`: what is not certainly harmless counts as a password.
fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'))
}

/// Whether a URL says where a private key is.
fn names_key(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query.split('&').any(|parameter| parameter.starts_with("key="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_a_file_has_no_space_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, " s3cret\n").unwrap();
        assert_eq!(from_file(&file).unwrap(), "s3cret");
        std::fs::write(&file, "\n").unwrap();
        assert!(matches!(from_file(&file), Err(SecretError::Empty { .. })));
        assert!(matches!(from_file(&folder.path().join("x")), Err(SecretError::Unreadable { .. })));
    }

    #[test]
    fn a_url_with_a_password_is_a_secret() {
        for url in
            ["etcd://me:pass@h:1/p", "etcd://me:p@ss@h:1", "me:pass@h", "etcd://:@h:1", "etcd://a:1/b@c"]
        {
            assert!(has_password(url), "{url}");
        }
        for url in ["etcd://h:1,i:2/p", "highgate://127.0.0.1:9901", "etcd://me@h:1", ""] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn a_url_that_says_where_a_key_is_is_a_secret() {
        assert!(names_key("highgate://a:1,b:2?ca=/ca&cert=/c&key=/k"));
        assert!(names_key("etcd://h:1/p?key=/k"));
        for url in ["highgate://a:1?ca=/key=", "highgate://key:1", "highgate://a:1", ""] {
            assert!(!names_key(url), "{url}");
        }
    }
}
