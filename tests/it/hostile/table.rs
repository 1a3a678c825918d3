//! Cases as data: sections of a template with one hole, and a line for each case that fills it.
//!
//! ```text
//! template an odd length
//! | POST /case HTTP/1.1\r\nHost: ledger.test\r\n@\r\n\r\nhello
//! want 400
//! a plus sign :: Content-Length: +5
//! a zero before :: Content-Length: 05 => pass
//! ```
//!
//! Bytes are written with `\r`, `\n`, `\t`, `\0`, `\\` and `\xNN`; `<3*ab>` is `ababab`, and `{inner}` a whole request that
//! must never be taken for one; `{length}` and `{hexlength}` are its length.

/// A request inside a request.
pub(super) const INNER: &str =
    "POST /smuggled HTTP/1.1\r\nHost: ledger.test\r\nX-Fencing-Token: 9\r\nContent-Length: 0\r\n\r\n";

pub(super) struct Case {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    pub(super) want: String,
}

/// All cases of a table. A line that cannot be read is an error of the table.
pub(super) fn cases(text: &str) -> Vec<Case> {
    let (mut section, mut template, mut want) = (String::new(), String::new(), String::new());
    let mut cases = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("template ") {
            (section, template) = (name.to_owned(), String::new());
        } else if let Some(more) = line.strip_prefix("| ") {
            template.push_str(more);
        } else if let Some(usual) = line.strip_prefix("want ") {
            usual.clone_into(&mut want);
        } else {
            let (name, rest) = line.split_once(" :: ").unwrap_or_else(|| panic!("no case: {line}"));
            let (filling, want) = rest.rsplit_once(" => ").unwrap_or((rest, &want));
            cases.push(Case {
                name: format!("{section}: {}", name.trim()),
                bytes: bytes(&template.replacen('@', filling, 1)),
                want: want.trim().to_owned(),
            });
        }
    }
    cases
}

/// What a text with escapes stands for.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some((count, piece, after)) = repeated(rest) {
            bytes.extend(self::bytes(piece).repeat(count));
            rest = after;
        } else if let Some(after) = rest.strip_prefix("{inner}") {
            bytes.extend(INNER.bytes());
            rest = after;
        } else if let Some(after) = rest.strip_prefix("{length}") {
            bytes.extend(INNER.len().to_string().bytes());
            rest = after;
        } else if let Some(after) = rest.strip_prefix("{hexlength}") {
            bytes.extend(format!("{:x}", INNER.len()).bytes());
            rest = after;
        } else if let Some(escape) = rest.strip_prefix('\\') {
            let (byte, length) = unescape(escape);
            bytes.push(byte);
            rest = &escape[length..];
        } else {
            bytes.extend(first.to_string().bytes());
            rest = &rest[first.len_utf8()..];
        }
    }
    bytes
}

/// `<3*ab>rest`
fn repeated(text: &str) -> Option<(usize, &str, &str)> {
    let (inside, after) = text.strip_prefix('<')?.split_once('>')?;
    let (count, piece) = inside.split_once('*')?;
    Some((count.parse().ok()?, piece, after))
}

fn unescape(text: &str) -> (u8, usize) {
    match text.as_bytes() {
        [b'r', ..] => (b'\r', 1),
        [b'n', ..] => (b'\n', 1),
        [b't', ..] => (b'\t', 1),
        [b'0', ..] => (0, 1),
        [b'\\', ..] => (b'\\', 1),
        [b'x', high, low, ..] => {
            let digits = [*high, *low];
            let digits = std::str::from_utf8(&digits).expect("two hexadecimal digits");
            (u8::from_str_radix(digits, 16).expect("two hexadecimal digits"), 3)
        }
        _ => panic!("no escape: \\{text}"),
    }
}
