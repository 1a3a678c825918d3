//! Whether an answer is the one that a page shows. Pure.
//!
//! Letter for letter, but for what differs from run to run: an id (up to 32 hexadecimal digits), the name of a holder (host,
//! process, random digits), and times. An id that is shown again stands for the same id: [`Names`] remembers which.

use std::collections::HashMap;

/// What the page's ids are called in this run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(HashMap<String, String>);

impl Names {
    /// A command of the page, with the ids of this run.
    pub(crate) fn translate(&self, command: &str) -> String {
        self.0.iter().fold(command.to_owned(), |text, (shown, actual)| text.replace(shown, actual))
    }
}

/// What the names are after this answer, if it is the one that is shown. `whole`: nothing may follow.
pub(crate) fn matches(shown: &[String], answer: &str, whole: bool, names: &Names) -> Option<Names> {
    let answer: Vec<_> = answer.trim_end().lines().map(str::trim_end).collect();
    lines(shown, &answer, whole, names)
}

fn lines(shown: &[String], answer: &[&str], whole: bool, names: &Names) -> Option<Names> {
    let Some((first, rest)) = shown.split_first() else {
        return (answer.is_empty() || !whole).then(|| names.clone());
    };
    if first == "..." {
        return (0..=answer.len()).find_map(|skipped| lines(rest, &answer[skipped..], whole, names));
    }
    let (line, others) = answer.split_first()?;
    let mut known = names.clone();
    if !within(first.trim_end(), line, &mut known) {
        return None;
    }
    lines(rest, others, whole, &known)
}

/// One line.
fn within(shown: &str, line: &str, names: &mut Names) -> bool {
    if let Some(rest) = shown.strip_prefix('…') {
        let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
        return ends.into_iter().any(|at| within(rest, &line[at..], names));
    }
    if let (Some(length), Some(actual)) = (id(shown), id(line)) {
        let (shown, rest) = shown.split_at(length);
        let (actual, other) = line.split_at(actual);
        let known = names.0.entry(shown.to_owned()).or_insert_with(|| actual.to_owned());
        return known == actual && within(rest, other, names);
    }
    for differs in [date, timestamp, holder] {
        if let (Some(length), Some(actual)) = (differs(shown), differs(line)) {
            return within(&shown[length..], &line[actual..], names);
        }
    }
    match (shown.chars().next(), line.chars().next()) {
        (None, None) => true,
        (Some(one), Some(other)) if one == other => {
            let length = one.len_utf8();
            within(&shown[length..], &line[length..], names)
        }
        _ => false,
    }
}

/// The length of what this pattern fits at the start: `9` is a digit, `a` a letter, anything else itself.
fn shape(text: &str, pattern: &str) -> Option<usize> {
    let fits = |(byte, wanted): (u8, u8)| match wanted {
        b'9' => byte.is_ascii_digit(),
        b'a' => byte.is_ascii_alphabetic(),
        _ => byte == wanted,
    };
    let head = text.as_bytes().get(..pattern.len())?;
    head.iter().copied().zip(pattern.bytes()).all(fits).then_some(pattern.len())
}

fn date(text: &str) -> Option<usize> {
    shape(text, "aaa, 99 aaa 9999 99:99:99 GMT")
}

fn timestamp(text: &str) -> Option<usize> {
    let seconds = shape(text, "9999-99-99T99:99:99")?;
    let fraction =
        text[seconds..].find(|digit: char| digit != '.' && !digit.is_ascii_digit()).unwrap_or_default();
    text[seconds + fraction..].starts_with('Z').then_some(seconds + fraction + 1)
}

/// A random number of 128 bits, written without zeros before it.
fn id(text: &str) -> Option<usize> {
    let length = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    (24..=32).contains(&length).then_some(length)
}

/// A page may cut the random digits short, with `…`.
fn holder(text: &str) -> Option<usize> {
    let is_part = |letter: &u8| letter.is_ascii_alphanumeric() || *letter == b'-' || *letter == b'.';
    let length = text.bytes().take_while(is_part).count();
    let mut parts = text[..length].rsplitn(3, '-');
    let random =
        parts.next().filter(|part| part.len() >= 4 && part.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let process =
        parts.next().filter(|part| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit()));
    (random.is_some() && process.is_some() && parts.next().is_some_and(|host| !host.is_empty()))
        .then(|| length + if text[length..].starts_with('…') { '…'.len_utf8() } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "27c483872e6f4d0bafa6f3f7d24e1739";

    fn fits(shown: &str, answer: &str) -> bool {
        let shown: Vec<_> = shown.lines().map(str::to_owned).collect();
        matches(&shown, answer, true, &Names::default()).is_some()
    }

    #[test]
    fn what_is_stable_has_to_be_the_same() {
        assert!(fits("a\nb", "a\nb\n") && fits("", ""));
        for answer in ["a", "a\nc", "a\nb\nc", "b\na", "", "a\nbb", "a\n b"] {
            assert!(!fits("a\nb", answer), "{answer:?}");
        }
        assert!(!fits("HTTP/1.1 412 Precondition Failed", "HTTP/1.1 200 OK"));
        assert!(!fits("{\"token\":1}", "{\"token\":2}"));
    }

    #[test]
    fn dots_stand_for_lines_and_an_ellipsis_for_anything_within_one() {
        assert!(fits("a\n...\nz", "a\nz") && fits("a\n...\nz", "a\nb\nc\nz") && fits("...", ""));
        assert!(!fits("a\n...\nz", "a\nb") && !fits("...\nz", "z\na"));
        assert!(fits("a…z", "az") && fits("a…z", "a z z") && !fits("a…z", "a\nz"));
    }

    #[test]
    fn times_and_holders_differ_from_run_to_run() {
        assert!(fits("date: Mon, 16 Nov 2026 05:10:05 GMT", "date: Tue, 17 Nov 2026 15:11:06 GMT"));
        assert!(fits("at 2026-11-16T05:10:05.123Z.", "at 2027-01-01T00:00:00Z."));
        assert!(!fits("at 2026-11-16T05:10:05Z", "at noon"));
        assert!(fits("as web-1-4711-9f0c… now", &format!("as my.host-3-{ID} now")));
        assert!(!fits("as web-1-4711-9f0c…", "as somebody"));
    }

    #[test]
    fn an_id_that_is_shown_again_is_the_same_again() {
        let other = ID.replace('2', "3");
        let shown = [format!("lease {ID}")];
        let names = matches(&shown, &format!("lease {other}"), true, &Names::default()).unwrap();
        assert_eq!(names.translate(&format!("renew {ID}")), format!("renew {other}"));
        assert!(matches(&shown, &format!("lease {other}"), true, &names).is_some());
        assert!(matches(&shown, &format!("lease {}", ID.replace('2', "4")), true, &names).is_none());
    }
}
