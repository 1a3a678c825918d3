//! Real programs for these tests: a gateway, runs of commands in front of it, and the files they leave.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_highgate");
/// Of the user that owns nothing.
const NOBODY: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(20);

/// `highgate serve` on free ports, in front of a service that says yes to everything. Killed when dropped.
pub(crate) struct Gateway {
    process: Child,
    pub(crate) data: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Where jobs campaign.
    pub(crate) elections: SocketAddr,
    pub(crate) folder: TempDir,
}

/// A command line that is about to run.
pub(crate) struct Builder {
    command: Command,
    folder: PathBuf,
    name: String,
}

/// A running `highgate run`. Killed when dropped, which ends its command as well.
pub(crate) struct Run {
    process: Child,
    log: PathBuf,
    /// Where it makes its token file.
    pub(crate) temporary: PathBuf,
}

impl Gateway {
    pub(crate) fn start() -> Self {
        Self::with_tokens("issued")
    }

    /// One that takes any higher number for a token, as `serve` does without a config file.
    pub(crate) fn trusting() -> Self {
        Self::with_tokens("trusted")
    }

    /// One whose elections sign, and that wants their tokens signed.
    pub(crate) fn signing() -> Self {
        let folder = TempDir::new().unwrap();
        let mut make = Command::new(PROGRAM);
        make.args(["keys", "new", "--data-dir"]).arg(folder.path().join("data"));
        assert!(make.stdout(Stdio::null()).status().unwrap().success());
        Self::in_folder(folder, "signed")
    }

    fn with_tokens(tokens: &str) -> Self {
        Self::in_folder(TempDir::new().unwrap(), tokens)
    }

    fn in_folder(folder: TempDir, tokens: &str) -> Self {
        let mut serve = Command::new(PROGRAM);
        serve
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--tokens", tokens])
            .args(["--upstream", &format!("http://{}", yes_sayer()), "--data-dir"])
            .arg(folder.path().join("data"));
        Self::serve(serve, folder)
    }

    /// One whose elections want this secret.
    pub(crate) fn with_secret(secret: &str) -> Self {
        Self::with_config(|folder| {
            let file = folder.join("secret");
            fs::write(&file, format!("{secret}\n")).unwrap();
            format!("[elections]\naddress = \"127.0.0.1:0\"\nauth = {{ bearer_file = {file:?} }}\n")
        })
    }

