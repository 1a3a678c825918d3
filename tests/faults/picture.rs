//! The timeline of a run as SVG: per resource the tokens over time, with the faults as shaded spans across them and
//! by victim below. Violations are red lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use crate::account::Account;
use crate::annals::Fault;
use crate::support::record::Entry;

/// Left of it are the names.
const MARGIN: f64 = 190.0;
const LANE: f64 = 64.0;
const ROW: f64 = 16.0;
const TOP: f64 = 40.0;
/// A second, and the widest picture.
const SECOND: f64 = 24.0;
const WIDEST: f64 = 24_000.0;
/// Tokens one after the other differ.
const COLOURS: [&str; 6] = ["#2a6f97", "#e09f3e", "#52796f", "#9a5b8c", "#bc6c25", "#457b9d"];

struct Picture<'a> {
    account: &'a Account,
    svg: String,
    /// Of a second.
    scale: f64,
    end: Duration,
    height: f64,
}

/// One token of a resource, from its first byte at the upstream to its last.
struct Span {
    token: u64,
    begin: Duration,
    end: Duration,
}

pub(crate) fn draw(account: &Account, title: &str) -> String {
    let ends = account.entries.iter().map(|entry| account.clock.at(last(entry)));
    let faults = account.faults.iter().filter_map(|fault| fault.ended);
    let end = ends.chain(faults).max().unwrap_or_default() + Duration::from_secs(1);
    let scale = SECOND.min(WIDEST / end.as_secs_f64());
    let lanes = lanes(account);
    let victims: BTreeSet<&str> = account.faults.iter().map(|fault| fault.victim.as_str()).collect();
    let height = TOP + LANE * lanes.len() as f64 + ROW * victims.len() as f64 + 40.0;
    let mut picture = Picture { account, svg: String::new(), scale, end, height };
    picture.open(title);
    account.faults.iter().for_each(|fault| picture.shade(fault));
    for (number, (resource, entries)) in lanes.iter().enumerate() {
        picture.lane(TOP + LANE * number as f64, resource, entries);
    }
    let rows = TOP + LANE * lanes.len() as f64 + 12.0;
    for (number, victim) in victims.iter().enumerate() {
        picture.row(rows + ROW * number as f64, victim);
    }
    picture.axis();
    picture.violations();
    picture.svg + "</svg>\n"
}

fn lanes(account: &Account) -> BTreeMap<&str, Vec<&Entry>> {
    let mut lanes: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in &account.entries {
        lanes.entry(&entry.resource).or_default().push(entry);
    }
    lanes
}

/// When a write was over, as far as the upstream knows.
fn last(entry: &Entry) -> std::time::Instant {
    let cut = entry.cut.map(|(at, _)| at);
    [entry.effect, entry.responded, cut].into_iter().flatten().max().unwrap_or(entry.received)
}

fn spans(account: &Account, entries: &[&Entry]) -> Vec<Span> {
    let mut spans: BTreeMap<u64, Span> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.effect.is_some()) {
        let (begin, end) = (account.clock.at(entry.received), account.clock.at(last(entry)));
        let span = spans.entry(entry.token).or_insert(Span { token: entry.token, begin, end });
        (span.begin, span.end) = (span.begin.min(begin), span.end.max(end));
    }
    spans.into_values().collect()
}

impl Picture<'_> {
    fn x(&self, at: Duration) -> f64 {
        MARGIN + at.as_secs_f64() * self.scale
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.svg, "{element}").expect("a String takes all");
    }

    fn open(&mut self, title: &str) {
        let (width, height) = (self.x(self.end) + 20.0, self.height);
        self.add(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
        ));
        self.add(format_args!("<text x=\"8\" y=\"16\" font-size=\"13\">{}</text>", escaped(title)));
    }

    fn span_of(&self, fault: &Fault) -> (f64, f64) {
        let begin = self.x(fault.began);
        (begin, (self.x(fault.ended.unwrap_or(self.end)) - begin).max(2.0))
    }

    fn shade(&mut self, fault: &Fault) {
        let ((x, width), height) = (self.span_of(fault), self.height - TOP - 30.0);
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#888\" opacity=\"0.10\"/>"
        ));
    }

    /// The tokens of a resource as steps, each higher than the one before it, and every effect as a tick.
    fn lane(&mut self, top: f64, resource: &str, entries: &[&Entry]) {
        self.add(format_args!(
            "<text x=\"8\" y=\"{:.1}\" font-size=\"12\">{}</text>",
            top + 30.0,
            escaped(resource)
        ));
        let spans = spans(self.account, entries);
        let place = |token: u64| spans.iter().position(|span| span.token == token).unwrap_or(0);
        let y = |token: u64| top + LANE - 18.0 - (place(token) % 4) as f64 * 11.0;
        for (number, span) in spans.iter().enumerate() {
            let (x, end, y) = (self.x(span.begin), self.x(span.end), y(span.token));
            let (width, colour) = ((end - x).max(1.0), COLOURS[number % COLOURS.len()]);
            self.add(format_args!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"7\" fill=\"{colour}\">\
                 <title>{resource}: token {}, {:.2} s to {:.2} s</title></rect>",
                span.token,
                span.begin.as_secs_f64(),
                span.end.as_secs_f64()
            ));
        }
        for entry in entries {
            let Some(effect) = entry.effect else { continue };
            let (x, y) = (self.x(self.account.clock.at(effect)), y(entry.token));
            self.add(format_args!(
                "<path d=\"M{x:.1} {:.1}v3\" stroke=\"#222\" stroke-width=\"0.6\"/>",
                y + 7.0
            ));
        }
    }

    /// All faults of one victim.
    fn row(&mut self, top: f64, victim: &str) {
        self.add(format_args!("<text x=\"8\" y=\"{:.1}\">{}</text>", top + 10.0, escaped(victim)));
        let faults = self.account.faults.iter().filter(|fault| fault.victim == victim);
        for fault in faults.cloned().collect::<Vec<_>>() {
            let (x, width) = self.span_of(&fault);
            let kind = escaped(&fault.kind.to_string());
            self.add(format_args!(
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"12\" fill=\"#b33\" opacity=\"0.35\">\
                 <title>{kind}</title></rect>\n<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"8\">{kind}</text>",
                x + 2.0,
                top + 9.0
            ));
        }
    }

    fn axis(&mut self) {
        let y = self.height - 14.0;
        let step = if self.scale < 4.0 { 60 } else { 5 };
        for second in (0..=self.end.as_secs()).step_by(step) {
            let x = self.x(Duration::from_secs(second));
            self.add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\">{second} s</text>"));
        }
    }

    fn violations(&mut self) {
        for violation in &self.account.violations {
            let Some(at) = violation.at else { continue };
            let (x, end) = (self.x(self.account.clock.at(at)), self.height - 26.0);
            let text = escaped(&violation.to_string());
            self.add(format_args!(
                "<path d=\"M{x:.1} {TOP}V{end:.1}\" stroke=\"red\" stroke-width=\"1\"><title>{text}</title></path>"
            ));
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
