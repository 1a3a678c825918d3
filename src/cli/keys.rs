//! `highgate keys new|list|retire`: the keys of signed tokens, in a folder that gateways read.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use highgate::signing::{Key, KeyId, Keys, Signing, create, default_folder, retire};
use highgate_elector::timestamp;
use serde_json::{Value, json};

use super::client::{EXIT_FAILED, print};
use super::run::duration;
use super::table::Side::Left;
use super::table::table;

/// How long a key beside others waits before it signs: every gateway has to have its public half by then.
const HEAD_START: Duration = Duration::from_secs(5 * 60);

/// Keys of signed tokens
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Make a key, and print its id
    New {
        /// How long it waits before it signs, so that all gateways know it by then [default: 5m beside another key
        /// that is not retired, else 0s]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        sign_after: Option<Duration>,
        #[command(flatten)]
        place: Place,
    },
    /// Show the keys, and which one signs
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Have no token be good by a key any more: its private half is removed
    Retire {
        /// What `keys new` printed
        id: KeyId,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Clone, Debug, clap::Args)]
struct Place {
    /// Folder of the keys [default: keys in the data folder]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// The gateway's data folder
    #[arg(long, env = "HIGHGATE_DATA_DIR", value_name = "FOLDER", default_value = "./highgate-data")]
    data_dir: PathBuf,
}

pub(super) fn run(args: &KeysArgs) -> anyhow::Result<ExitCode> {
    let now = SystemTime::now();
    match &args.command {
        Command::New { sign_after, place } => {
            let folder = place.folder();
            let (signing, problems) = Signing::open(folder.clone());
            // A key that only verifies here may sign elsewhere, and so may one that cannot be read.
            let is_first = !signing.keys().can_verify() && problems.is_empty();
            let head_start = sign_after.unwrap_or(if is_first { Duration::ZERO } else { HEAD_START });
            let id = create(&folder, now, head_start)
                .with_context(|| format!("no key was made in {}", folder.display()))?;
            Ok(print(&format!("{id}\n"))?)
        }
        Command::List { json, place } => list(&Signing::open(place.folder()), *json, now),
        Command::Retire { id, place } => {
            let folder = place.folder();
            let warnings = retire(&folder, *id, now).with_context(|| format!("{id} was not retired"))?;
            warnings.iter().for_each(|warning| eprintln!("highgate: {warning}"));
            if Signing::open(folder).0.keys().signer(now).is_none() {
                eprintln!("highgate: there is no key left that signs: `highgate keys new` makes one");
            }
            Ok(print(&format!("{id} is retired\n"))?)
        }
    }
}

impl Place {
    fn folder(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| default_folder(&self.data_dir))
    }
}

/// What can be used, and then what cannot.
fn list(
    (signing, problems): &(Signing, Vec<String>),
    json: bool,
    now: SystemTime,
) -> anyhow::Result<ExitCode> {
    let keys = signing.keys();
    let text = if json { format!("{:#}\n", as_json(&keys, now)) } else { as_table(&keys, now) };
    print(&text)?;
    problems.iter().for_each(|problem| eprintln!("highgate: {problem}"));
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}

fn as_table(keys: &Keys, now: SystemTime) -> String {
    let row = |key: &Key| [key.id().to_string(), state(keys, key, now), timestamp::format(key.created())];
    let rows: Vec<_> = oldest_first(keys).into_iter().map(row).collect();
    if rows.is_empty() {
        return "there are no keys\n".to_owned();
    }
    table([("ID", Left), ("STATE", Left), ("CREATED", Left)], rows)
}

fn as_json(keys: &Keys, now: SystemTime) -> Value {
    let signer = keys.signer(now).map(Key::id);
    let shown = |key: &Key| {
        json!({
            "id": key.id().to_string(),
            "created": timestamp::format(key.created()),
            "signs_from": timestamp::format(key.signs_from()),
            "retired": key.retired().map(timestamp::format),
            "can_sign": key.can_sign(),
            "signs": signer == Some(key.id()),
        })
    };
    json!({ "keys": oldest_first(keys).into_iter().map(shown).collect::<Vec<_>>() })
}

fn oldest_first(keys: &Keys) -> Vec<&Key> {
    let mut keys: Vec<_> = keys.iter().collect();
    keys.sort_by_key(|key| (key.created(), key.id()));
    keys
}

/// What a key is for now.
fn state(keys: &Keys, key: &Key, now: SystemTime) -> String {
    let signs = keys.signer(now).is_some_and(|signer| signer.id() == key.id());
    match key.retired() {
        Some(at) => format!("retired at {}", timestamp::format(at)),
        None if signs => "signs".to_owned(),
        None if !key.can_sign() => "verifies (public half only)".to_owned(),
        None if key.signs_from() > now => {
            format!("verifies; signs from {}", timestamp::format(key.signs_from()))
        }
        None => "verifies".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_what_each_key_is_for() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let list = |at| as_table(&Signing::open(folder.path().to_owned()).0.keys(), at);
        assert_eq!(list(now), "there are no keys\n");
        let second = Duration::from_secs(1);
        let make = |at: u32, wait| create(folder.path(), now - second * (9 - at), wait).unwrap();
        let (gone, old, new) = (make(0, second), make(1, second), make(2, second * 3600));
        let public = make(3, second);
        std::fs::remove_file(folder.path().join(format!("{public}.key"))).unwrap();
        retire(folder.path(), gone, now).unwrap();
        let states = |at| {
            let told = list(at);
            let state = |id: KeyId| {
                let line = told.lines().find(|line| line.starts_with(&id.to_string())).unwrap();
                line[18..].split("  ").next().unwrap().to_owned()
            };
            [gone, old, new, public].map(state)
        };
        let [a, b, c, d] = states(now);
        assert!(a.starts_with("retired at ") && b == "signs", "{a} {b}");
        assert!(c.starts_with("verifies; signs from ") && d == "verifies (public half only)", "{c} {d}");
        let [_, b, c, _] = states(now + second * 3600);
        assert_eq!((b.as_str(), c.as_str()), ("verifies", "signs"));
    }
}
