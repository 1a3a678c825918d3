//! The journal on disk: a folder of numbered files, of which only the last is written to.
//!
//! Nothing is written, and no file is made, before the first line: whoever opens the journal of a store that another
//! process has must not touch it. What must stay true: the files together, with the one that `sieve.rs` writes to make
//! room, are never larger than the limit, and the lines of a resource stay in the order in which they were written.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::clock;
use super::entry::Entry;
use super::limits::Limits;
use super::shares::Shares;

const EXTENSION: &str = "log";
/// After so long the clock is written down again.
const CLOCK_EVERY: Duration = Duration::from_secs(3600);
/// More than is ever written beside a line: the clock, and the end of a torn line.
const BESIDE: u64 = 64;

/// Whether a line is the beginning of a term that has not ended.
pub(super) type Lasts<'a> = dyn Fn(&str) -> bool + 'a;

pub(super) struct Files {
    pub(super) folder: PathBuf,
    pub(super) limits: Limits,
    pub(super) shares: Shares,
    /// All but the one that is written to, the oldest first.
    pub(super) old: VecDeque<Part>,
    /// The one that is written to, as far as it is known.
    last: Option<Part>,
    /// The same, open for writing.
    open: Option<File>,
    /// The number of the next file.
    pub(super) next: u64,
    /// Written to and left since the last flush.
    unflushed: Vec<File>,
    /// Files were made since the last flush, so the folder has to be flushed, too.
    pub(super) folder_changed: bool,
    /// A write failed, so the end of the last file may be half a line.
    torn: bool,
    /// Where the clock stood when it was last written down.
    clock_noted: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) number: u64,
    pub(super) size: u64,
    /// Where the journal's clock stood when it was begun.
    pub(super) begun: Duration,
}

/// What a flush has to do, apart from the lock on [`Files`].
pub(super) struct Flush {
    files: Vec<File>,
    folder: Option<PathBuf>,
}

impl Files {
    /// Of a folder with these files, which need not exist.
    pub(super) fn new(folder: &Path, limits: Limits, parts: Vec<Part>, shares: Shares) -> Self {
        let mut old: VecDeque<Part> = parts.into();
        let last = old.pop_back();
        Self {
            folder: folder.to_owned(),
            limits,
            shares,
            old,
            next: last.map_or(1, |part| part.number + 1),
            last,
            open: None,
            unflushed: Vec::new(),
            folder_changed: false,
            torn: false,
            clock_noted: Duration::ZERO,
        }
    }

    /// Writes a line at the end. It is with the kernel when this returns, and on disk after a flush.
    pub(super) fn append(&mut self, line: &str, now: Duration, lasts: &Lasts<'_>) -> io::Result<()> {
        let written = self.write(line, now, lasts);
        if written.is_err() {
            // The file may be half written, or not be there any more: it is opened anew for the next line.
            self.torn = true;
            self.open = None;
        }
        let number = written?;
        if let Some(name) = Entry::subject(line) {
            self.shares.add(self.shares.key(name), number, line.len() as u64);
        }
        Ok(())
    }

    /// The number of the file in which it is.
    fn write(&mut self, line: &str, now: Duration, lasts: &Lasts<'_>) -> io::Result<u64> {
        let full = |part: &Part| {
            part.size + line.len() as u64 + BESIDE > self.limits.part_size()
                || now.saturating_sub(part.begun) > self.limits.part_span()
        };
        match self.last {
            Some(part) if full(&part) => self.begin(now, lasts)?,
            Some(_) if self.open.is_some() => {}
            Some(part) => self.reopen(part)?,
            None => self.begin(now, lasts)?,
        }
        if std::mem::take(&mut self.torn) {
            self.put("\n")?;
        }
        if now.saturating_sub(self.clock_noted) >= CLOCK_EVERY {
            self.note_clock(now)?;
        }
        self.put(line)
    }

    fn put(&mut self, bytes: &str) -> io::Result<u64> {
        let (Some(part), Some(file)) = (&mut self.last, &mut self.open) else {
            return Err(io::Error::other("the journal has no file to write to"));
        };
        file.write_all(bytes.as_bytes())?;
        part.size += bytes.len() as u64;
        Ok(part.number)
    }

    /// Writes down where the clock stands, if this process has a file to write to: otherwise nothing has begun to age.
    pub(super) fn note_clock(&mut self, now: Duration) -> io::Result<()> {
        if self.open.is_some() && !self.torn && now > self.clock_noted {
            self.put(&clock::line(now))?;
            self.clock_noted = now;
        }
        Ok(())
    }

    /// A new file, once there is room for it.
    fn begin(&mut self, now: Duration, lasts: &Lasts<'_>) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        self.leave_last();
        self.remove_old(now, lasts)?;
        self.make_room(lasts)?;
        let number = self.next;
        let file = OpenOptions::new().append(true).create(true).open(path(&self.folder, number))?;
        let size = file.metadata()?.len();
        self.next += 1;
        self.open = Some(file);
        self.last = Some(Part { number, size, begun: now });
        self.folder_changed = true;
        self.torn = false;
        self.put(&clock::line(now))?;
        self.clock_noted = now;
        Ok(())
    }

    /// The last file is written to no more.
    pub(super) fn leave_last(&mut self) {
        self.unflushed.extend(self.open.take());
        self.old.extend(self.last.take());
    }

    /// The last file of the process before.
    fn reopen(&mut self, part: Part) -> io::Result<()> {
        let path = path(&self.folder, part.number);
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let size = file.metadata()?.len();
        let mut end = [b'\n'];
        if size > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut end)?;
        }
        self.torn |= end != [b'\n'];
        self.last = Some(Part { size, ..part });
        self.open = Some(file);
        Ok(())
    }

    pub(super) fn last(&self) -> Option<Part> {
        self.last
    }

    pub(super) fn size(&self) -> u64 {
        self.old.iter().chain(&self.last).map(|part| part.size).sum()
    }

    /// What has to be flushed for everything so far to be on disk.
    pub(super) fn flush(&mut self) -> io::Result<Flush> {
        let mut files = std::mem::take(&mut self.unflushed);
        if let Some(open) = &self.open {
            files.push(open.try_clone()?);
        }
        let folder = std::mem::take(&mut self.folder_changed).then(|| self.folder.clone());
        Ok(Flush { files, folder })
    }
}

impl Flush {
    /// May take long: not under a lock.
    pub(super) fn run(self) -> io::Result<()> {
        for file in self.files {
            file.sync_data()?;
        }
        match self.folder {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

/// Calls `take` with every line of the journal, the oldest first. False if a file went meanwhile: what it had may be in
/// one that was read before, so whoever needs everything reads again.
pub(super) fn read(folder: &Path, mut take: impl FnMut(u64, &str)) -> io::Result<bool> {
    let mut whole = true;
    for (number, _) in listing(folder)? {
        match fs::read(path(folder, number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => whole = false,
            bytes => lines(&bytes?).for_each(|line| take(number, line)),
        }
    }
    Ok(whole)
}

/// Zeros and the like after a power failure are nobody's line.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok())
}

/// Number and size of all files of the journal, by number. None of a folder that is not there.
pub(super) fn listing(folder: &Path) -> io::Result<Vec<(u64, u64)>> {
    let listing = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing?,
    };
    let mut files = Vec::new();
    for file in listing {
        let file = file?;
        let name = file.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)?.strip_suffix('.'));
        if let Some(number) = stem.and_then(|stem| stem.parse().ok()) {
            match file.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                metadata => files.push((number, metadata?.len())),
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

pub(super) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:012}.{EXTENSION}"))
}
