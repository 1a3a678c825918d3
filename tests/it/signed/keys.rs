//! Keys that are made, distributed and retired under way, and the program that does it.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use super::*;
use crate::support::{Authority, config_for, highgate, secure};

/// The id of the key that signed this.
fn signer(shown: &str) -> String {
    format!("{:?}", parsed(shown)).split("KeyId(").nth(1).unwrap()[..16].to_owned()
}

#[test]
fn keys_rotate_without_a_failed_request() {
    let (origin, (keys, old)) = (origin().start(), key());
    let gate = gateway_to(&origin).signed_by(keys.path()).start();
    let won = campaign(&gate, "a", None);
    let first = won.signed.clone();
    // Writes and renews, as a job does, until something has happened.
    let works_until = |what: &str, done: &mut dyn FnMut(&str) -> bool| {
        let mut shown = renew(&gate, &won);
        eventually(what, || {
            gate.ask(&write("a", &shown)).is_ok();
            shown = renew(&gate, &won);
            done(&shown)
        });
    };
    works_until("the old key signs", &mut |shown| signer(shown) == old.to_string());
    let new = create(keys.path(), SystemTime::now(), Duration::ZERO).unwrap();
    works_until("the new key signs", &mut |shown| signer(shown) == new.to_string());
    gate.ask(&write("a", &first)).is_ok();
    retire(keys.path(), old, SystemTime::now()).unwrap();
    works_until("the old key is retired", &mut |_| {
        let answer = gate.ask(&write("a", &first));
        answer.status == 403 && answer.text().contains("which was retired")
    });
}

fn keys(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highgate"));
    command.env_remove("HIGHGATE_DATA_DIR").arg("keys").args(words).arg("--dir").arg(folder).output().unwrap()
}

/// The same under this umask.
fn keys_under(umask: &str, folder: &Path, words: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_highgate"), "keys"]);
    shell.args(words).arg("--dir").arg(folder).output().unwrap()
}

fn mode(file: &Path) -> u32 {
    std::fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn gateways_of_every_user_can_read_that_a_key_was_retired_whatever_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let id = said(&keys_under("077", folder.path(), &["new"])).trim().to_owned();
    let [public, private] = ["pub", "key"].map(|kind| folder.path().join(format!("{id}.{kind}")));
    assert_eq!((mode(&public), mode(&private)), (0o644, 0o600));
    said(&keys_under("077", folder.path(), &["retire", &id]));
    assert_eq!(mode(&public), 0o644);
    let id = said(&keys_under("000", folder.path(), &["new"])).trim().to_owned();
    assert_eq!(mode(&folder.path().join(format!("{id}.key"))), 0o600);
}

#[test]
fn only_a_key_that_is_alone_signs_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, file) = (folder.path().join("keys"), |id: &str| folder.path().join("keys").join(id));
    let waits = || {
        let id = said(&keys(&dir, &["new"])).trim().to_owned();
        let list: Value = serde_json::from_slice(&keys(&dir, &["list", "--json"]).stdout).unwrap();
        let made =
            list["keys"].as_array().unwrap().iter().find(|key| key["id"] == id.as_str()).unwrap().clone();
        (id, made["created"] != made["signs_from"])
    };
    let (first, waited) = waits();
    assert!(!waited, "it is the first");
    std::fs::remove_file(file(&format!("{first}.key"))).unwrap();
    let (second, waited) = waits();
    assert!(waited, "the private half of the first may be elsewhere");
    for id in [&first, &second] {
        said(&keys(&dir, &["retire", id]));
    }
    let (third, waited) = waits();
    assert!(!waited, "all others are retired");
    said(&keys(&dir, &["retire", &third]));
    std::fs::write(file("0123456789abcdef.pub"), "nothing").unwrap();
    assert!(waits().1, "nobody knows what that one is");
}

