//! `--dev-tls`: a throw-away authority and a certificate of it for this machine, in the data folder.
//!
//! The configuration calls [`ensure`] at the start and at every reload; what is there is kept while it is good for a while.
//! What must stay true: the authority's private key is never written. It signs one certificate and is gone, so whoever
//! trusts `ca.pem` trusts this gateway and nobody else, and no file of these can be used to pretend to be another.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use highgate_elector::timestamp;
use highgate_tls::{Contents, KeyPair};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose,
};

/// Below the data folder.
const FOLDER: &str = "dev-tls";
/// Whom the certificate is for.
pub const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const GOOD_FOR: Duration = Duration::from_secs(365 * DAY.as_secs());
/// Left to go on with, or it is made anew: nobody is warned of its end while this is more than two weeks.
const AT_LEAST: Duration = Duration::from_secs(30 * DAY.as_secs());
const PRIVATE: u32 = 0o600;

/// The files of a throw-away certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevFiles {
    /// What clients have to trust.
    pub ca: PathBuf,
    /// What the ports show.
    pub server: KeyPair,
    pub expires: SystemTime,
}

/// There is no throw-away certificate.
#[derive(Debug, thiserror::Error)]
pub enum DevTlsError {
    #[error("{} cannot be written", file.display())]
    Unwritable { file: PathBuf, source: io::Error },
    #[error("no certificate could be made")]
    NotMade(#[from] rcgen::Error),
}

/// The files in this data folder, made if they are not there, not good, or near their end.
pub fn ensure(data: &Path, now: SystemTime) -> Result<DevFiles, DevTlsError> {
    let folder = data.join(FOLDER);
    let unwritable = |source| DevTlsError::Unwritable { file: folder.clone(), source };
    fs::create_dir_all(&folder).map_err(unwritable)?;
    // People copy its name to other terminals, which are in other folders.
    let folder = folder.canonicalize().map_err(unwritable)?;
    let ca = folder.join("ca.pem");
    let server = KeyPair { cert: folder.join("server.pem"), key: folder.join("server-key.pem") };
    if end(&ca, &server).is_none_or(|end| end < now + AT_LEAST) {
        make(&ca, &server, now)?;
    }
    let expires = end(&ca, &server).unwrap_or(now);
    write_with(&server.key, |key| fs::set_permissions(key, Permissions::from_mode(PRIVATE)))?;
    Ok(DevFiles { ca, server, expires })
}

/// Until when the certificate is good. None if the files are not there or do not belong together.
fn end(ca: &Path, server: &KeyPair) -> Option<SystemTime> {
    let contents = Contents::read([ca, &server.cert, &server.key]).ok()?;
    let certified = contents.certified(server).ok()?;
    // It is written with the one that signed it, which is how a half-made pair is known.
    let signed_by = certified.key.cert.get(1)?;
    let authority = contents.certificates(ca).ok()?;
    (authority.first() == Some(signed_by)).then_some(certified.expires)
}

fn make(ca: &Path, server: &KeyPair, now: SystemTime) -> Result<(), DevTlsError> {
    let mut params = CertificateParams::new(Vec::new())?;
    span(&mut params, now);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // No two of them have one name, or who keeps an old one could not tell them apart.
    let name = format!("highgate --dev-tls of {}", timestamp::format(now));
    params.distinguished_name.push(DnType::CommonName, name);
    let authority = CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate()?)?;

    let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
    span(&mut params, now);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.distinguished_name.push(DnType::CommonName, "highgate --dev-tls");
    let key = rcgen::KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;

    write(&server.key, &key.serialize_pem())?;
    write(&server.cert, &format!("{}{}", certificate.pem(), authority.pem()))?;
    write(ca, &authority.pem())
}

/// From a day ago, for clocks that are late.
fn span(params: &mut CertificateParams, now: SystemTime) {
    let since =
        |at: SystemTime| Duration::from_secs(at.duration_since(UNIX_EPOCH).map_or(0, |at| at.as_secs()));
    let beginning = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = beginning + since(now - DAY);
    params.not_after = beginning + since(now + GOOD_FOR);
}

/// In one step, and never readable for others on the way.
fn write(file: &Path, text: &str) -> Result<(), DevTlsError> {
    let fresh = file.with_extension("new");
    write_with(file, |file| {
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut opened = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&fresh)?;
        opened.write_all(text.as_bytes())?;
        fs::rename(&fresh, file)
    })
}

fn write_with(file: &Path, work: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), DevTlsError> {
    work(file).map_err(|source| DevTlsError::Unwritable { file: file.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &Path) -> String {
        fs::read_to_string(file).unwrap()
    }

    #[test]
    fn it_is_kept_while_it_is_good_and_made_anew_near_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let first = ensure(folder.path(), now).unwrap();
        let before = (read(&first.ca), read(&first.server.cert), read(&first.server.key));
        let again = |now| {
            let files = ensure(folder.path(), now).unwrap();
            (read(&files.ca), read(&files.server.cert), read(&files.server.key))
        };
        assert_eq!(again(now), before);
        assert_eq!(again(now + 334 * DAY), before);
        let renewed = again(now + 336 * DAY);
        assert!(renewed.0 != before.0 && renewed.1 != before.1 && renewed.2 != before.2);
        assert!(ensure(folder.path(), now).unwrap().expires > now + 600 * DAY);
    }

    #[test]
    fn files_that_do_not_belong_together_are_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let files = ensure(folder.path(), now).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let other = ensure(elsewhere.path(), now).unwrap();
        for (file, from) in [
            (&files.ca, &other.ca),
            (&files.server.cert, &other.server.cert),
            (&files.server.key, &other.server.key),
        ] {
            fs::copy(from, file).unwrap();
            assert_eq!(end(&files.ca, &files.server), None, "{}", file.display());
            ensure(folder.path(), now).unwrap();
            assert!(end(&files.ca, &files.server).is_some());
            fs::remove_file(file).unwrap();
            ensure(folder.path(), now).unwrap();
            assert!(end(&files.ca, &files.server).is_some());
        }
    }

    #[test]
    fn the_only_private_key_is_the_servers_and_nobody_else_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let files = ensure(folder.path(), SystemTime::now()).unwrap();
        let mode = || fs::metadata(&files.server.key).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&files.server.key, Permissions::from_mode(0o644)).unwrap();
        ensure(folder.path(), SystemTime::now()).unwrap();
        assert_eq!(mode(), 0o600, "of one that is kept as well");
        let all = fs::read_dir(folder.path().join(FOLDER)).unwrap().map(|entry| entry.unwrap().path());
        let keys: Vec<_> = all.filter(|file| read(file).contains("PRIVATE KEY")).collect();
        assert!(keys.len() == 1 && keys[0] == files.server.key, "the authority's is gone: {keys:?}");
    }
}
