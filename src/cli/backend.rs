//! `highgate backend init`: makes what a backend needs before its first use.

use std::process::ExitCode;

use highgate::store::etcd::{PrepareError, Prepared, prepare};
use highgate_etcd::CallError;
use highgate_etcd::url::EtcdUrl;

use super::client::{EXIT_FAILED, EXIT_UNAVAILABLE, print};

/// Bad usage.
const EXIT_USAGE: u8 = 2;

/// Backends of elections and marks
#[derive(Clone, Debug, clap::Args)]
pub(super) struct BackendArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Say that no gateway has used this etcd and prefix before, nor an etcd that it replaces: gateways then need not wait
    /// for any when they first start
    Init {
        /// Such as etcd://h1:2379,h2:2379/highgate/default
        url: String,
    },
}

/// Prepares a backend, or says why not.
pub(super) async fn run(args: BackendArgs) -> anyhow::Result<ExitCode> {
    let Command::Init { url } = args.command;
    let url = match EtcdUrl::parse(&url) {
        Ok(url) => url,
        Err(error) => {
            return Ok(refuse(EXIT_USAGE, &format!("{error}; only etcd:// has something to prepare")));
        }
    };
    match prepare(&url).await {
        Ok(prepared) => Ok(print(&text(&url, prepared))?),
        Err(error) => {
            let away = matches!(error, PrepareError::Call(CallError::Unavailable(_)));
            Ok(refuse(if away { EXIT_UNAVAILABLE } else { EXIT_FAILED }, &error.to_string()))
        }
    }
}

fn text(url: &EtcdUrl, prepared: Prepared) -> String {
    match prepared {
        Prepared::Begun => format!("{url}: era 0 has begun; the first gateway waits for nobody\n"),
        Prepared::AlreadyBegun { era } => format!("{url}: in era {era}; nothing to do\n"),
    }
}

fn refuse(code: u8, why: &str) -> ExitCode {
    eprintln!("highgate: {why}");
    ExitCode::from(code)
}
