//! A reader's machine: an empty folder, the program in the path, a service on port 9000, and a shell.
//!
//! What is not as on the page, so that pages can be followed side by side and beside whatever runs here: ports. The
//! gateway is told by its environment to take free ones, and its greeting says which. Port 8080, 9901, 9902 and 9000 of
//! 127.0.0.1 in a command are replaced by them, and in an answer they are replaced back. `cargo run --release --`,
//! `target/release/highgate` and `highgate` are the program that was built for the tests.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::expect::{Names, matches};
use crate::origin::echo;
use crate::page::Step;

const PROGRAM: &str = env!("CARGO_BIN_EXE_highgate");
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How a greeting tells its addresses, and what they are by default.
const GREETINGS: [(&str, &str); 3] = [
    ("highgate listening on http://", "127.0.0.1:8080"),
    ("highgate admin on http://", "127.0.0.1:9901"),
    ("highgate elections on http://", "127.0.0.1:9902"),
];
const CARGO: &str =
    "#!/bin/sh\n[ \"$1 $2 $3\" = 'run --release --' ] || exit 99\nshift 3\nexec highgate \"$@\"\n";

pub(crate) struct Session {
    folder: TempDir,
    /// What pages call an address, and what it is here.
    addresses: Vec<(&'static str, String)>,
    names: Names,
    /// Commands that go on, each in a process group of its own.
    staying: Vec<Child>,
    commands: usize,
}

impl Session {
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(PROGRAM, bin.join("highgate")).unwrap();
        fs::write(bin.join("cargo"), CARGO).unwrap();
        fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
        // Without a terminal curl would show how far it is.
        fs::write(folder.path().join(".curlrc"), "silent\nshow-error\n").unwrap();
        let work = folder.path().join("work");
        fs::create_dir_all(work.join("target/release")).unwrap();
        symlink(PROGRAM, work.join("target/release/highgate")).unwrap();
        symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs"), work.join("docs")).unwrap();
        let addresses = vec![("127.0.0.1:9000", echo().to_string())];
        Self { folder, addresses, names: Names::default(), staying: Vec::new(), commands: 0 }
    }

    /// Types a command in, and compares what it answers with what is shown.
    pub(crate) fn take(&mut self, step: &Step) -> Result<(), String> {
        self.commands += 1;
        let output = self.folder.path().join(format!("output-{}", self.commands));
        let log = step.stays.then(|| self.folder.path().join(format!("log-{}", self.commands)));
        let mut child = self.shell(&step.command, &output, log.as_deref());
        let began = Instant::now();
        loop {
            let ended = child.try_wait().unwrap();
            let answer = fs::read_to_string(&output).unwrap();
            if step.stays {
                self.learn(&answer);
            }
            let answer = self.as_on_page(&answer);
            let names = matches(&step.shown, &answer, !step.stays, &self.names);
            match (ended, names) {
                (None, Some(names)) if step.stays && self.is_ready(step) => {
                    self.names = names;
                    self.staying.push(child);
                    return Ok(());
                }
                (Some(_), Some(names)) if !step.stays => {
                    self.names = names;
                    return Ok(());
                }
                (None, _) if began.elapsed() < PATIENCE => sleep(LOOK_EVERY),
                (ended, _) => {
                    end(&mut child);
                    let said = log.map_or(String::new(), |log| fs::read_to_string(log).unwrap());
                    return Err(differs(step, &(answer + &said), ended.is_some()));
                }
            }
        }
    }

    /// A gateway is there when it has said where; of others their answer is all there is to wait for.
    fn is_ready(&self, step: &Step) -> bool {
        !step.command.contains("serve") || self.addresses.len() >= 3
    }

    /// A command that stays writes its log, on stderr, whenever it comes to that: with a log, it is kept apart.
    fn shell(&self, command: &str, output: &Path, log: Option<&Path>) -> Child {
        let output = File::create(output).unwrap();
        let errors = log.map_or_else(|| output.try_clone().unwrap(), |log| File::create(log).unwrap());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(self.as_here(command));
        shell.current_dir(self.folder.path().join("work")).process_group(0).stdin(Stdio::null());
        shell.stdout(output).stderr(errors);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HIGHGATE_")) {
            shell.env_remove(name);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()));
        shell.env("CURL_HOME", self.folder.path());
        shell.env("HIGHGATE_LISTEN", "127.0.0.1:0");
        let admin = self.address("127.0.0.1:9901");
        shell.env("HIGHGATE_ADMIN", admin.unwrap_or("127.0.0.1:0"));
        if let Some(admin) = admin {
            shell.env("HIGHGATE_BACKEND", format!("highgate://{admin}"));
        }
        shell.spawn().unwrap()
    }

    fn address(&self, on_page: &str) -> Option<&str> {
        self.addresses.iter().find(|(known, _)| *known == on_page).map(|(_, here)| here.as_str())
    }

    /// Notes the addresses of a gateway that has just greeted.
    fn learn(&mut self, answer: &str) {
        for (greeting, on_page) in GREETINGS {
            let lines = answer.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let here = lines.filter_map(|line| line.strip_prefix(greeting)).next();
            if let Some(here) = here.and_then(|rest| rest.split_whitespace().next()) {
                let _valid: SocketAddr = here.parse().unwrap();
                self.addresses.retain(|(known, _)| *known != on_page);
                self.addresses.push((on_page, here.to_owned()));
            }
        }
    }

    fn as_here(&self, command: &str) -> String {
        let command = self.names.translate(command);
        self.addresses.iter().fold(command, |text, (on_page, here)| text.replace(on_page, here))
    }

    fn as_on_page(&self, answer: &str) -> String {
        self.addresses.iter().fold(answer.to_owned(), |text, (on_page, here)| text.replace(here, on_page))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for child in &mut self.staying {
            end(child);
        }
    }
}

/// Ends a command and all it has started in its group.
fn end(child: &mut Child) {
    // Either fails only for processes that have ended.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

fn differs(step: &Step, answer: &str, has_ended: bool) -> String {
    let then = match (step.stays, has_ended) {
        (true, true) => " and has ended, which it should not",
        (false, false) => " and does not end",
        _ => "",
    };
    format!("`{}` is shown to answer\n{}\nbut answers\n{answer}{then}", step.command, step.shown.join("\n"))
}
