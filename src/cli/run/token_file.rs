//! What the command sends with its writes: the token alone, both headers, and both as a file for curl.
//!
//! `FENCING_TOKEN_FILE` is the decimal token and a newline, `FENCING_CURL_CONFIG` a file for `curl -K`, in a folder of
//! their own below the temporary folder. Each is put there by a rename, so whoever reads it reads all of it. They are
//! removed when the run ends, and by the guardian when `run` was killed. A number is not secret: the gate asks who leads.
//! A signed token is: `FENCING_SIGNED_TOKEN_FILE` and the file for curl are the user's alone, and are written anew with
//! each renewal, because the token before ends with the lease that it was issued for.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use highgate_elector::backend::SignedToken;
use highgate_elector::{Resource, Token};

const TOKEN: &str = "token";
const SIGNED: &str = "signed";
const CURL_CONFIG: &str = "curl";
/// What a file is called before it is whole.
const NEW: &str = "new";

/// The files, as long as this is not dropped.
pub(super) struct TokenFile {
    folder: PathBuf,
    resource: Resource,
    token: Token,
    /// The one that the command begins with.
    signed: Option<SignedToken>,
}

impl TokenFile {
    pub(super) fn create(resource: &Resource, token: Token, signed: Option<SignedToken>) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("highgate-run-{}", uuid::Uuid::new_v4()));
        // Fails if it exists, so nobody else's folder is ever written to.
        fs::create_dir(&folder)?;
        let file = Self { folder, resource: resource.clone(), token, signed };
        file.write(TOKEN, 0o644, &format!("{token}\n"))?;
        file.write_shown(file.signed.as_ref())?;
        Ok(file)
    }

    /// Writes what is to be shown from now on.
    fn write_shown(&self, signed: Option<&SignedToken>) -> io::Result<()> {
        if let Some(signed) = signed {
            self.write(SIGNED, 0o600, &format!("{}\n", signed.as_str()))?;
        }
        // Curl unquotes it; a canonical name and a signed token have nothing that would need to be escaped.
        let lines = self.headers(signed).map(|header| format!("header = \"{header}\"\n"));
        self.write(CURL_CONFIG, 0o600, &lines.concat())
    }

    /// Puts all of it into the environment of a process.
    pub(super) fn hand_to(&self, command: &mut Command) {
        command
            .env("FENCING_RESOURCE", self.resource.as_str())
            .env("FENCING_TOKEN", self.token.to_string())
            .env("FENCING_TOKEN_FILE", self.folder.join(TOKEN))
            .env("FENCING_HEADERS", self.headers(self.signed.as_ref()).join("\n"))
            .env("FENCING_CURL_CONFIG", self.folder.join(CURL_CONFIG));
        if let Some(signed) = &self.signed {
            command
                .env("FENCING_SIGNED_TOKEN", signed.as_str())
                .env("FENCING_SIGNED_TOKEN_FILE", self.folder.join(SIGNED));
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// As they stand in a request.
    fn headers(&self, signed: Option<&SignedToken>) -> [String; 2] {
        let shown = signed.map_or_else(|| self.token.to_string(), |signed| signed.as_str().to_owned());
        [format!("X-Fencing-Token: {shown}"), format!("X-Fencing-Resource: {}", self.resource)]
    }

    fn write(&self, name: &str, mode: u32, text: &str) -> io::Result<()> {
        let new = self.folder.join(NEW);
        let written = || {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, self.folder.join(name))
        };
        // What a failed write leaves would be in the way of the next one.
        written().inspect_err(|_| drop(fs::remove_file(&new)))
    }
}

/// Has the files show the signed token that the last renewal has brought.
pub(super) struct Renewals<'a> {
    file: &'a TokenFile,
    /// What both files hold for certain.
    written: Option<SignedToken>,
    /// The one of which it was told that it could not be written.
    told: Option<SignedToken>,
}

impl<'a> Renewals<'a> {
    pub(super) fn of(file: &'a TokenFile) -> Self {
        Self { file, written: file.signed.clone(), told: None }
    }

