//! `FENCING_TOKEN_FILE`: the decimal token and a newline, in a folder of its own below the temporary folder.
//!
//! It is replaced by a rename, so whoever reads it reads a whole token. It is removed when the run ends, and by
//! the guardian when `run` was killed. Not secret: a token is a number, and the gate asks who leads.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use highgate_elector::Token;

const NAME: &str = "token";
const NEW_NAME: &str = "token.new";

/// The file, as long as this is not dropped.
pub(super) struct TokenFile(PathBuf);

impl TokenFile {
    pub(super) fn create(token: Token) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("highgate-run-{}", uuid::Uuid::new_v4()));
        // Fails if it exists, so nobody else's folder is ever written to.
        fs::create_dir(&folder)?;
        let file = Self(folder);
        file.replace(token)?;
        Ok(file)
    }

    pub(super) fn replace(&self, token: Token) -> io::Result<()> {
        let new = self.0.join(NEW_NAME);
        let mut file = fs::File::create(&new)?;
        writeln!(file, "{token}")?;
        file.sync_all()?;
        fs::rename(new, self.path())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.join(NAME)
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a token file with its folder, and nothing that somebody else has put there.
pub(super) fn remove(folder: &Path) {
    for name in [NAME, NEW_NAME] {
        let _ = fs::remove_file(folder.join(name));
    }
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_is_a_line_that_is_replaced_and_removed() {
        let token = |number| Token::new(number).unwrap();
        let file = TokenFile::create(token(41)).unwrap();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "41\n");
        file.replace(token(7_000_000_000)).unwrap();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "7000000000\n");
        assert_eq!(file.folder().read_dir().unwrap().count(), 1);
        let folder = file.folder().to_owned();
        drop(file);
        assert!(!folder.exists());
    }
}
