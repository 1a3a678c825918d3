//! Secrets in the environment: which variables hold one, and what a child process must not inherit.
//!
//! The elector starts no processes, so what a child gets is the program's own business: take [`variables`] out of its
//! environment. What must stay true: no secret is ever printed, and the jobs' own secret is taken before the
//! operators'.

use std::env;

/// The jobs' secret: it opens a gateway's elections, and nothing else.
pub const ELECTIONS_TOKEN: &str = "HIGHGATE_ELECTIONS_TOKEN";
/// The operators' secret, for gateways whose elections are behind it.
pub const ADMIN_TOKEN: &str = "HIGHGATE_ADMIN_TOKEN";
/// The URL of the backend, which may contain a password.
pub const BACKEND: &str = "HIGHGATE_BACKEND";

/// The secret for a gateway's elections that the environment holds.
pub fn from_env() -> Option<String> {
    first(|name| env::var(name).ok())
}

/// The variables that hold a secret in this process's environment: what a child process must not inherit.
///
/// ```no_run
/// let mut child = std::process::Command::new("./job.sh");
/// for variable in highgate_elector::secrets::variables() {
///     child.env_remove(variable);
/// }
/// ```
pub fn variables() -> Vec<&'static str> {
    let backend = env::var_os(BACKEND).is_some_and(|url| has_password(&url.to_string_lossy()));
    let always = [ELECTIONS_TOKEN, ADMIN_TOKEN].into_iter().filter(|name| env::var_os(name).is_some());
    always.chain(backend.then_some(BACKEND)).collect()
}

fn first(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    [ELECTIONS_TOKEN, ADMIN_TOKEN].into_iter().filter_map(variable).find(|secret| !secret.is_empty())
}

/// Whether a URL has anything but a name before the last `@`: what is not certainly harmless counts as a password.
fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_secret_counts_before_the_operators() {
        let both = |name: &str| Some(name.to_owned());
        assert_eq!(first(both).as_deref(), Some(ELECTIONS_TOKEN));
        assert_eq!(first(|name| both(name).filter(|name| name == ADMIN_TOKEN)).as_deref(), Some(ADMIN_TOKEN));
        let empty = |name: &str| Some(if name == ADMIN_TOKEN { "s" } else { "" }.to_owned());
        assert_eq!(first(empty).as_deref(), Some("s"), "an empty one is none");
        assert_eq!(first(|_| None), None);
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
}