    /// Called again and again: the command may send the token before until that ends, so what cannot be written now is tried
    /// again each time. An error is told for each token once.
    pub(super) fn follow(&mut self, fresh: SignedToken) -> io::Result<()> {
        if self.written.as_ref() == Some(&fresh) {
            return Ok(());
        }
        match self.file.write_shown(Some(&fresh)) {
            Ok(()) => self.written = Some(fresh),
            Err(_) if self.told.as_ref() == Some(&fresh) => {}
            Err(error) => {
                self.told = Some(fresh);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Removes the files with their folder, and nothing that somebody else has put there.
pub(super) fn remove(folder: &Path) {
    for name in [TOKEN, SIGNED, CURL_CONFIG, NEW] {
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
        let file = TokenFile::create(&resource, Token::new(7_000_000_000).unwrap(), None).unwrap();
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

    #[test]
    fn a_signed_token_is_its_users_alone_and_follows_the_renewals() {
        let resource = Resource::parse("jobs").unwrap();
        let signed = |text| SignedToken::parse(text).unwrap();
        let file = TokenFile::create(&resource, Token::new(7).unwrap(), Some(signed("7.one"))).unwrap();
        let read = |name: &str| fs::read_to_string(file.folder().join(name)).unwrap();
        let config =
            |shown| format!("header = \"X-Fencing-Token: {shown}\"\nheader = \"X-Fencing-Resource: jobs\"\n");
        assert_eq!(
            (read(TOKEN), read(SIGNED), read(CURL_CONFIG)),
            ("7\n".into(), "7.one\n".into(), config("7.one"))
        );
        let mut command = Command::new("true");
        file.hand_to(&mut command);
        let env =
            |name: &str| command.get_envs().find(|(key, _)| *key == name).unwrap().1.unwrap().to_owned();
        assert_eq!((env("FENCING_TOKEN"), env("FENCING_SIGNED_TOKEN")), ("7".into(), "7.one".into()));
        assert_eq!(env("FENCING_SIGNED_TOKEN_FILE"), file.folder().join(SIGNED));
        assert_eq!(env("FENCING_HEADERS"), "X-Fencing-Token: 7.one\nX-Fencing-Resource: jobs");
        Renewals::of(&file).follow(signed("7.two")).unwrap();
        assert_eq!(
            (read(TOKEN), read(SIGNED), read(CURL_CONFIG)),
            ("7\n".into(), "7.two\n".into(), config("7.two"))
        );
        let mode = fs::metadata(file.folder().join(SIGNED)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let folder = file.folder().to_owned();
        drop(file);
        assert!(!folder.exists());
    }

    #[test]
    fn a_signed_token_that_could_not_be_written_is_tried_again_and_told_once() {
        let signed = |text| SignedToken::parse(text).unwrap();
        let resource = Resource::parse("jobs").unwrap();
        let file = TokenFile::create(&resource, Token::new(7).unwrap(), Some(signed("7.one"))).unwrap();
        let read = |name: &str| fs::read_to_string(file.folder().join(name)).unwrap();
        let mut renewals = Renewals::of(&file);
        // Nothing can be put in the place of a folder.
        let curl = file.folder().join(CURL_CONFIG);
        fs::remove_file(&curl).unwrap();
        fs::create_dir(&curl).unwrap();
        assert!(renewals.follow(signed("7.two")).is_err());
        assert!(renewals.follow(signed("7.two")).is_ok(), "it was told");
        assert!(renewals.follow(signed("7.three")).is_err(), "of the next it was not");
        fs::remove_dir(&curl).unwrap();
        fs::remove_file(file.folder().join(SIGNED)).unwrap();
        renewals.follow(signed("7.three")).unwrap();
        assert_eq!(read(SIGNED), "7.three\n");
        assert!(read(CURL_CONFIG).contains("X-Fencing-Token: 7.three\""));
        assert_eq!(file.folder().read_dir().unwrap().count(), 3, "and nothing is left of what failed");
    }
}
