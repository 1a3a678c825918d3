//! The table of processes, as `/proc` shows it.
//!
//! What must stay true: nobody is taken for a child of a process that ended while the table was read. A process
//! whose parent is not in the table is looked at again, because its parent has changed then.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::Pid;

/// A process and no other that has its number before or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: Pid,
    /// When it began, in the kernel's ticks.
    start: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) identity: Identity,
    pub(crate) parent: Pid,
    /// None if it was begun outside this namespace of processes, where its number means nothing.
    pub(crate) group: Option<Pid>,
    /// Who has ended but was not collected does not.
    pub(crate) lives: bool,
}

/// Everybody who has a parent that can be seen from here.
pub(super) fn read() -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        // Not every entry is a process, and a process may end while it is looked at.
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        processes.extend(pid.and_then(Process::read));
    }
    let known: HashSet<_> = processes.iter().map(|process| process.identity.pid).collect();
    for process in &mut processes {
        if !known.contains(&process.parent)
            && let Some(now) = Process::read(process.identity.pid)
        {
            *process = now;
        }
    }
    Ok(processes)
}

impl Process {
    pub(crate) fn read(pid: Pid) -> Option<Self> {
        let folder = Path::new("/proc").join(pid.as_raw_pid().to_string());
        let stat = Stat::parse(&fs::read(folder.join("stat")).ok()?)?;
        Some(Self {
            identity: Identity { pid, start: stat.start },
            parent: stat.parent,
            group: stat.group,
            lives: lives(stat.state, &folder),
        })
    }
}

/// A process counts as dead when all its threads are: the first thread alone ends as a zombie, too.
fn lives(state: u8, folder: &Path) -> bool {
    let is_dead = matches!(state, b'Z' | b'X');
    !is_dead || fs::read_dir(folder.join("task")).is_ok_and(|threads| threads.count() > 1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: Pid,
    group: Option<Pid>,
    start: u64,
}

impl Stat {
    /// The second field is a name that may contain anything.
    fn parse(stat: &[u8]) -> Option<Self> {
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let mut number = || fields.next()?.parse().ok();
        let (parent, group) = (Pid::from_raw(number()?)?, Pid::from_raw(number()?));
        // It is the 22nd field, and five are behind us.
        let start = fields.nth(16)?.parse().ok()?;
        Some(Self { state, parent, group, start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_its_name() {
        let line = b"4711 (a ) Z 1 2 (x) S 41 4700 4699 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 777 9 ...";
        let pid = |number| Pid::from_raw(number).unwrap();
        let expected = Stat { state: b'S', parent: pid(41), group: Some(pid(4700)), start: 777 };
        assert_eq!(Stat::parse(line), Some(expected));
        let foreign = b"7 (x) S 1 0 0 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 777 9 ...";
        assert_eq!(Stat::parse(foreign).map(|stat| stat.group), Some(None), "it counts all the same");
        assert_eq!(Stat::parse(b"2 (kthreadd) S 0 0 0 0 -1"), None, "no parent is number 0");
        for broken in ["", "1 (x)", "1 (x) S", "1 (x) S 1", "1 (x) S 1 y", "1 (x) S 1 1 1"] {
            assert_eq!(Stat::parse(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn a_process_is_known_by_its_number_and_its_beginning() {
        let own = Process::read(rustix::process::getpid()).unwrap();
        assert!(own.lives && own.identity.start > 0);
        assert_eq!(Some(own.parent), rustix::process::getppid());
        assert!(read().unwrap().iter().any(|process| process.identity == own.identity));
    }
}
