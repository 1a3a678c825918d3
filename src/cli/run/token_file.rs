//! What the command sends with its writes: the token alone, both headers, and both as a file for curl.
//!
//! `FENCING_TOKEN_FILE` is the decimal token and a newline, `FENCING_CURL_CONFIG` a file for `curl -K`, in a folder of
//! their own below the temporary folder. Each is put there by a rename, so whoever reads it reads all of it. They are
//! removed when the run ends, and by the guardian when `run` was killed. Not secret: a token is a number, and the gate
//! asks who leads.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use highgate_elector::{Resource, Token};

const TOKEN: &str = "token";
const CURL_CONFIG: &str = "curl";
/// What a file is called before it is whole.
const NEW: &str = "new";

/// The files, as long as this is not dropped.
pub(super) struct TokenFile {
    folder: PathBuf,
    resource: Resource,
    token: Token,
}

impl TokenFile {
    pub(super) fn create(resource: &Resource, token: Token) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("highgate-run-{}", uuid::Uuid::new_v4()));
        // Fails if it exists, so nobody else's folder is ever written to.
        fs::create_dir(&folder)?;
        let file = Self { folder, resource: resource.clone(), token };
        file.write(TOKEN, 0o644, &format!("{token}\n"))?;
        // Curl unquotes it; a canonical name has nothing that would need to be escaped.
        let config: String = file.headers().iter().map(|header| format!("header = \"{header}\"\n")).collect();
        file.write(CURL_CONFIG, 0o600, &config)?;
        Ok(file)
    }

    /// Puts all of it into the environment of a process.
    pub(super) fn hand_to(&self, command: &mut Command) {
        command
            .env("FENCING_RESOURCE", self.resource.as_str())
            .env("FENCING_TOKEN", self.token.to_string())
            .env("FENCING_TOKEN_FILE", self.folder.join(TOKEN))
            .env("FENCING_HEADERS", self.headers().join("\n"))
            .env("FENCING_CURL_CONFIG", self.folder.join(CURL_CONFIG));
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// As they stand in a request.
    fn headers(&self) -> [String; 2] {
        [format!("X-Fencing-Token: {}", self.token), format!("X-Fencing-Resource: {}", self.resource)]
    }

    fn write(&self, name: &str, mode: u32, text: &str) -> io::Result<()> {
        let new = self.folder.join(NEW);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(new, self.folder.join(name))
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Removes the files with their folder, and nothing that somebody else has put there.
pub(super) fn remove(folder: &Path) {
    for name in [TOKEN, CURL_CONFIG, NEW] {
        let _ = fs::remove_file(folder.join(name));
    }
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_files_are_whole_and_removed() {
        let resource = Resource::parse("Jobs/a b").unwrap();
        let file = TokenFile::create(&resource, Token::new(7_000_000_000).unwrap()).unwrap();
        let read = |name: &str| fs::read_to_string(file.folder().join(name)).unwrap();
        assert_eq!(read(TOKEN), "7000000000\n");
        let config =
            "header = \"X-Fencing-Token: 7000000000\"\nheader = \"X-Fencing-Resource: jobs/a%20b\"\n";
        assert_eq!(read(CURL_CONFIG), config);
        let mode = fs::metadata(file.folder().join(CURL_CONFIG)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(file.folder().read_dir().unwrap().count(), 2);
        let folder = file.folder().to_owned();
        drop(file);
        assert!(!folder.exists());
    }
}
