//! The writers as the harness sees them: processes that can be stopped, killed and replaced, and what all of them
//! have said.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::job;
use crate::support::writer::Outcome;
use crate::words::{Order, Place, Post, Said, Wrote};

/// How long a writer may take to resign and end.
const FAREWELL: Duration = Duration::from_secs(10);

pub(crate) struct Crew {
    members: Vec<Member>,
    heard: Arc<Mutex<Heard>>,
    doors: Arc<Doors>,
    /// What they say beside the protocol.
    errors: File,
}

/// Where orders go in: shared with whoever watches the gateways.
#[derive(Default)]
pub(crate) struct Doors {
    inputs: Mutex<Vec<Option<ChildStdin>>>,
}

struct Member {
    post: Post,
    /// How often it was started.
    starts: usize,
    process: Option<(Child, JoinHandle<()>)>,
}

/// All that was said so far.
#[derive(Clone, Default)]
pub(crate) struct Heard {
    pub(crate) told: HashMap<String, Outcome>,
    /// With the resource that was written to.
    pub(crate) wrote: Vec<(String, Wrote)>,
    pub(crate) terms: Vec<Term>,
}

/// A leadership, as its leader tells of it.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) resource: String,
    pub(crate) writer: String,
    pub(crate) token: u64,
    pub(crate) won: u64,
    /// None of one that was killed, or leads still.
    pub(crate) over: Option<(u64, String)>,
}

impl Crew {
    pub(crate) fn start(posts: Vec<Post>, errors: File) -> Self {
        let inputs = Mutex::new(posts.iter().map(|_| None).collect());
        let member = |post| Member { post, starts: 0, process: None };
        let members = posts.into_iter().map(member).collect();
        let doors = Arc::new(Doors { inputs });
        let mut crew = Self { members, heard: Arc::default(), doors, errors };
        (0..crew.members.len()).for_each(|number| crew.start_one(number));
        crew
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn name(&self, number: usize) -> &str {
        &self.members[number].post.name
    }

    pub(crate) fn doors(&self) -> Arc<Doors> {
        self.doors.clone()
    }

    pub(crate) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one, under a name of its own even if it is not the first in its place.
    pub(crate) fn start_one(&mut self, number: usize) {
        let member = &mut self.members[number];
        let name = format!("{}.{}", member.post.name, member.starts);
        let post = Post { name, ..member.post.clone() };
        let mut command = Command::new(std::env::current_exe().expect("a program knows where it is"));
        command.arg(job::ROLE).arg(serde_json::to_string(&post).expect("plain data"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(self.errors.try_clone().expect("a file of ours"));
        let mut child = command.spawn().expect("it runs already");
        let output = child.stdout.take().expect("a pipe was asked for");
        self.doors.inputs()[number] = child.stdin.take();
        let heard = self.heard.clone();
        member.process = Some((child, thread::spawn(move || listen(output, &post, &heard))));
        member.starts += 1;
    }

    /// `kill -9`, and waits until all that it has said is heard.
    pub(crate) fn kill(&mut self, number: usize) {
        let (mut child, listener) = self.members[number].process.take().expect("a writer that runs");
        child.kill().expect("a child of ours");
        child.wait().expect("a child of ours");
        listener.join().expect("no listener panics");
    }

    pub(crate) fn signal(&self, number: usize, signal: Signal) {
        let (child, _) = self.members[number].process.as_ref().expect("a writer that runs");
        kill_process(Pid::from_child(child), signal).expect("a child that was not waited for");
    }

    /// Lets all of them resign and end. Returns who did not end by itself.
    pub(crate) fn end(mut self) -> (Heard, Vec<String>) {
        self.doors.tell(&Order::End);
        let deadline = Instant::now() + FAREWELL;
        let mut stuck = Vec::new();
        for number in 0..self.members.len() {
            let Some((mut child, listener)) = self.members[number].process.take() else { continue };
            while child.try_wait().expect("a child of ours").is_none() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            if child.try_wait().expect("a child of ours").is_none() {
                stuck.push(self.members[number].post.name.clone());
                child.kill().expect("a child of ours");
                child.wait().expect("a child of ours");
            }
            listener.join().expect("no listener panics");
        }
        let heard = self.heard().clone();
        (heard, stuck)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for (child, _) in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            // Either fails only for a process that has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Doors {
    fn inputs(&self) -> MutexGuard<'_, Vec<Option<ChildStdin>>> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever leads resigns at once.
    pub(crate) fn resign(&self) {
        self.tell(&Order::Resign);
    }

    /// Nobody campaigns until they are to connect anew.
    pub(crate) fn rest(&self) {
        self.tell(&Order::Rest);
    }

    /// Everybody campaigns anew, as after an etcd that has lost what it had.
    pub(crate) fn reconnect(&self) {
        self.tell(&Order::Reconnect);
    }

    pub(crate) fn are(&self, places: Vec<Place>) {
        self.tell(&Order::Doors(places));
    }

    fn tell(&self, order: &Order) {
        let line = serde_json::to_string(order).expect("plain data") + "\n";
        for input in self.inputs().iter_mut().flatten() {
            // One that was killed does not listen, and that is its fate.
            let _: io::Result<()> = input.write_all(line.as_bytes());
        }
    }
}

/// To the end of what one process says. A last line that was cut off by its death is not heard.
fn listen(output: ChildStdout, post: &Post, heard: &Mutex<Heard>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let Ok(said) = serde_json::from_str(&line) else { continue };
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        match said {
            Said::Won { token, at } => {
                let (resource, writer) = (post.resource.clone(), post.name.clone());
                heard.terms.push(Term { resource, writer, token, won: at, over: None });
            }
            Said::Over { token, at, how } => {
                let same = |term: &&mut Term| term.token == token && term.writer == post.name;
                if let Some(term) = heard.terms.iter_mut().rev().find(same) {
                    term.over = Some((at, how));
                }
            }
            Said::Wrote(wrote) => {
                heard.told.insert(wrote.id.clone(), wrote.outcome.clone());
                heard.wrote.push((post.resource.clone(), wrote));
            }
        }
    }
}
