//! Configs: an error says where, and an accepted text always means the same.

use highgate::config::{Config, ConfigError, LogFormat, Overrides, PathPattern, Problem};

use super::target::{Answer, Target, ensure, texts};

const EXAMPLE: &str = include_str!("../../config/highgate.example.toml");
const ETCD: &str = r#"
[store]
kind = "etcd"
path = "data"
endpoints = ["127.0.0.1:2379", "http://[::1]:2379"]
prefix = "/highgate/default"
validity = "4s"
[[routes]]
name = "a"
upstream = "http://127.0.0.1:9000/base"
on_unknown = "proceed"
lock_delay = "0s"
total_timeout = "1h"
"#;

pub(crate) fn target() -> Target {
    let mut examples = texts(&[ETCD, "", "[[routes]]\nname = 7\n"]);
    // Without what is said to people: a change in a comment changes nothing.
    let kept = |line: &&str| !line.is_empty() && !line.starts_with("# ") && *line != "#";
    let settings: Vec<&str> = EXAMPLE.lines().filter(kept).collect();
    examples.push(settings.iter().filter(|line| !line.starts_with('#')).fold(Vec::new(), add));
    examples.push(settings.iter().fold(Vec::new(), |text, line| add(text, &line.trim_start_matches('#'))));
    let words = &[
        "[[routes]]\n",
        "[store]\n",
        "\"0s\"",
        "\"24h\"",
        "\"25h\"",
        "\"none\"",
        "true",
        "-0",
        "[]",
        "{}",
        "\"\"",
        "'''",
        "\"\"\"",
        "0x1",
        "nan",
        "inf",
        "1979-05-27",
        "\n",
        "= ",
        "{account}",
        "{*rest}",
        "\"block\"",
        "\"trusted\"",
        "\\u0000",
        "#",
        ".",
        "kind = \"etcd\"\n",
        "workers = 70000\n",
        "http://",
        "https://",
    ];
    Target { name: "config", accepted: "are a config", examples, words, check, exact: true }
}

fn add(mut text: Vec<u8>, line: &&str) -> Vec<u8> {
    text.extend_from_slice(line.as_bytes());
    text.push(b'\n');
    text
}

fn check(input: &[u8]) -> Result<Answer, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(Answer::Refused) };
    let flags = Overrides { upstream: Some("http://127.0.0.1:1".to_owned()), ..Overrides::default() };
    let loud = Overrides { log_format: Some(LogFormat::Json), ..Overrides::default() };
    let mut accepted = false;
    for overrides in [Overrides::default(), loud, flags] {
        let parse = || Config::parse(text, "fuzz.toml".as_ref(), &overrides);
        match (parse(), parse()) {
            (Ok(config), Ok(again)) => {
                ensure(config == again, || "is another config the second time".to_owned())?;
                check_config(&config)?;
                accepted = true;
            }
            (Err(error), Err(again)) => {
                ensure(error.to_string() == again.to_string(), || format!("{error}, then {again}"))?;
                check_error(&error, text)?;
            }
            (Ok(_), Err(error)) | (Err(error), Ok(_)) => return Err(format!("once fine, once {error}")),
        }
    }
    Ok(Answer::of(accepted))
}

fn check_config(config: &Config) -> Result<(), String> {
    ensure(config.listen.workers > 0, || "nobody serves".to_owned())?;
    ensure(config.routes.iter().len() > 0, || "there are no routes".to_owned())?;
    ensure(config.needs_restart(config).is_empty(), || "needs a restart to stay as it is".to_owned())?;
    config.routes.iter().try_for_each(|route| {
        let pattern = &route.matcher.path;
        let again = PathPattern::parse(&pattern.to_string());
        ensure(again.as_ref() == Ok(pattern), || format!("{pattern} is not what it says"))
    })
}

fn check_error(error: &ConfigError, text: &str) -> Result<(), String> {
    let ConfigError::Invalid { problems } = error else { return Err(format!("a text is never {error}")) };
    ensure(!problems.is_empty(), || "refused without a problem".to_owned())?;
    let lines = text.matches('\n').count() + 1;
    problems.iter().try_for_each(|problem| {
        ensure(says_where(problem, lines), || format!("does not say where: {problem:?}"))?;
        let complete = !problem.what.is_empty() && !problem.allowed.is_empty();
        ensure(complete, || format!("does not say what, or what is allowed: {problem:?}"))
    })
}

/// A line of the text, or a flag.
fn says_where(problem: &Problem, lines: usize) -> bool {
    match &problem.place {
        Some(place) => (1..=lines).contains(&place.line) && place.column > 0,
        None => problem.key.starts_with("--"),
    }
}
