//! The command line: which settings are explored, and which rules are broken.

use std::process::ExitCode;
use std::time::Duration;

use crate::control::Control;
use crate::explore::{catch, explore};
use crate::setting::{Setting, Size, all, named};

const HELP: &str = "\
Explores the protocol in every interleaving of small settings.
  cargo test --test model                                what takes a moment
  cargo test --profile prove --test model -- --quick     what takes a minute
  cargo test --profile prove --test model -- --all       what takes some minutes
  cargo test --profile prove --test model -- --large     what takes hours, and gigabytes
  cargo test --profile prove --test model -- --controls  rules broken on purpose [--limit SECONDS]
  --only NAME,NAME          these settings or controls
  --set requests=2,crash=1  other numbers than those of the settings
  --trace                   how the first violation comes about
  --list                    the settings and controls that there are";

/// A control that is not caught in so many seconds is not caught.
const LIMIT: u64 = 60;

#[derive(Debug, Default)]
pub(crate) struct Arguments {
    size: Size,
    controls: bool,
    pub(crate) trace: bool,
    list: bool,
    help: bool,
    limit: Option<u64>,
    only: Vec<String>,
    /// Numbers that are other than in the settings.
    set: Vec<(String, u8)>,
    /// What `cargo test` was asked to run, if that is not everything.
    filter: Option<String>,
}

pub(crate) fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let fine = match parse(arguments) {
        Err(wrong) => {
            eprintln!("{wrong}\n{HELP}");
            false
        }
        Ok(arguments) if arguments.help => {
            println!("{HELP}");
            true
        }
        Ok(arguments) if arguments.list => {
            list();
            true
        }
        Ok(arguments) if arguments.filter.as_deref().is_some_and(|filter| !"model".contains(filter)) => true,
        Ok(arguments) if arguments.controls => catch_all(&arguments),
        Ok(arguments) => explore_all(&arguments),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--quick" => parsed.size = Size::Minute,
            "--all" => parsed.size = Size::Minutes,
            "--large" => parsed.size = Size::Hour,
            "--controls" => parsed.controls = true,
            "--trace" => parsed.trace = true,
            "--list" => parsed.list = true,
            "--help" | "-h" => parsed.help = true,
            "--limit" => parsed.limit = Some(number(&value()?)?),
            "--only" => parsed.only = value()?.split(',').map(str::to_owned).collect(),
            "--set" => parsed.set = value()?.split(',').map(setting).collect::<Result<_, _>>()?,
            // Of cargo's own harness: there is nothing here that they could change.
            "--test-threads" | "--format" | "--color" => drop(value()?),
            flag if flag.starts_with('-') => {}
            filter => parsed.filter = Some(filter.to_owned()),
        }
    }
    let unknown = |name: &&String| !names().any(|known| known == name.as_str());
    match parsed.only.iter().find(unknown) {
        Some(name) => Err(format!("there is no setting or control {name}")),
        None => Ok(parsed),
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is no number that fits"))
}

fn setting(pair: &str) -> Result<(String, u8), String> {
    let (what, text) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not like requests=2"))?;
    let (what, number) = (what.to_owned(), number(text)?);
    match named("calm").and_then(|calm| calm.with(&what, number)) {
        Some(_) => Ok((what, number)),
        None => Err(format!("there is no {what} in a setting")),
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    all().map(|setting| setting.name).chain(Control::ALL.iter().map(|(name, _)| *name))
}

fn list() {
    for Setting { name, size, .. } in all() {
        println!("setting {name} (takes {})", size.text());
    }
    for (name, control) in Control::ALL {
        println!("control {name} (shows in {})", control.setting().name);
    }
}

impl Arguments {
    fn means(&self, name: &str) -> bool {
        self.only.iter().any(|only| only == name)
    }
}

fn explore_all(arguments: &Arguments) -> bool {
    let is_meant = |setting: &&Setting| match arguments.only.is_empty() {
        true => setting.size <= arguments.size,
        false => arguments.means(setting.name),
    };
    let set: Vec<_> = arguments.set.iter().map(|(what, number)| (what.as_str(), *number)).collect();
    let mut violated = Vec::new();
    let (mut settings, mut states) = (0, 0);
    for setting in all().filter(is_meant) {
        let explored = explore(arguments, setting.with_all(&set));
        settings += 1;
        states += explored.unique;
        if !explored.is_fine {
            violated.push(setting.name);
        }
    }
    println!("model: {settings} settings to their end, {states} unique states, violated: {}", violated.len());
    violated.is_empty() && states > 0
}

fn catch_all(arguments: &Arguments) -> bool {
    let limit = Duration::from_secs(arguments.limit.unwrap_or(LIMIT));
    let is_meant = |name: &str| arguments.only.is_empty() || arguments.means(name);
    let controls = Control::ALL.iter().filter(|(name, _)| is_meant(name));
    let caught: Vec<bool> = controls.map(|(name, control)| catch(arguments, name, *control, limit)).collect();
    !caught.is_empty() && caught.into_iter().all(|caught| caught)
}
