//! The Prometheus text form of what the recorder cannot hold: series that come and go, and what is read at each scrape.

use std::fmt::Write as _;

use super::names::{self, Kind};

/// Text under construction.
pub(super) struct Text(String);

impl Text {
    /// Goes on after what is there.
    pub(super) fn after(text: String) -> Self {
        Self(text)
    }

    /// All series of one metric, if there are any. Labels and value of each.
    pub(super) fn metric<'a>(
        &mut self,
        name: &'static str,
        series: impl IntoIterator<Item = (Vec<(&'static str, &'a str)>, f64)>,
    ) {
        let mut series = series.into_iter().peekable();
        let (Some(_), Some(metric)) = (series.peek(), names::ALL.iter().find(|metric| metric.name == name))
        else {
            return;
        };
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        self.line(format_args!("# HELP {name} {}\n# TYPE {name} {kind}\n", metric.help));
        for (labels, value) in series {
            let labels: Vec<_> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            if labels.is_empty() {
                self.line(format_args!("{name} {value}\n"));
            } else {
                self.line(format_args!("{name}{{{}}} {value}\n", labels.join(",")));
            }
        }
        self.line(format_args!("\n"));
    }

    /// A metric with one series and no labels.
    pub(super) fn number(&mut self, name: &'static str, value: Option<f64>) {
        self.metric(name, value.map(|value| (Vec::new(), value)));
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let written = self.0.write_fmt(line);
        debug_assert!(written.is_ok(), "a string takes everything");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_label_may_hold_is_escaped_and_a_metric_without_series_is_not_there() {
        let mut text = Text::after("before\n".to_owned());
        text.metric(names::LEADER, [(vec![("resource", "a"), ("holder", "x\"y\\z\n")], 1.0)]);
        text.metric(names::WAITING, []);
        text.number(names::CONNECTIONS, Some(2.5));
        let text = text.finish();
        assert!(text.starts_with("before\n# HELP highgate_leader_info "), "{text}");
        assert!(
            text.contains("\nhighgate_leader_info{resource=\"a\",holder=\"x\\\"y\\\\z\\n\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("\nhighgate_connections 2.5\n") && !text.contains(names::WAITING), "{text}");
    }
}
