use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const TTL: Duration = Duration::from_secs(30);

/// A folder with this many keys, which sign at once, the last of them first.
fn folder(keys: u64) -> (TempDir, Vec<KeyId>) {
    let folder = tempfile::tempdir().unwrap();
    let ids = (0..keys).map(|at| create(folder.path(), at_second(at), Duration::ZERO).unwrap()).collect();
    (folder, ids)
}

fn keys(folder: &Path) -> Keys {
    let (signing, problems) = Signing::open(folder.to_owned());
    assert_eq!(problems, Vec::<String>::new());
    Keys::clone(&signing.keys())
}

fn at_second(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second)
}

fn resource(name: &str) -> Resource {
    Resource::parse(name).unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn issue<'i>(resource: &'i Resource, holder: &'i Holder) -> Issue<'i> {
    Issue { resource, token: token(34), holder, ttl: TTL }
}

fn job() -> Holder {
    Holder::Identity("spiffe://corp/job-a".into())
}

/// What the gate makes of a header value.
fn judge(keys: &Keys, value: &str, name: &str, now: SystemTime) -> Result<u64, String> {
    let (token, signed) = read(value.as_bytes()).map_err(|error| error.to_string())?;
    let signed = signed.map_err(|error| error.to_string())?;
    let verified = keys.verify(&signed, token, &resource(name), now);
    verified.map(|()| token.get()).map_err(|error| error.to_string())
}

#[test]
fn a_token_is_good_for_its_own_resource_until_its_end() {
    let (folder, ids) = folder(1);
    let (keys, now, ledger) = (keys(folder.path()), at_second(1_000), resource("ledger/7"));
    let value = keys.sign(issue(&ledger, &job()), now).unwrap();
    assert!(value.starts_with("34.") && value.len() < 200, "{value}");
    let signed = read(value.as_bytes()).unwrap().1.unwrap();
    assert_eq!((signed.holder(), signed.key), (&job(), ids[0]));
    assert_eq!(judge(&keys, &value, "ledger/7", now), Ok(34));
    assert_eq!(judge(&keys, &value, "ledger/7", now + TTL), Ok(34));
    let over = judge(&keys, &value, "ledger/7", now + TTL + Duration::from_secs(1)).unwrap_err();
    assert!(over.starts_with("it was good until 1970-01-01T00:17:10.000Z"), "{over}");
    let other = judge(&keys, &value, "ledger/8", now).unwrap_err();
    assert_eq!(other, "it was issued for another resource");
}

#[test]
fn every_part_of_what_is_signed_counts() {
    let (folder, _) = folder(1);
    let (keys, now, ledger) = (keys(folder.path()), at_second(1_000), resource("ledger/7"));
    let value = keys.sign(issue(&ledger, &job()), now).unwrap();
    let (_, signed) = read(value.as_bytes()).unwrap();
    let signed = *signed.unwrap();
    let changed = |change: fn(&mut Signed)| {
        let mut other = signed.clone();
        change(&mut other);
        keys.verify(&other, token(34), &ledger, now)
    };
    assert_eq!(changed(|_| ()), Ok(()));
    assert_eq!(keys.verify(&signed, token(35), &ledger, now), Err(Unverified::Signature), "the number");
    assert_eq!(changed(|signed| signed.not_after += 1), Err(Unverified::Signature));
    assert_eq!(changed(|signed| signed.signature[63] ^= 1), Err(Unverified::Signature));
    let named = |signed: &mut Signed| signed.holder = Holder::Named(signed.holder.name().into());
    assert_eq!(changed(named), Err(Unverified::Signature), "what kind of name it is");
    let other = |signed: &mut Signed| signed.holder = Holder::Identity("spiffe://corp/job-b".into());
    assert_eq!(changed(other), Err(Unverified::Signature));
    let strange = |signed: &mut Signed| signed.key = KeyId::parse("0123456789abcdef").unwrap();
    let unknown = Unverified::UnknownKey(KeyId::parse("0123456789abcdef").unwrap());
    assert_eq!(changed(strange), Err(unknown));
    // With the tag of the other name, so that the signature itself is asked.
    let mut moved = signed.clone();
    moved.resource = Tag::of(&resource("ledger/8"));
    assert_eq!(keys.verify(&moved, token(34), &resource("ledger/8"), now), Err(Unverified::Signature));
}

#[test]
fn what_is_signed_has_the_bytes_that_its_page_says_and_cannot_be_cut_in_another_way() {
    let key = KeyId::parse("0123456789abcdef").unwrap();
    let payload = |holder: &str, name: &str| {
        let (holder, resource) = (Holder::Identity(holder.into()), resource(name));
        let not_after = 0x0102_0304;
        Statement { resource: &resource, token: token(258), holder: &holder, not_after, key }.payload()
    };
    let expected = [
        b"highgate signed token v1\0".as_slice(),
        b"\x01\x23\x45\x67\x89\xab\xcd\xef",
        &[0, 0, 0, 0, 0, 0, 1, 2],
        &[0, 0, 0, 0, 1, 2, 3, 4],
        &[1],
        b"\0\x02ab",
        b"\0\x03c/d",
    ];
    assert_eq!(payload("ab", "c/d"), Some(expected.concat()));
    assert_ne!(payload("ab", "c"), payload("a", "bc"));
    assert_eq!(payload(&"a".repeat(MAX_HOLDER + 1), "b"), None);
}

#[test]
fn a_number_is_read_whatever_follows_it() {
    let read = |value: &str| read(value.as_bytes()).map(|(token, signed)| (token.get(), signed.err()));
    assert_eq!(read("7"), Ok((7, Some(NotSigned::Bare))));
    assert_eq!(read("7."), Ok((7, Some(NotSigned::BadForm))));
    assert_eq!(read("7.AAAA"), Ok((7, Some(NotSigned::BadForm))));
    for text in ["7.AAA=", "7.A", "7.AB", "7.A+/A", "7.AAAA.AAAA", "7. AAAA", "7.é"] {
        assert_eq!(read(text), Ok((7, Some(NotSigned::NotBase64))), "{text}");
    }
    let long = format!("7.{}", "A".repeat(MAX_LENGTH));
    assert_eq!(read(&long), Ok((7, Some(NotSigned::TooLong))));
    for text in ["", ".AAAA", "07.AAAA", "+7.AAAA", "7,8", "x"] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn the_longest_holder_fits() {
    let (folder, _) = folder(1);
    let (keys, now, ledger) = (keys(folder.path()), at_second(1), resource("ledger"));
    let holder = Holder::Identity("é".repeat(MAX_HOLDER / 2).into());
    let issue = Issue { token: token(Token::MAX), ..issue(&ledger, &holder) };
    let value = keys.sign(issue, now).unwrap();
    assert_eq!(value.len(), MAX_LENGTH);
    assert_eq!(judge(&keys, &value, "ledger", now), Ok(Token::MAX));
    let holder = Holder::Identity("é".repeat(MAX_HOLDER / 2 + 1).into());
    assert_eq!(keys.sign(Issue { holder: &holder, ..issue }, now), None);
}

#[test]
fn the_newest_key_signs_once_its_time_has_come() {
    let folder = tempfile::tempdir().unwrap();
    let (now, minute) = (at_second(1_000), Duration::from_secs(60));
    let signer = |at| keys(folder.path()).signer(at).map(Key::id);
    assert_eq!(signer(now), None);
    let old = create(folder.path(), now, Duration::ZERO).unwrap();
    let new = create(folder.path(), now, minute).unwrap();
    assert_eq!((signer(now), signer(now + minute)), (Some(old), Some(new)));
    let ledger = resource("ledger");
    let value = keys(folder.path()).sign(issue(&ledger, &job()), now + minute).unwrap();
    assert_eq!(judge(&keys(folder.path()), &value, "ledger", now + minute), Ok(34));
    retire(folder.path(), old, now).unwrap();
    assert_eq!(signer(now), Some(new), "a key that waits is better than none");
}

#[test]
fn a_key_that_was_retired_is_good_for_nothing() {
    let (folder, ids) = folder(1);
    let (now, ledger) = (at_second(1_000), resource("ledger"));
    let value = keys(folder.path()).sign(issue(&ledger, &job()), now).unwrap();
    retire(folder.path(), ids[0], now).unwrap();
    let keys = keys(folder.path());
    assert_eq!(judge(&keys, &value, "ledger", now), Err(Unverified::Retired(ids[0]).to_string()));
    assert!(!keys.can_verify() && keys.sign(issue(&ledger, &job()), now).is_none());
    assert!(!folder.path().join(format!("{}.key", ids[0])).exists());
    retire(folder.path(), ids[0], now).unwrap();
    let stranger = KeyId::parse("0123456789abcdef").unwrap();
    assert!(matches!(retire(folder.path(), stranger, now), Err(FolderError::NoSuchKey { .. })));
}

#[test]
fn the_public_half_verifies_and_does_not_sign() {
    let (folder, ids) = folder(1);
    let (now, ledger, elsewhere) = (at_second(1_000), resource("ledger"), tempfile::tempdir().unwrap());
    let value = keys(folder.path()).sign(issue(&ledger, &job()), now).unwrap();
    let name = format!("{}.pub", ids[0]);
    fs::copy(folder.path().join(&name), elsewhere.path().join(&name)).unwrap();
    let keys = keys(elsewhere.path());
    assert_eq!(judge(&keys, &value, "ledger", now), Ok(34));
    assert!(keys.sign(issue(&ledger, &job()), now).is_none());
}

#[test]
fn a_private_file_is_its_owners_alone_and_never_told() {
    let (folder, ids) = folder(1);
    let path = folder.path().join(format!("{}.key", ids[0]));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    let private = text.lines().find_map(|line| line.strip_prefix("private = ")).unwrap().trim_matches('"');
    let (signing, _) = Signing::open(folder.path().to_owned());
    let key = keys(folder.path());
    assert!(!format!("{signing:?} {key:?} {:?}", key.get(ids[0])).contains(private));
    assert_eq!(signing.exposed(), Vec::<std::path::PathBuf>::new());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(signing.exposed(), std::slice::from_ref(&path));
    for (from, to) in
        [("private = \"", "private = \"x"), ("private", "privy private"), ("\"\nprivate", "\nprivate")]
    {
        fs::write(&path, text.replace(from, to)).unwrap();
        let (_, problems) = Signing::open(folder.path().to_owned());
        assert!(problems.iter().all(|problem| !problem.contains(&private[1..])), "{problems:?}");
    }
}

#[test]
fn files_that_are_no_keys_are_named() {
    let (folder, ids) = folder(2);
    let path = |at: usize| folder.path().join(format!("{}.key", ids[at]));
    let good = fs::read_to_string(path(0)).unwrap();
    let line = |name: &str| good.lines().find(|line| line.starts_with(name)).unwrap();
    let other = fs::read_to_string(path(1)).unwrap();
    let others = other.lines().find(|line| line.starts_with("private")).unwrap();
    for (text, why) in [
        (String::new(), "it has no usable `public`"),
        ("nonsense".to_owned(), "a line of it is not like"),
        (format!("{good}{}\n", line("public")), "or is there twice"),
        (good.replace(line("created"), "created = \"yesterday\""), "it has no usable `created`"),
        (good.replace(line("private"), "private = \"AAAA\""), "it has no usable `private`"),
        (good.replace(line("private"), others), "its private half is not the one"),
        (other.clone(), "its `id` is not that of"),
    ] {
        fs::write(path(0), text).unwrap();
        let (_, problems) = Signing::open(folder.path().to_owned());
        assert!(problems.len() == 1 && problems[0].contains(why), "{why}: {problems:?}");
        assert!(problems[0].contains(path(0).to_str().unwrap()), "{problems:?}");
    }
    fs::write(folder.path().join("README.key"), "not a key").unwrap();
    fs::write(path(0), good).unwrap();
    assert_eq!(keys(folder.path()).iter().count(), 2);
}

#[test]
fn a_bad_file_keeps_what_verifies_and_holds_up_no_other() {
    let (folder, ids) = folder(2);
    let path = folder.path().join(format!("{}.key", ids[0]));
    let (signing, _) = Signing::open(folder.path().to_owned());
    assert_eq!(signing.refresh(), []);
    fs::write(&path, "half").unwrap();
    retire(folder.path(), ids[1], at_second(9)).unwrap();
    assert_eq!(signing.refresh(), [News::Changed], "that the other was retired is known at once");
    let keys = signing.keys();
    let bad = keys.get(ids[0]).unwrap();
    assert!(bad.retired().is_none() && !bad.can_sign(), "its private half is nowhere");
    assert!(keys.get(ids[1]).unwrap().retired().is_some());
    let why = format!(
        "{} is no key: a line of it is not like `name = \"value\"`, or is there twice",
        path.display()
    );
    assert_eq!(signing.refresh(), [News::Refused(vec![why])], "it is still so");
    assert_eq!(signing.refresh(), [], "told once");
    fs::remove_file(&path).unwrap();
    assert_eq!(signing.refresh(), [], "its public half is left, as before");
}

#[test]
fn a_key_does_not_sign_on_when_its_private_half_is_gone_and_its_public_one_cannot_be_read() {
    let (folder, ids) = folder(1);
    let path = |kind: &str| folder.path().join(format!("{}.{kind}", ids[0]));
    let (signing, _) = Signing::open(folder.path().to_owned());
    let can_sign = || signing.keys().get(ids[0]).map(Key::can_sign);
    fs::remove_file(path("pub")).unwrap();
    fs::create_dir(path("pub")).unwrap();
    assert_eq!(signing.refresh(), [], "the private half is there");
    assert_eq!(can_sign(), Some(true));
    fs::remove_file(path("key")).unwrap();
    assert!(signing.refresh().contains(&News::Changed));
    assert!(can_sign() == Some(false) && signing.keys().can_verify());
}

#[test]
fn a_pipe_is_no_key_and_holds_up_nothing() {
    let (folder, ids) = folder(2);
    let (signing, _) = Signing::open(folder.path().to_owned());
    let pipe = folder.path().join(format!("{}.key", ids[0]));
    fs::remove_file(&pipe).unwrap();
    retire(folder.path(), ids[1], at_second(9)).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (looked, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || looked.send((signing.refresh(), signing)));
    let (news, signing) = done.recv_timeout(Duration::from_secs(60)).expect("a look that ends");
    assert_eq!(news, [News::Changed]);
    assert!(signing.keys().get(ids[1]).unwrap().retired().is_some());
}

#[test]
fn a_retired_key_is_retired_whatever_its_private_file_says() {
    let (folder, ids) = folder(1);
    let path = folder.path().join(format!("{}.key", ids[0]));
    let private = fs::read_to_string(&path).unwrap();
    retire(folder.path(), ids[0], at_second(9)).unwrap();
    for text in [private.as_str(), "nonsense"] {
        fs::write(&path, text).unwrap();
        let keys = keys(folder.path());
        assert!(keys.get(ids[0]).unwrap().retired().is_some(), "{text}");
        assert!(keys.signer(at_second(9)).is_none(), "{text}");
    }
}

#[test]
fn with_a_folder_that_goes_away_nothing_signs_and_everything_verifies() {
    let (folder, _) = folder(1);
    let moved = folder.path().with_extension("moved");
    let (signing, _) = Signing::open(folder.path().to_owned());
    let signs = || signing.keys().signer(at_second(9)).is_some();
    fs::rename(folder.path(), &moved).unwrap();
    assert_eq!(signing.refresh(), [News::Changed]);
    assert!(signing.keys().can_verify() && !signs());
    assert!(matches!(signing.refresh().as_slice(), [News::Refused(_)]));
    fs::rename(&moved, folder.path()).unwrap();
    assert_eq!((signing.refresh(), signing.refresh()), (vec![News::Changed], vec![]));
    assert!(signs());
    fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(signing.refresh(), [News::Changed]);
    assert!(matches!(signing.refresh().as_slice(), [News::Refused(_)]), "told again");
}

proptest! {
    #[test]
    fn a_token_has_one_encoding(
        number in 1..=Token::MAX,
        not_after in any::<u64>(),
        holder in "\\PC{0,60}",
        proved in any::<bool>(),
        key in any::<[u8; 8]>(),
        byte in any::<u8>(),
    ) {
        let holder = if proved { Holder::Identity(holder.into()) } else { Holder::Named(holder.into()) };
        let resource = Tag::of(&resource("ledger"));
        let signed = Signed { key: KeyId::new(key), not_after, holder, resource, signature: [byte; 64] };
        let value = signed.encode(token(number));
        prop_assert!(value.len() <= MAX_LENGTH);
        let (read_token, read_signed) = read(value.as_bytes()).unwrap();
        prop_assert_eq!((read_token.get(), *read_signed.unwrap()), (number, signed));
    }

    #[test]
    fn whatever_reads_is_written_the_same(text in "[1-9][0-9]{0,3}\\.AQ[A-Za-z0-9_-]{118,140}") {
        if let Ok((token, Ok(signed))) = read(text.as_bytes()) {
            prop_assert_eq!(signed.encode(token), text);
        }
    }

    #[test]
    fn no_changed_byte_goes_unnoticed(at in 3usize..170, with in "[A-Za-z0-9_-]") {
        let (folder, _) = folder(1);
        let (keys, now, ledger) = (keys(folder.path()), at_second(1_000), resource("ledger"));
        let value = keys.sign(issue(&ledger, &job()), now).unwrap();
        let at = at.min(value.len() - 1);
        let mut changed = value.clone();
        changed.replace_range(at..=at, &with);
        prop_assert_eq!(judge(&keys, &changed, "ledger", now).is_ok(), changed == value);
    }
}
