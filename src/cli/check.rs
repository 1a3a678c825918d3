//! `highgate check FILE`: says whether `serve --config FILE` would take it, and what it would do. `--against OLD`: also
//! what a reload from OLD would do to the names of resources, and so to their fences.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use highgate::config::{Config, LoadInput, Naming, Overrides, Route, Unknowable, renames, unfenced};

use super::table::{Side, table};

/// Bad usage or config, as for every command.
const EXIT_CONFIG: u8 = 2;

/// Prints the routes, or every problem.
pub(crate) fn run(file: &Path, against: Option<&Path>) -> ExitCode {
    match checked(file, against) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(EXIT_CONFIG)
        }
    }
}

fn checked(file: &Path, against: Option<&Path>) -> Result<String, String> {
    let load = |file: &Path| {
        let input = LoadInput { file: Some(file.to_owned()), overrides: Overrides::default() };
        Config::load(&input).map_err(|error| with_causes(&error))
    };
    let old = against.map(|old| load(old).map(|config| (old, config))).transpose()?;
    let config = load(file)?;
    let mut report = summary(file, &config);
    report.extend(config.grants.iter().map(|grant| format!("grant: {grant}\n")));
    report.extend(config.warnings().iter().map(|warning| format!("warning: {warning}\n")));
    if let Some((old, before)) = old {
        report += &change(&Naming::of(&before.routes), &Naming::of(&config.routes)).map_err(|refused| {
            format!("{}: not to be reloaded from {}: {refused}", file.display(), old.display())
        })?;
    }
    Ok(report)
}

/// What a change of the config does to the names under which requests are fenced.
fn change(old: &Naming, new: &Naming) -> Result<String, Unknowable> {
    let renames = renames(old, new)?;
    let mut lines: Vec<String> = renames
        .iter()
        .map(|rename| format!("renamed: {rename}; both count until requests under way have ended, and the new marks start from the old"))
        .collect();
    let unfenced = unfenced(old, new);
    lines.extend(unfenced.iter().map(|(requests, resource)| {
        format!("no longer fenced: requests to {requests}, which are fenced as `{resource}` now")
    }));
    if lines.is_empty() {
        lines.push("no fence changes its name".to_owned());
    }
    Ok(lines.join("\n") + "\n")
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
        route.grade(),
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
    fn a_change_is_told_by_what_it_does_to_the_fences() {
        let naming = |routes: &str| {
            let text = format!("[[routes]]\nname = \"a\"\nupstream = \"http://127.0.0.1:1\"\n{routes}");
            Naming::of(
                &Config::parse(&text, Path::new("f"), &Overrides::default()).expect("a good config").routes,
            )
        };
        let one = naming("match = { path = \"/{x}/{y}\" }\nresource = \"one\"\n");
        let each = naming("match = { path = \"/{x}/{y}\" }\nresource = \"one/{x}\"\n");
        let other = naming("match = { path = \"/{x}/{y}\" }\nresource = \"one/{y}\"\n");
        let open = naming("match = { path = \"/{x}/{y}\" }\nfenced_methods = []\n");
        assert_eq!(change(&one, &one).unwrap(), "no fence changes its name\n");
        let renamed = change(&one, &each).unwrap();
        assert!(
            renamed
                .starts_with("renamed: requests to /*/* are fenced as `one` now and will be as `one/{x}`;"),
            "{renamed}"
        );
        assert!(change(&one, &open).unwrap().starts_with("no longer fenced: requests to /*/*"));
        assert!(change(&each, &other).unwrap_err().to_string().contains("by way of one fixed name"));
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
