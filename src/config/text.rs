//! From the bytes of a config file to its text, or to what they are instead.

use std::path::Path;

use super::error::{ConfigError, Place, Problem};

const UTF_16: [[u8; 2]; 2] = [[0xFF, 0xFE], [0xFE, 0xFF]];

/// The text of `file`, which holds these bytes.
pub(super) fn decode(bytes: Vec<u8>, file: &Path) -> Result<String, ConfigError> {
    let is_utf_16 = UTF_16.iter().any(|mark| bytes.starts_with(mark));
    let is_binary = bytes.contains(&0);
    match String::from_utf8(bytes) {
        Ok(text) if !is_binary => Ok(text),
        Ok(_) => Err(refusal("", file, "this is a binary file, not text".to_owned())),
        Err(_) if is_utf_16 => Err(refusal("", file, "this is text in UTF-16".to_owned())),
        Err(_) if is_binary => Err(refusal("", file, "this is a binary file, not text".to_owned())),
        Err(error) => {
            let (before, after) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
            let what = after.first().map(|byte| format!("the byte 0x{byte:02X} is not UTF-8"));
            Err(refusal(&String::from_utf8_lossy(before), file, what.unwrap_or_default()))
        }
    }
}

/// At the end of `before`, which is the text up to there.
fn refusal(before: &str, file: &Path, what: String) -> ConfigError {
    let place = Some(Place::at(before, file, before.len()));
    let (key, allowed) = ("document".to_owned(), "a text file in UTF-8 with TOML 1.0".to_owned());
    ConfigError::Invalid { problems: vec![Problem { place, key, what, allowed }] }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, LoadInput, Overrides};

    #[test]
    fn a_file_that_is_no_text_is_said_to_be_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        for (bytes, expected) in [
            (
                &b"\x7fELF\x02\x01\x01\x00\x00\xff"[..],
                "1:1: document: this is a binary file, not text; allowed: a text file in UTF-8 with TOML 1.0",
            ),
            (b"[log]\n\x00", "1:1: document: this is a binary file, not text; allowed: "),
            (b"\xff\xfe[\x00l\x00", "1:1: document: this is text in UTF-16; allowed: "),
            (b"[log]\nlevel = 'caf\xe9'\n", "2:13: document: the byte 0xE9 is not UTF-8; allowed: "),
        ] {
            std::fs::write(&file, bytes).unwrap();
            let input = LoadInput { file: Some(file.clone()), overrides: Overrides::default() };
            let message = Config::load(&input).unwrap_err().to_string();
            assert!(message.starts_with(&format!("{}:{expected}", file.display())), "{message}");
        }
    }
}
