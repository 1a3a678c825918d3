//! Where something is missing that a TOML parser only misses later: a comma, a `]`, a `}` or the end of a string.
//!
//! The parser complains of the line after, which is in order. [`Gap::before`] reads the text up to there once more,
//! for its brackets only, and finds the line that is not.

/// Errors of the parser that may be about something earlier.
const LATE: [&str; 5] = [
    "missing comma between",
    "missing key for inline table",
    "unclosed",
    "unexpected `=` in array",
    "invalid multi-line",
];

/// Something that is missing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Where it should be, at about.
    pub(super) at: usize,
    /// What it belongs to: the bracket or the quotes that were opened.
    pub(super) opening: usize,
    pub(super) what: String,
    pub(super) allowed: &'static str,
}

impl Gap {
    /// What is missing before `offset`, where the parser said `message`; nothing if it is right about the line.
    pub(super) fn before(text: &str, offset: usize, message: &str) -> Option<Self> {
        if !LATE.iter().any(|late| message.starts_with(late)) {
            return None;
        }
        let line = line_of(text, offset);
        let (opening, closing) =
            open_at(text, offset).into_iter().rev().find(|(opening, _)| line_of(text, *opening) < line)?;
        let opened = line_of(text, opening);
        let never = closing.len() > 1 || text.get(offset..).is_none_or(|rest| rest.trim().is_empty());
        let what = if never {
            format!("what begins here has no {closing}")
        } else {
            format!("a comma, or the {closing} for line {opened}, is missing before line {line}")
        };
        // An inline table that begins beside its brace was meant to end on that line.
        let single = closing == "}" && !rest_of_line(text, opening + 1).is_empty();
        let at = if never || single { opening } else { end_of_content_before(text, offset).max(opening) };
        let allowed = if closing.len() > 1 { closing } else { "TOML 1.0" };
        Some(Self { at, opening, what, allowed })
    }
}

/// The brackets and quotes that are open at `offset`, outermost first, each with what closes it.
fn open_at(text: &str, offset: usize) -> Vec<(usize, &'static str)> {
    let bytes = text.as_bytes();
    let (mut open, mut at) = (Vec::new(), 0);
    while at < offset.min(bytes.len()) {
        at = match bytes[at] {
            b'#' => line_end(text, at),
            // A table's header is whole on its line, or the parser says so there.
            b'[' if open.is_empty() && text[line_start(text, at)..at].trim().is_empty() => line_end(text, at),
            b'[' => opened(&mut open, at, "]"),
            b'{' => opened(&mut open, at, "}"),
            b']' | b'}' => {
                open.pop();
                at + 1
            }
            b'"' | b'\'' => match end_of_string(text, at) {
                Some(end) => end,
                None => {
                    open.push((at, if bytes[at] == b'"' { "\"\"\"" } else { "'''" }));
                    return open;
                }
            },
            _ => at + 1,
        };
    }
    open
}

fn opened(open: &mut Vec<(usize, &'static str)>, at: usize, closing: &'static str) -> usize {
    open.push((at, closing));
    at + 1
}

/// Where a string that begins here has ended; nothing if it goes over lines and has no end.
fn end_of_string(text: &str, at: usize) -> Option<usize> {
    let quote = &text[at..=at];
    let triple = quote.repeat(3);
    let (quotes, until) = match text[at..].starts_with(&triple) {
        true => (triple.as_str(), text.len()),
        false => (quote, line_end(text, at)),
    };
    let mut inside = at + quotes.len();
    while inside < until {
        let rest = &text[inside..until];
        let step = rest.chars().next().map_or(1, char::len_utf8);
        match rest {
            _ if rest.starts_with(quotes) => return Some(inside + quotes.len()),
            _ if quote == "\"" && rest.starts_with('\\') => {
                inside += 1 + rest.chars().nth(1).map_or(0, char::len_utf8);
            }
            _ => inside += step,
        }
    }
    // One that should have ended on its line is found by the parser there.
    (quotes.len() == 1).then_some(until)
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

fn line_start(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)
}

fn line_end(text: &str, offset: usize) -> usize {
    let after = &text.as_bytes()[offset..];
    after.iter().position(|byte| *byte == b'\n').map_or(text.len(), |length| offset + length)
}

/// What follows on the line, without a comment. A `#` in a string cuts it short, which is still something.
fn rest_of_line(text: &str, offset: usize) -> &str {
    let rest = &text[offset..line_end(text, offset)];
    rest.split('#').next().unwrap_or_default().trim()
}

/// The end of the last line before that of `offset` that is neither empty nor a comment.
fn end_of_content_before(text: &str, offset: usize) -> usize {
    let mut end = line_start(text, offset);
    while end > 0 {
        let start = line_start(text, end - 1);
        let content = rest_of_line(text, start);
        if !content.is_empty() {
            return text[start..end].find(content).map_or(start, |at| start + at + content.len());
        }
        end = start;
    }
    0
}
