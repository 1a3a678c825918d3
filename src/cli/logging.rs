//! Structured logs on stderr, as text or JSON, written by a thread of their own so that no request waits.
//!
//! Level and format can be changed while the process runs: a reload of the config file does.

use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use highgate::config::{Log, LogFormat};
use highgate_elector::timestamp;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, WorkerGuard};
use tracing_subscriber::fmt::format::{Format, Full, Json, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{self as lines, FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// The logs of the process. What is buffered is written when this goes.
pub(super) struct Logs {
    level: reload::Handle<LevelFilter, Registry>,
    json: Arc<AtomicBool>,
    dropped: ErrorCounter,
    _writer: WorkerGuard,
}

/// Writes an event in the format of the moment.
struct Either {
    json: Arc<AtomicBool>,
    as_text: Format<Full, Clock>,
    as_json: Format<Json, Clock>,
}

/// Times as they are written everywhere else.
#[derive(Clone, Copy)]
struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&timestamp::format(SystemTime::now()))
    }
}

/// Starts logging for the process.
pub(super) fn start(log: &Log) -> Logs {
    let (writer, guard) = tracing_appender::non_blocking(std::io::stderr());
    let dropped = writer.error_counter();
    let (filter, level) = reload::Layer::new(level_of(log));
    let json = Arc::new(AtomicBool::new(log.format == LogFormat::Json));
    let either = Either {
        json: json.clone(),
        as_text: lines::format().with_timer(Clock),
        // Spans are those of libraries, and their fields are kept in the form of the text.
        as_json: lines::format()
            .with_timer(Clock)
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false),
    };
    let written =
        lines::layer().with_writer(writer).with_ansi(std::io::stderr().is_terminal()).event_format(either);
    tracing_subscriber::registry().with(filter).with(written).init();
    Logs { level, json, dropped, _writer: guard }
}

impl Logs {
    /// Counts the lines that were dropped because stderr did not keep up.
    pub(super) fn dropped_lines(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let dropped = self.dropped.clone();
        move || dropped.dropped_lines() as u64
    }

    /// Goes on with this level and format.
    pub(super) fn change(&self, log: &Log) {
        self.json.store(log.format == LogFormat::Json, Ordering::Relaxed);
        // It fails only without a subscriber, and the process has one until it ends.
        let _ = self.level.reload(level_of(log));
    }
}

fn level_of(log: &Log) -> LevelFilter {
    log.level.parse().unwrap_or(LevelFilter::INFO)
}

impl<S, N> FormatEvent<S, N> for Either
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if !self.json.load(Ordering::Relaxed) {
            return self.as_text.format_event(context, writer, event);
        }
        let mut plain = String::new();
        self.as_json.format_event(context, Writer::new(&mut plain), event)?;
        writer.write_str(&plain)
    }
}
