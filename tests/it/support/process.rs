//! The real program, started, watched and ended: `highgate().data(folder).upstream(&origin).start()`.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};

use super::client::{Ask, Client, Response, get};
use super::eventually;

/// A command line that is about to run.
#[derive(Clone)]
pub(crate) struct Builder {
    program: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    file_limit: Option<u32>,
}

/// The running program. Killed when dropped.
pub(crate) struct Highgate {
    child: Child,
    output: Arc<Mutex<String>>,
    errors: Arc<Mutex<String>>,
    /// They end with the pipes.
    readers: Vec<JoinHandle<()>>,
}

/// `highgate serve` on free ports.
pub(crate) fn highgate() -> Builder {
    let args = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let program = PathBuf::from(env!("CARGO_BIN_EXE_highgate"));
    Builder { program, args: args.map(str::to_owned).to_vec(), environment: Vec::new(), file_limit: None }
}

/// Another program that says where it listens in the same words.
#[allow(dead_code, reason = "for tests/faults, which share this file")]
pub(crate) fn stand_in(program: PathBuf, args: Vec<String>) -> Builder {
    Builder { program, args, environment: Vec::new(), file_limit: None }
}

/// A config file with one route that trusts tokens, and these further lines in it.
pub(crate) fn config_for(upstream: SocketAddr, route: &str) -> String {
    format!(
        "[shutdown]\nunready_delay = \"300ms\"\n\n[[routes]]\nname = \"ledger\"\nupstream = \"http://{upstream}\"\n\
         resource = {{ client = true, default = \"default\" }}\ntokens = \"trusted\"\n{route}\n"
    )
}

impl Builder {
    pub(crate) fn data(self, folder: &Path) -> Self {
        self.args(["--data-dir", &folder.to_string_lossy()])
    }

    /// On these addresses, as they are written, in place of the usual ones.
    #[allow(dead_code, reason = "for tests/it alone, whose file this is")]
    pub(crate) fn listening(mut self, data: &str, admin: &str) -> Self {
        self.args = ["serve", "--listen", data, "--admin", admin].map(str::to_owned).to_vec();
        self
    }

    pub(crate) fn upstream(self, upstream: SocketAddr) -> Self {
        self.args(["--upstream", &format!("http://{upstream}")])
    }

    pub(crate) fn config(self, file: &Path) -> Self {
        self.args(["--config", &file.to_string_lossy()])
    }

    fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_owned));
        self
    }

    /// No file may grow beyond so many blocks of 512 bytes: later writes fail, without a signal.
    pub(crate) fn file_limit(mut self, blocks: u32) -> Self {
        self.file_limit = Some(blocks);
        self
    }

    /// With a throw-away certificate on every port.
    #[allow(dead_code, reason = "for tests/it alone, whose file this is")]
    pub(crate) fn dev_tls(self) -> Self {
        self.args(["--dev-tls"])
    }

    /// Another build of the program.
    #[allow(dead_code, reason = "for tests/faults, which share this file")]
    pub(crate) fn program(mut self, program: &Path) -> Self {
        self.program = program.to_owned();
        self
    }

    /// Started by this command, which becomes it.
    #[allow(dead_code, reason = "for tests/faults, which share this file")]
    pub(crate) fn under(mut self, command: &[String]) -> Self {
        if let Some((first, rest)) = command.split_first() {
            let program = self.program.to_string_lossy().into_owned();
            self.args = rest.iter().cloned().chain([program]).chain(self.args).collect();
            self.program = PathBuf::from(first);
        }
        self
    }

    /// It finds this variable in its environment.
    #[allow(dead_code, reason = "for the tests of several gateways, which share this file")]
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it, whatever becomes of it.
    pub(crate) fn spawn(self) -> Highgate {
        let mut command = match self.file_limit {
            None => Command::new(self.program),
            Some(blocks) => {
                let mut shell = Command::new("sh");
                let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
                shell.arg("-c").arg(script).arg(self.program);
                shell
            }
        };
        command
            .args(self.args)
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program was built");
        let (output, reader) = collect(child.stdout.take().expect("a pipe was asked for"));
        let (errors, error_reader) = collect(child.stderr.take().expect("a pipe was asked for"));
        Highgate { child, output, errors, readers: vec![reader, error_reader] }
    }

    /// Starts it and waits until it serves.
    pub(crate) fn start(self) -> Highgate {
        let mut highgate = self.spawn();
        eventually("the program says where it listens", || {
            assert!(highgate.exit_status().is_none(), "it ended: {}", highgate.said());
            highgate.port_after("listening on").is_some() && highgate.port_after("admin on").is_some()
        });
        highgate
    }
}

fn collect(pipe: impl Read + Send + 'static) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let text = Arc::new(Mutex::new(String::new()));
    let lines = text.clone();
    let reader = thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let mut text = lines.lock().expect("no reader panics");
            text.push_str(&line);
            text.push('\n');
        }
    });
    (text, reader)
}

impl Highgate {
    pub(crate) fn address(&self) -> SocketAddr {
        self.port_after("listening on").expect("it has said so before")
    }

    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.port_after("admin on").expect("it has said so before")
    }

    fn port_after(&self, words: &str) -> Option<SocketAddr> {
        let text = self.said();
        let rest = text.split_once(&format!("{words} http"))?.1;
        let rest = rest.trim_start_matches('s').strip_prefix("://")?;
        let end = rest.find(|character: char| !(character.is_ascii_digit() || ".:".contains(character)))?;
        rest[..end].parse().ok()
    }

    /// Everything it printed, its logs and errors last.
    pub(crate) fn said(&self) -> String {
        let output = self.output.lock().expect("no reader panics");
        format!("{output}{}", self.errors())
    }

    pub(crate) fn errors(&self) -> String {
        self.errors.lock().expect("no reader panics").clone()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    pub(crate) fn ask(&self, ask: &Ask) -> Response {
        self.connect().ask(ask)
    }

    pub(crate) fn admin(&self, path: &str) -> Response {
        Client::connect(self.admin_address()).ask(&get(path).header("Connection", "close"))
    }

    /// An operator's order for a resource.
    pub(crate) fn operate(&self, order: &str, resource: &str) -> Response {
        Client::connect(self.admin_address()).order(order, resource)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("a child that was not waited for takes signals");
    }

    /// `kill -9`, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a running child");
        self.child.wait().expect("a child of ours");
    }

    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours")
    }

    /// Waits until it ends by itself, and has said everything.
    pub(crate) fn exit_code(&mut self) -> i32 {
        let mut status = None;
        eventually("the program ends", || {
            status = self.exit_status();
            status.is_some()
        });
        self.readers.drain(..).for_each(|reader| reader.join().expect("no reader panics"));
        status.and_then(|status| status.code()).unwrap_or_else(|| panic!("it was killed: {}", self.said()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory now, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a running child");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a resident size");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes * 1024
    }
}

impl Drop for Highgate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
