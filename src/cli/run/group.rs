//! The command's process group: signalling all of it, and knowing when all of it is dead.
//!
//! `run` and its guardian share this. What must stay true: a group is signalled only while its number cannot
//! have been given to another. `run` makes sure of that by not collecting the command's own process before it
//! has dismissed the guardian, and the guardian, once `run` is gone, by looking far more often than numbers
//! can come round.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How often to look whether a group that was told to end has done so.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(Pid);

impl Group {
    /// The group that this process leads.
    pub(super) fn led_by(leader: Pid) -> Self {
        Self(leader)
    }

    /// Of a group that is gone already: fine.
    pub(super) fn signal(self, signal: Signal) -> io::Result<()> {
        match kill_process_group(self.0, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether certainly no process of it can run any more.
    pub(super) fn is_dead(self) -> bool {
        // A process that begins another and ends can be missed when all are looked at one after the other. A
        // killed group begins no more processes, so the second look misses nobody.
        !self.is_alive() && self.signal(Signal::KILL).is_ok() && !self.is_alive()
    }

    /// Whether any process of it is seen that can still run. Who has ended but was not collected cannot.
    fn is_alive(self) -> bool {
        if test_kill_process_group(self.0) == Err(Errno::SRCH) {
            return false;
        }
        // Without a readable /proc nobody knows, and that has to count as alive.
        self.has_living_member(Path::new("/proc")).unwrap_or(true)
    }

    fn has_living_member(self, proc: &Path) -> io::Result<bool> {
        for entry in fs::read_dir(proc)? {
            let folder = entry?.path();
            // Not every entry is a process, and a process may end while it is looked at.
            let Ok(stat) = fs::read(folder.join("stat")) else { continue };
            if parse_stat(&stat).is_some_and(|(state, group)| group == self.0 && lives(state, &folder)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A process counts as dead when all its threads are: the first thread alone ends as a zombie, too.
fn lives(state: u8, folder: &Path) -> bool {
    let is_dead = matches!(state, b'Z' | b'X');
    !is_dead || fs::read_dir(folder.join("task")).is_ok_and(|threads| threads.count() > 1)
}

/// The state and the group out of a process's `stat`. Its second field is a name that may contain anything.
fn parse_stat(stat: &[u8]) -> Option<(u8, Pid)> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat[name_end + 1..].split(|byte| *byte == b' ').skip(1);
    let state = *fields.next()?.first()?;
    let group = std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
    Some((state, Pid::from_raw(group)?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::Instant;

    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_its_name() {
        let line = b"4711 (a ) Z 1 2 (x) S 1 4700 4700 0 -1 4194304 ...";
        assert_eq!(parse_stat(line), Some((b'S', Pid::from_raw(4700).unwrap())));
        assert_eq!(parse_stat(b"1 (kthreadd) S 0 0 0"), None, "no group is number 0");
        for broken in ["", "1 (x)", "1 (x) S", "1 (x) S 1", "1 (x) S 1 y"] {
            assert_eq!(parse_stat(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn a_group_lives_as_long_as_any_of_its_processes() {
        let mut leader =
            Command::new("sh").args(["-c", "sleep 60 & exit 0"]).process_group(0).spawn().unwrap();
        let pid = Pid::from_child(&leader);
        // The leader ends, and is not collected.
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let group = Group::led_by(pid);
        assert!(!group.is_dead());
        assert!(!group.is_dead(), "looking kills nobody");
        group.signal(Signal::KILL).unwrap();
        let started = Instant::now();
        while !group.is_dead() {
            assert!(started.elapsed() < Duration::from_secs(5));
            std::thread::sleep(LOOK_EVERY);
        }
        leader.wait().unwrap();
        assert!(group.is_dead());
        group.signal(Signal::KILL).unwrap();
    }
}
