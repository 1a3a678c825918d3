//! `--dev-tls`: every port speaks TLS with a certificate that was made for nothing else.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Config, ConfigError, Store};
use crate::tls::{Protocols, Server, ServerFiles, dev};

/// Puts it on all ports of a config whose file names no certificate for any of them.
pub(super) fn put_on(config: &mut Config) -> Result<(), ConfigError> {
    let (Store::Embedded { path } | Store::Etcd(super::Etcd { path, .. })) = &config.store;
    let files = dev::ensure(path, SystemTime::now())?;
    let load = |protocols| {
        let files = ServerFiles { certificates: vec![files.server.clone()], clients: None };
        Server::load(files, protocols).map(|server| Some(Arc::new(server)))
    };
    config.listen.tls = load(Protocols::Http1AndHttp2)?;
    config.admin.tls = load(Protocols::Http1)?;
    if let Some(elections) = &mut config.elections {
        elections.tls = load(Protocols::Http1)?;
    }
    config.dev_tls = Some(files);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::tests::ROUTE;
    use crate::config::{Config, ConfigError, Overrides};

    fn parse(text: &str, data: &Path, listen: &str) -> Result<Config, ConfigError> {
        let overrides = Overrides {
            dev_tls: true,
            data_dir: Some(data.to_owned()),
            listen: Some(listen.parse().unwrap()),
            ..Overrides::default()
        };
        Config::parse(&format!("{text}{ROUTE}"), Path::new("f.toml"), &overrides)
    }

    #[test]
    fn every_port_has_it_and_a_reload_finds_the_same() {
        let folder = tempfile::tempdir().unwrap();
        // Not insecure, though others than this machine reach it.
        let config = parse("[elections]\n", folder.path(), "0.0.0.0:0").unwrap();
        assert!(config.listen.tls.is_some() && config.admin.tls.is_some());
        assert!(config.elections.as_ref().is_some_and(|port| port.tls.is_some()));
        let again = parse("[elections]\n", folder.path(), "0.0.0.0:0").unwrap();
        assert_eq!(config.needs_restart(&again), Vec::<&str>::new());
        assert_eq!(config, again);
    }

    #[test]
    fn beside_a_certificate_of_the_file_it_is_an_error_that_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        for table in ["listen", "admin", "elections"] {
            let text = format!("[{table}.tls]\ncert = 'c'\nkey = 'k'\n");
            let error = parse(&text, folder.path(), "127.0.0.1:0").unwrap_err().to_string();
            let expected = format!(
                "f.toml:1:1: {table}.tls: stands beside --dev-tls (or HIGHGATE_DEV_TLS), which brings its own certificate: leave one \
                 of the two out"
            );
            assert!(error.starts_with(&expected), "{error}");
        }
        assert!(!folder.path().join("dev-tls").exists(), "nothing is made for a config that is none");
    }

    #[test]
    fn a_data_folder_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = parse("", &file, "127.0.0.1:0").unwrap_err();
        assert_eq!(error.to_string(), "--dev-tls (or HIGHGATE_DEV_TLS) has no certificate");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause, format!("{}/dev-tls cannot be written", file.display()));
    }
}