    /// One with these tables in its config, whose files are put into its folder.
    pub(crate) fn with_config(tables: impl FnOnce(&Path) -> String) -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        let config = format!(
            "[listen]\naddress = \"127.0.0.1:0\"\n[store]\npath = {:?}\n[admin]\naddress = \"127.0.0.1:0\"\n{}\
             [[routes]]\nname = \"all\"\nmatch = {{ path = \"/\" }}\nupstream = \"http://{}\"\n",
            path("data"),
            tables(folder.path()),
            yes_sayer()
        );
        fs::write(path("highgate.toml"), config).unwrap();
        let mut serve = Command::new(PROGRAM);
        serve.args(["serve", "--config"]).arg(path("highgate.toml"));
        Self::serve(serve, folder)
    }

    fn serve(mut command: Command, folder: TempDir) -> Self {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.path().join("gateway.log")).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address =
            |line: &str| line.split("://").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        let mut line = || lines.next().unwrap().unwrap();
        let (data, admin, third) = (address(&line()), address(&line()), line());
        // Without a port of their own the jobs use the admin port.
        let elections = if third.starts_with("highgate elections") { address(&third) } else { admin };
        // It greets with more lines than these; nobody reads them, and a pipe has room.
        thread::spawn(move || lines.for_each(drop));
        Self { process, data, admin, elections, folder }
    }

    /// A run on this gateway's elections; its name is that of its log.
    pub(crate) fn run(&self, name: &str, args: &[&str]) -> Builder {
        run_on(&format!("highgate://{}", self.elections), self.folder.path(), name, args)
    }

    /// The status of a write with this token.
    pub(crate) fn write(&self, resource: &str, token: &str) -> u16 {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nX-Fencing-Token: {token}\r\nX-Fencing-Resource: {resource}\r\n\
             Content-Length: 1\r\nConnection: close\r\n\r\nx"
        );
        let mut stream = TcpStream::connect(self.data).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn stop(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub(crate) fn evict(&self, resource: &str) {
        let admin = self.admin.to_string();
        let status = Command::new(PROGRAM).args(["evict", resource, "--admin", &admin]).status().unwrap();
        assert!(status.success());
    }

    /// What a command has written to a file of the folder.
    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Either fails only for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A run on any backend.
pub(crate) fn run_on(backend: &str, folder: &Path, name: &str, args: &[&str]) -> Builder {
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--backend", backend]).args(args);
    Builder { command, folder: folder.to_owned(), name: name.to_owned() }
}

impl Builder {
    /// Starts it with a shell script for a command, in the folder.
    pub(crate) fn sh(self, script: &str) -> Run {
        self.command(&["sh", "-c", script])
    }

    /// With a variable of the environment that `run` finds.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// As another user than root: as nobody, if root runs the tests.
    pub(crate) fn by_somebody(mut self) -> Self {
        if geteuid().is_root() {
            // The program may lie where only root can go.
            let program = self.folder.join("highgate");
            fs::copy(PROGRAM, &program).unwrap();
            fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o777)).unwrap();
            let mut command = Command::new(program);
            command.args(self.command.get_args());
            command.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.uid(NOBODY).gid(NOBODY);
            self.command = command;
        }
        self
    }

    /// As a shell with job control would.
    pub(crate) fn in_own_group(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    pub(crate) fn command(mut self, command: &[&str]) -> Run {
        let temporary = self.folder.join(format!("{}.tmp", self.name));
        fs::create_dir(&temporary).unwrap();
        // Whatever user it runs as.
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o777)).unwrap();
        let log = self.folder.join(format!("{}.log", self.name));
        let output = fs::File::create(self.folder.join(format!("{}.out", self.name))).unwrap();
        let process = self
            .command
            .arg("--")
            .args(command)
            .current_dir(&self.folder)
            .env("TMPDIR", &temporary)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Run { process, log, temporary }
    }
}

impl Run {
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// To all processes of the group that it leads.
    pub(crate) fn signal_group(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Kills its guardian, which is its child with that role.
    pub(crate) fn kill_guardian(&self) {
        kill_process(self.guardian(), Signal::KILL).unwrap();
    }

    /// Kills the keeper of its command, which is its guardian's child.
    pub(crate) fn kill_keeper(&self) {
        let keeper = child_with_role(self.guardian(), "guard\0keep").expect("a keeper");
        kill_process(keeper, Signal::KILL).unwrap();
    }

    fn guardian(&self) -> Pid {
        child_with_role(Pid::from_child(&self.process), "guard\0watch").expect("a guardian")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has said this.
    pub(crate) fn says(&self, text: &str) {
        eventually(&format!("{text:?} in {}", self.log.display()), || self.log().contains(text));
    }

    /// Waits for its end, and for its log to be complete.
    pub(crate) fn ends(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(&format!("the end of {}", self.log.display()), || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        println!("{}:\n{}", self.log.display(), self.log());
        status.unwrap()
    }

    pub(crate) fn code(&mut self) -> i32 {
        self.ends().code().expect("an exit code")
    }

    /// Its token file is gone, with the folder.
    pub(crate) fn has_cleaned_up(&self) -> bool {
        self.temporary.read_dir().unwrap().count() == 0
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Either fails only for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The child of this process whose command line says this.
fn child_with_role(parent: Pid, role: &str) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent.as_raw_pid())).unwrap();
    let has_role =
        |pid: &&str| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(role));
    children.split_whitespace().find(has_role)?.parse().ok().and_then(Pid::from_raw)
}

/// Waits for something that has to become true.
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < PATIENCE, "{what} did not come");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A script that writes the time to a file every few milliseconds.
pub(crate) fn beating(file: &str) -> String {
    format!("while :; do date +%s%N >> {file}; sleep 0.01; done")
}

/// The nanoseconds of a file of times.
pub(crate) fn times(text: &str) -> Vec<u64> {
    // The last line may be half written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| line.parse().unwrap()).collect()
}

/// Whether a process is there and could run.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// A service that answers every request with 200.
fn yes_sayer() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    // One read is one request here: they are small, and sent at once.
    while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}
