use super::*;
use crate::config::Config;
use crate::config::tests::{ROUTE, parse, refusal};

fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secrets");
    std::fs::write(&file, text).unwrap();
    (folder, file)
}

fn config(file: &Path) -> String {
    format!("[secrets]\nfile = '{}'\n{ROUTE}", file.display())
}

fn loaded(text: &str) -> Config {
    let (_folder, file) = written(text);
    parse(&config(&file)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_secret_says_who_shows_it() {
    let secrets = loaded("# jobs\nci  s3cret\n\njob-a\tother \nci next\n").secrets;
    let shown = |secret: &str| secrets.identify(secret.as_bytes()).map(Identity::as_str);
    assert_eq!(
        (shown("s3cret"), shown("next")),
        (Some("bearer:ci"), Some("bearer:ci")),
        "one may replace the other"
    );
    assert_eq!(shown("other"), Some("bearer:job-a"));
    for wrong in ["", "s3cre", "s3cret ", "s3cretx", "S3CRET", "ci", "ci s3cret", "# jobs"] {
        assert_eq!(shown(wrong), None, "{wrong:?}");
    }
    assert_eq!(Secrets::default().identify(b"s3cret"), None);
}

#[test]
fn a_line_that_cannot_be_read_is_named_and_not_shown() {
    for (text, expected) in [
        ("ci s3cret\nalone\n", ":2: a line is a name and a secret"),
        ("ci s3cret x\n", ":1: the secret of ci has characters"),
        ("c/i s3cret\n", ":1: a name is letters"),
        ("admin s3cret\n", ":1: the name admin is that of the secret in admin.auth"),
        ("ci s3cret\n\ncd s3cret\n", ":3: the secret is that of line 1: whose is it?"),
    ] {
        let (_folder, file) = written(text);
        let message = refusal(&config(&file));
        let expected = format!("f.toml:2:8: secrets.file: {}{expected}", file.display());
        assert!(message.starts_with(&expected), "{message}");
        assert!(!message.contains("s3cret") && !message.contains("alone"), "{message}");
    }
    let missing = refusal(&config(Path::new("/nonexistent/secrets")));
    assert!(missing.contains("secrets.file: /nonexistent/secrets cannot be read"), "{missing}");
    assert!(refusal(&format!("[secrets]\n{ROUTE}")).contains("secrets.file: is missing"));
}

#[test]
fn the_secret_of_a_port_is_nobody_elses() {
    let (_folder, file) = written("ci s3cret\n");
    let (_other, port) = written("s3cret\n");
    let message =
        refusal(&format!("[admin]\nauth = {{ bearer_file = '{}' }}\n{}", port.display(), config(&file)));
    assert!(message.contains(":1: it is the secret of bearer:admin, which is another identity"), "{message}");
}

#[test]
fn no_secret_is_ever_printed() {
    let config = loaded("ci s3cret\n");
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn a_file_that_others_can_read_is_exposed() {
    for (mode, exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
        let (_folder, file) = written("ci s3cret\n");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(parse(&config(&file)).unwrap().secrets.are_exposed(), exposed, "{mode:o}");
    }
}

#[test]
fn digests_are_compared_as_a_whole() {
    let digest = Digest::of(b"s3cret");
    assert!(digest == Digest::of(b"s3cret"));
    for at in 0..32 {
        let mut other = digest.clone();
        other.0[at] ^= 1;
        assert!(digest != other, "byte {at}");
    }
}
