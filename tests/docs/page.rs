//! The console blocks of a page, and what the comment above each says about trying it.
//!
//! ```text
//! <!-- run -->                    typed in, line by line; what follows a command is its whole answer
//! <!-- run: stays -->             the same, but the last command goes on, as in a terminal of its own; its log, on stderr,
//!                                 is not compared
//! <!-- not run: the reason -->    not tried
//! ```
//!
//! The comments are not shown where the page is rendered. In an answer, a line `...` stands for any number of lines, and
//! `…` for anything within a line.

use std::fs;
use std::path::Path;

/// A page's commands, in their order.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// A command and what it is shown to answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) command: String,
    pub(crate) shown: Vec<String>,
    /// It does not end by itself.
    pub(crate) stays: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    Run { stays: bool },
    NotRun,
}

impl Page {
    pub(crate) fn read(name: &str) -> Self {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
        Self::parse(name, &text).unwrap_or_else(|problem| panic!("{problem}"))
    }

    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let (mut steps, mut marker) = (Vec::new(), None);
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        while let Some((number, line)) = lines.next() {
            let problem = |what: &str| Err(format!("{name}:{number}: {what}"));
            if !line.starts_with("```") {
                marker = Marker::parse(line);
                continue;
            }
            let block: Vec<_> = lines.by_ref().take_while(|(_, line)| !line.starts_with("```")).collect();
            match (line == "```console", marker.take()) {
                (true, Some(Marker::Run { stays })) => steps.extend(commands(&block, stays)),
                (true, None) => return problem("a console block says above it whether it is run"),
                (false, Some(_)) => return problem("only a console block is run"),
                (true, Some(Marker::NotRun)) | (false, None) => {}
            }
        }
        Ok(Self { name: name.to_owned(), steps })
    }
}

impl Marker {
    fn parse(line: &str) -> Option<Self> {
        match line.strip_prefix("<!-- ")?.strip_suffix(" -->")? {
            "run" => Some(Self::Run { stays: false }),
            "run: stays" => Some(Self::Run { stays: true }),
            reason if reason.starts_with("not run: ") => Some(Self::NotRun),
            _ => None,
        }
    }
}

/// A command begins with `$ ` and goes on after a `\` at the end of a line; the rest is its answer.
fn commands(block: &[(usize, &str)], stays: bool) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for (line, text) in block {
        if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step { line: *line, command: command.to_owned(), ..Step::default() });
        } else {
            let step = steps.last_mut().unwrap_or_else(|| panic!("line {line}: an answer without a command"));
            if goes_on {
                step.command.push('\n');
                step.command.push_str(text);
            } else {
                step.shown.push((*text).to_owned());
            }
        }
        goes_on = text.ends_with('\\') && (goes_on || text.starts_with("$ "));
    }
    if let Some(last) = steps.last_mut() {
        last.stays = stays;
    }
    steps
}

#[test]
fn a_block_is_commands_and_their_answers() {
    let text = "text\n<!-- run: stays -->\n```console\n$ a \\\n  b\none\ntwo\n$ c\n```\n\
                <!-- not run: slow -->\n```console\n$ d\n```\n```rust\nlet e;\n```\n";
    let step = |line, command: &str, shown: &[&str], stays| {
        let shown = shown.iter().map(|line| (*line).to_owned()).collect();
        Step { line, command: command.to_owned(), shown, stays }
    };
    let expected = [step(4, "a \\\n  b", &["one", "two"], false), step(8, "c", &[], true)];
    assert_eq!(Page::parse("p", text).unwrap().steps, expected);
}

#[test]
fn a_block_without_a_marker_is_not_overlooked() {
    for text in ["```console\n$ a\n```\n", "<!-- run -->\n\n```console\n$ a\n```\n"] {
        assert_eq!(
            Page::parse("p", text).unwrap_err().split_once(": ").unwrap().1,
            "a console block says above it whether it is run"
        );
    }
    assert!(Page::parse("p", "<!-- run -->\n```rust\n```\n").is_err());
}
