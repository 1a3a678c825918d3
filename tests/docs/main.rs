//! The documentation, executed: what README and docs/ show is typed into a shell, and the answers are compared.
//!
//! `page.rs` finds the console blocks and what their markers say, `expect.rs` compares an answer with what is shown, and
//! `session.rs` is the reader's machine: a folder, the program as `highgate` in the path, and a service on port 9000.
//! What must stay true: every console block of these pages has a marker, so that none goes untried without a reason.
#![allow(clippy::unwrap_used)]

mod expect;
mod origin;
mod page;
mod session;

use page::Page;
use session::Session;

/// Follows a page from its top to its end, as a reader would.
fn follow(page: &Page) -> Result<(), String> {
    let mut session = Session::start();
    for step in &page.steps {
        session.take(step).map_err(|problem| format!("{}:{}: {problem}", page.name, step.line))?;
    }
    Ok(())
}

fn follow_file(name: &str, at_least: usize) {
    let page = Page::read(name);
    assert!(page.steps.len() >= at_least, "{name} has only {} commands to try", page.steps.len());
    follow(&page).unwrap_or_else(|problem| panic!("{problem}"));
}

#[test]
fn the_readme_does_what_it_shows() {
    follow_file("README.md", 4);
}

#[test]
fn elections_over_http_do_what_their_page_shows() {
    follow_file("docs/elections.md", 12);
}

#[test]
fn signed_tokens_do_what_their_page_shows() {
    follow_file("docs/signed-tokens.md", 4);
}

#[test]
fn run_does_what_its_page_shows() {
    follow_file("docs/run.md", 6);
}

#[test]
fn the_elector_does_what_its_page_shows() {
    follow_file("docs/elector.md", 2);
}

/// A page whose one answer is shown as given here.
fn write_with_token_8(shown: &str) -> Result<(), String> {
    let text = format!(
        "<!-- run: stays -->\n```console\n$ highgate serve --upstream http://127.0.0.1:9000\n...\n```\n\
         <!-- run -->\n```console\n$ curl -i -H 'X-Fencing-Token: 8' -d hello http://127.0.0.1:8080/\n{shown}\n```\n"
    );
    follow(&Page::parse("page.md", &text).unwrap())
}

#[test]
fn a_command_or_an_answer_that_has_changed_is_noticed() {
    assert_eq!(write_with_token_8("HTTP/1.1 200 OK\n..."), Ok(()));
    let changed = write_with_token_8("HTTP/1.1 201 Created\n...").unwrap_err();
    assert!(changed.starts_with("page.md:8: ") && changed.contains("HTTP/1.1 200 OK"), "{changed}");
    let text = "<!-- run -->\n```console\n$ highgate serve --upstreem http://127.0.0.1:9000\n```\n";
    let unknown = follow(&Page::parse("page.md", text).unwrap()).unwrap_err();
    assert!(unknown.contains("--upstreem"), "{unknown}");
}
