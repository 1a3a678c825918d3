//! The processes of a command: everything that descends from it, in whatever group or session.
//!
//! `run`, its guardian and the command's keeper each look below themselves. Each is a child subreaper, so that an
//! orphan of the command becomes the child of the nearest of the three that lives, and none can leave by `setsid` or
//! by being disowned. What must stay true: whoever is counted as dead is dead, and a signal reaches no process that
//! is not below this one.

mod table;

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, pidfd_open,
    pidfd_send_signal, set_child_subreaper, wait,
};

pub(super) use table::{Identity, Process};

/// How often to look whether a command that was told to end has done so.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long after the command was killed its keeper may still be there before it is killed as well.
pub(super) const KEEPER_TIME: Duration = Duration::from_secs(1);

/// All that descends from this process, without its helpers and without what was there before.
pub(super) struct Family {
    root: Pid,
    /// Guardian and keeper: they are not the command's, but what is below them is.
    helpers: Vec<Identity>,
    /// Children that this program had when it was started, which are nobody's business here.
    strangers: Vec<Identity>,
}

impl Family {
    /// Makes this process the one to which its descendants' orphans come.
    pub(super) fn gather() -> io::Result<Self> {
        let root = getpid();
        set_child_subreaper(Some(root))?;
        let children = table::read()?.into_iter().filter(|process| process.parent == root);
        let strangers = children.map(|process| process.identity).collect();
        Ok(Self { root, helpers: Vec::new(), strangers })
    }

    /// Takes this process for a helper. It must not have been collected yet.
    pub(super) fn spare(&mut self, helper: Pid) {
        self.helpers.extend(Process::read(helper).map(|process| process.identity));
    }

    /// From now on, helpers are killed like everybody else.
    pub(super) fn spare_nobody(&mut self) {
        self.helpers.clear();
    }

    /// To every group of the command at once, so that nobody escapes by beginning another process meanwhile.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        let members = self.members()?;
        let own_group = Process::read(self.root).and_then(|own| own.group);
        // A process that has not left the helpers' group yet is signalled alone, and so is one whose group has no number here.
        let of_the_command = |group: &Pid| Some(*group) != own_group && !self.leads_helpers(*group);
        let (grouped, alone): (Vec<&Process>, Vec<&Process>) =
            members.iter().partition(|member| member.group.as_ref().is_some_and(of_the_command));
        let mut groups: Vec<_> = grouped.iter().filter_map(|member| member.group).collect();
        groups.sort_unstable_by_key(|group| group.as_raw_pid());
        groups.dedup();
        let grouped = groups.into_iter().map(|group| forgive(kill_process_group(group, signal)));
        let alone = alone.into_iter().map(|member| send(member, signal));
        grouped.chain(alone).fold(Ok(()), Result::and)
    }

    /// SIGKILL to everybody who is seen. Whoever was begun meanwhile is seen the next time: call it until all are dead.
    pub(super) fn kill(&self) -> io::Result<()> {
        self.members()?.iter().map(|member| send(member, Signal::KILL)).fold(Ok(()), Result::and)
    }

    /// Whether nobody is seen who can still run.
    pub(super) fn is_dead(&self) -> bool {
        // A process that begins another and ends can be missed by a look from one to the other, so there is a
        // second one. Without a readable /proc nobody knows, and that has to count as alive.
        let is_empty = || self.members().is_ok_and(|members| members.is_empty());
        is_empty() && is_empty()
    }

    fn members(&self) -> io::Result<Vec<Process>> {
        let mut children: HashMap<Pid, Vec<Process>> = HashMap::new();
        for process in table::read()? {
            children.entry(process.parent).or_default().push(process);
        }
        let (mut members, mut parents) = (Vec::new(), vec![self.root]);
        while let Some(parent) = parents.pop() {
            for process in children.remove(&parent).unwrap_or_default() {
                if self.strangers.contains(&process.identity) {
                    continue;
                }
                parents.push(process.identity.pid);
                if process.lives && !self.helpers.contains(&process.identity) {
                    members.push(process);
                }
            }
        }
        Ok(members)
    }

    fn leads_helpers(&self, group: Pid) -> bool {
        self.helpers.iter().any(|helper| helper.pid == group)
    }
}

/// Collects who has ended among the children of this process, orphans included. True if none is left: then nothing
/// of what it began can run any more, and that is the kernel's word.
pub(super) fn collect(mut ended: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) => return false,
            Err(Errno::INTR) => {}
            // The only other one that there is: no child.
            Err(_) => return true,
        }
    }
}

/// Signals exactly the process that was looked at, and not another that has got its number since.
fn send(process: &Process, signal: Signal) -> io::Result<()> {
    let pid = process.identity.pid;
    let opened = pidfd_open(pid, PidfdFlags::empty());
    let Ok(handle) = opened else { return forgive(opened.map(drop)) };
    match Process::read(pid) {
        Some(now) if now.identity == process.identity => forgive(pidfd_send_signal(handle, signal)),
        _ => Ok(()),
    }
}

/// Of a process or group that is gone already: fine.
fn forgive(sent: rustix::io::Result<()>) -> io::Result<()> {
    match sent {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