#[test]
fn a_certificate_that_cannot_be_read_to_its_end_holds_up_no_retirement() {
    let (origin, (keys, id)) = (origin().start(), key());
    let (authority, files) = (Authority::new(), tempfile::tempdir().unwrap());
    authority.server(&["localhost"]).write(files.path(), "server");
    let pipe = files.path().join("server.pem");
    let mut tls = toml::Table::new();
    tls.insert("cert".into(), pipe.display().to_string().into());
    tls.insert("key".into(), files.path().join("server-key.pem").display().to_string().into());
    let gate = gateway_to(&origin).signed_by(keys.path()).listen("tls", tls).start();
    std::fs::remove_file(&pipe).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Opens once the gateway is at it, and keeps it there; the next look finds nothing.
    let held = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    std::fs::remove_file(&pipe).unwrap();
    let shown = sign(keys.path(), "default", 7, &job(), SystemTime::now());
    let ask = || secure(gate.address, &authority).connect().unwrap().ask(&write("default", &shown)).unwrap();
    assert_eq!(ask().status, 200);
    retire(keys.path(), id, SystemTime::now()).unwrap();
    eventually("the key is retired", || ask().status == 403);
    drop(held);
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_program_makes_lists_and_retires_keys_that_a_gateway_takes_in_place() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), origin().start());
    let dir = folder.path().join("keys");
    let first = said(&keys(&dir, &["new"])).trim().to_owned();
    let config = config_for(origin.address, "").replace("\"trusted\"", "\"signed\"");
    let file = folder.path().join("highgate.toml");
    std::fs::write(&file, format!("[signing]\ndir = {dir:?}\n{config}")).unwrap();
    let gate = highgate().config(&file).data(&folder.path().join("data")).start();
    let id = first.parse::<KeyId>().unwrap();
    let shown = sign(&dir, "default", 7, &job(), SystemTime::now());
    assert_eq!(gate.ask(&write("default", &shown)).status, 200);

    let second = said(&keys(&dir, &["new"])).trim().to_owned();
    let list = said(&keys(&dir, &["list"]));
    let state = |id: &str| list.lines().find(|line| line.starts_with(id)).unwrap()[18..].to_owned();
    assert!(state(&first).starts_with("signs "), "{list}");
    assert!(state(&second).starts_with("verifies; signs from 20"), "{list}");
    let private = dir.join(format!("{id}.key"));
    let secret = std::fs::read_to_string(&private).unwrap();
    std::fs::write(&private, secret.replace("public", "pubic")).unwrap();
    eventually("a bad file is told of", || gate.errors().contains("signing-keys-refused"));
    assert_eq!(gate.ask(&write("default", &shown)).status, 200, "and what it signed stays good");
    assert_eq!(keys(&dir, &["list"]).status.code(), Some(1));

    let retired = keys(&dir, &["retire", &first]);
    said(&retired);
    let told = String::from_utf8(retired.stderr).unwrap();
    assert!(told.contains("is no key") && !private.exists(), "{told}");
    eventually("the key is retired", || gate.ask(&write("default", &shown)).status == 403);
    let shown = sign(&dir, "default", 8, &job(), SystemTime::now());
    assert_eq!(gate.ask(&write("default", &shown)).status, 200, "the one that waited signs");
    assert_eq!(keys(&dir, &["retire", "0123456789abcdef"]).status.code(), Some(1));
    assert_eq!(keys(&dir, &["retire", "x"]).status.code(), Some(2));
    let half = secret.lines().find_map(|line| line.strip_prefix("private = ")).unwrap().trim_matches('"');
    let told = gate.said() + &gate.errors() + &list;
    assert!(!told.contains(half) && !told.contains(&shown), "{told}");
}

#[test]
fn signed_tokens_without_a_key_are_an_error_that_says_what_to_do() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), origin().start());
    let config = config_for(origin.address, "").replace("\"trusted\"", "\"signed\"");
    let file = folder.path().join("highgate.toml");
    std::fs::write(&file, format!("[store]\npath = {:?}\n{config}", folder.path().join("data"))).unwrap();
    let check = || Command::new(env!("CARGO_BIN_EXE_highgate")).arg("check").arg(&file).output().unwrap();
    let output = check();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    let keys = folder.path().join("data/keys");
    assert!(told.contains("highgate.toml:10:10: routes[0].tokens: signed tokens need a key"), "{told}");
    assert!(told.contains(&format!("`highgate keys new --dir {}`", keys.display())), "{told}");
    said(&super::keys::keys(&keys, &["new"]));
    assert!(check().status.success());
    std::fs::write(keys.join("0123456789abcdef.pub"), "nothing").unwrap();
    let told = String::from_utf8(check().stderr).unwrap();
    assert!(told.contains("signing.dir: ") && told.contains("0123456789abcdef.pub is no key"), "{told}");
}
