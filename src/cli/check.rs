//! `highgate check FILE`: says whether `serve --config FILE` would take it, and what it would do.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use highgate::config::{Config, LoadInput, Overrides, Route};

use super::table::{Side, table};

/// Bad usage or config, as for every command.
const EXIT_CONFIG: u8 = 2;

/// Prints the routes, or every problem.
pub(crate) fn run(file: &Path) -> ExitCode {
    let input = LoadInput { file: Some(file.to_owned()), overrides: Overrides::default() };
    match Config::load(&input) {
        Ok(config) => {
            print!("{}", summary(file, &config));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}", with_causes(&error));
            ExitCode::from(EXIT_CONFIG)
        }
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// One line that says ok, and a table of the routes in the order in which they are tried.
fn summary(file: &Path, config: &Config) -> String {
    let columns = ["NAME", "MATCH", "UPSTREAM", "RESOURCE", "TOKENS", "GRADE"].map(|name| (name, Side::Left));
    let rows: Vec<_> = config.routes.iter().map(|route| row(route)).collect();
    let count = rows.len();
    let ok = format!("{}: ok, {count} route{}\n", file.display(), if count == 1 { "" } else { "s" });
    ok + &table(columns, rows)
}

fn row(route: &Route) -> [String; 6] {
    [
        route.name.to_string(),
        route.matcher.to_string(),
        route.upstream.to_string(),
        route.resource.to_string(),
        route.tokens.to_string(),
        route.grade().to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_lists_the_routes_in_order_with_their_grade() {
        let text = r#"
            [[routes]]
            name = "ledger"
            match = { host = "ledger.internal", path = "/accounts/{account}", methods = ["POST", "GET"] }
            upstream = "http://127.0.0.1:9000/api/"
            resource = "ledger/{account}"

            [[routes]]
            name = "rest"
            upstream = "http://127.0.0.1:9001"
            resource = { client = true, default = "other" }
            tokens = "trusted"
            on_unknown = "proceed"
        "#;
        let config = Config::parse(text, Path::new("a.toml"), &Overrides::default()).expect("a good config");
        let summary = summary(Path::new("a.toml"), &config);
        let squeezed: Vec<_> =
            summary.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let ledger = "ledger POST,GET ledger.internal/accounts/{account} http://127.0.0.1:9000/api \
                      ledger/{account} issued gated";
        let rest = "rest / http://127.0.0.1:9001 named by the client, or other trusted \
                    not gated (on_unknown = proceed)";
        let header = "NAME MATCH UPSTREAM RESOURCE TOKENS GRADE";
        assert_eq!(squeezed, ["a.toml: ok, 2 routes", header, ledger, rest]);
        let column = |line: usize, word: &str| summary.lines().nth(line).and_then(|line| line.find(word));
        assert!(column(1, "UPSTREAM").is_some());
        assert_eq!(column(1, "UPSTREAM"), column(2, "http:"));
        assert_eq!(column(1, "UPSTREAM"), column(3, "http:"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named_with_the_cause() {
        let input = LoadInput { file: Some("/nonexistent/a.toml".into()), overrides: Overrides::default() };
        let text = with_causes(&Config::load(&input).expect_err("there is no such file"));
        assert!(
            text.starts_with("/nonexistent/a.toml: the config file cannot be read: No such file"),
            "{text}"
        );
    }
}
