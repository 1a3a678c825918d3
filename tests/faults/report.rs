//! What a run comes to: a summary for people, and whether it is a success.

use std::fmt::Write as _;
use std::time::Duration;

use crate::account::Availability;
use crate::course::Ended;
use crate::options::{Options, Peer};
use crate::support::judge::Kind;

/// Shorter runs have too few calm seconds for a share of them to mean much.
const LONG: Duration = Duration::from_secs(300);
/// What a long run has to reach, in percent.
const AVAILABLE: f64 = 99.0;
/// How many violations are printed one by one.
const SHOWN: usize = 10;

pub(crate) struct Verdict {
    pub(crate) text: String,
    /// The line of this peer in a table of them.
    pub(crate) row: String,
    pub(crate) success: bool,
}

pub(crate) const HEADER: &str = "peer         violations  (forwarded, took effect, overlapped, lied)   handovers  passed   faults  available";

pub(crate) fn verdict(ended: &Ended, options: &Options, peer: Peer, seed: u64) -> Verdict {
    let availability = ended.account.availability();
    let failures = failures(ended, &availability, options);
    let violations = ended.account.violations.len();
    let mut text = summary(ended, &availability, options, peer, seed);
    let success =
        if options.expect_violation { violations > 0 } else { violations == 0 && failures.is_empty() };
    if options.expect_violation {
        let caught =
            ended.account.caught_after().map(|after| format!("caught after {:.1} s", after.as_secs_f64()));
        let caught =
            caught.unwrap_or_else(|| "NOT CAUGHT: no violation, although one was expected".to_owned());
        text.push_str(&format!("{caught}\n"));
    } else {
        failures.iter().for_each(|failure| text.push_str(&format!("FAILED: {failure}\n")));
    }
    Verdict { text, row: row(ended, &availability, peer), success }
}

/// What makes a run a failure beside violations of the promise.
fn failures(ended: &Ended, availability: &Availability, options: &Options) -> Vec<String> {
    let mut failures = ended.troubles.clone();
    let (summary, seconds) = (ended.account.summary(), options.duration.as_secs() as usize);
    let faults = ended.annals.faults.len();
    for (count, least, what) in [
        (summary.handovers, seconds / 6, "handovers"),
        (summary.passed, 5 * seconds, "writes passed"),
        (faults, seconds / 6, "faults"),
    ] {
        if count < least {
            failures.push(format!("{count} {what} in {seconds} s show nothing: fewer than {least}"));
        }
    }
    let share = availability.share().unwrap_or(0.0);
    if options.duration >= LONG && share < AVAILABLE {
        failures.push(format!("only {share:.2} % of the leaders' writes passed while nothing was wrong"));
    }
    failures
}

fn summary(ended: &Ended, availability: &Availability, options: &Options, peer: Peer, seed: u64) -> String {
    let mut text = String::new();
    let account = &ended.account;
    let counts = account.summary();
    let mut line = |line: String| text.push_str(&(line + "\n"));
    line(format!(
        "\n== {}: {} of faults, seed {seed}, validity {:?}, {} handovers, {} effects",
        peer.name(),
        seconds(options.duration),
        ended.validity,
        counts.handovers,
        counts.effects
    ));
    line(format!("writes: {}", listed(account.outcomes())));
    line(format!("faults: {} ({})", ended.annals.faults.len(), listed(ended.annals.by_kind())));
    if !ended.annals.skipped.is_empty() {
        line(format!("planned, but not done: {}", listed(ended.annals.skipped.clone())));
    }
    line(match &ended.no_packets {
        None => "partitions: by a relay, and by packets lost in a network of our own".to_owned(),
        Some(why) => format!("partitions: by a relay on loopback only: {why}"),
    });
    line(match &ended.clocks {
        Ok(ahead) => format!("clocks: the gateways' are {ahead:?} s ahead, in time namespaces"),
        Err(why) => format!("clocks: one for all gateways: {why}"),
    });
    line(available(availability, ended.recovery));
    line(match ended.recovered {
        Some(after) => format!("after the last fault all serve again within {}", seconds(after)),
        None => "after the last fault NOT all serve again".to_owned(),
    });
    line(format!("violations: {}", account.violations.len()));
    for violation in account.violations.iter().take(SHOWN) {
        line(format!("  {}", account.tell(violation)));
    }
    if account.violations.len() > SHOWN {
        line(format!("  and {} more, in violations.txt", account.violations.len() - SHOWN));
    }
    line(format!("logs and picture: {}", ended.folder.display()));
    line(format!("again: {}", options.replay(peer, seed)));
    text
}

fn available(availability: &Availability, recovery: Duration) -> String {
    let Some(share) = availability.share() else {
        return "availability: no leader wrote while nothing was wrong".to_owned();
    };
    let mut text = format!(
        "availability: {share:.2} % of {} leaders' writes passed outside faults and the {} after each",
        availability.asked,
        seconds(recovery)
    );
    if !availability.others.is_empty() {
        write!(text, "; the others: {}", listed(availability.others.clone())).expect("a String takes all");
    }
    if let Some((gap, resource, since)) = &availability.gap {
        let (gap, since) = (seconds(*gap), seconds(*since));
        write!(text, "; longest time between two: {gap} for {resource}, from {since}")
            .expect("a String takes all");
    }
    text
}

fn row(ended: &Ended, availability: &Availability, peer: Peer) -> String {
    let violations = &ended.account.violations;
    let of = |kind: Kind| violations.iter().filter(|violation| violation.kind == kind).count();
    let kinds =
        [Kind::Forwarded, Kind::TookEffect, Kind::Overlapped, Kind::Lied].map(|kind| of(kind).to_string());
    let share = availability.share().map_or("-".to_owned(), |share| format!("{share:.2} %"));
    let summary = ended.account.summary();
    format!(
        "{:<12} {:>10}  {:<45} {:>9} {:>7} {:>8}  {share:>9}",
        peer.name(),
        violations.len(),
        format!("({})", kinds.join(", ")),
        summary.handovers,
        summary.passed,
        ended.annals.faults.len(),
    )
}

fn listed(counts: std::collections::BTreeMap<String, usize>) -> String {
    let listed: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    listed.join(", ")
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
