//! Texts that others chose, at a length that people can read: for the log, for metrics and for whoever listens.

use std::borrow::Cow;

/// What stands for the rest of a text.
const MARK: char = '…';

/// The text, or as much of its beginning as has `most` bytes together with the mark that something is missing.
pub(crate) fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(most.saturating_sub(MARK.len_utf8()));
    Cow::Owned(format!("{}{MARK}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_cut_between_two_characters_and_says_so() {
        assert_eq!(shorten("/accounts/7", 11), "/accounts/7");
        assert_eq!(shorten("/accounts/77", 11), "/account…");
        assert_eq!(shorten(&"é".repeat(10), 10), "ééé…", "no half of an é");
        for most in 3..40 {
            let short = shorten("aé€😀aé€😀aé€😀aé€😀", most).into_owned();
            assert!(short.len() <= most, "{short} has more than {most} bytes");
        }
    }
}
