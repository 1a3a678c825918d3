//! Structured logs on stderr, as text or JSON, written by a thread of their own so that no request waits.

use std::io::IsTerminal;

use highgate::config::{Log, LogFormat};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::WorkerGuard;

/// Starts logging for the process. What is buffered is written when the guard goes.
pub(super) fn start(log: &Log) -> WorkerGuard {
    let (writer, guard) = tracing_appender::non_blocking(std::io::stderr());
    let level: LevelFilter = log.level.parse().unwrap_or(LevelFilter::INFO);
    let logs = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal());
    match log.format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    guard
}
