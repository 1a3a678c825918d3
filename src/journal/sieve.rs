//! Making room: lines that are too old, or that a resource has beyond its even share, are taken out of the files.
//!
//! A file is read, written again without them and put in its place; what is left of a few small files becomes one. That is
//! flushed before anything is removed, and a crash in between leaves lines twice, which is the same history. It costs one
//! file's worth of reading and writing for every file's worth of new lines. A term that lasts stays, however old it is.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::time::Duration;

use super::clock;
use super::entry::Entry;
use super::files::{Files, Lasts, Part, lines, path};
use super::shares::Key;

/// What is written before it takes its place. One that a crash left is overwritten by the next.
const UNFINISHED: &str = "sieved.tmp";

/// What goes.
#[derive(Clone, Copy)]
enum Rule {
    /// Everything: it is too old.
    Age,
    /// The oldest lines of a resource that takes more than this.
    Share(u64),
}

/// What became of the lines of one resource in one file.
#[derive(Default)]
struct Fate {
    dropped: u64,
    stays: bool,
}

struct Sieved {
    text: String,
    fates: HashMap<Key, Fate>,
}

impl Files {
    /// Takes out what is too old by the journal's own clock.
    pub(super) fn remove_old(&mut self, now: Duration, lasts: &Lasts<'_>) -> io::Result<()> {
        let keep = self.limits.keep;
        let is_over = |end: Duration| now.saturating_sub(end) > keep;
        if self.last().is_some_and(|last| is_over(last.begun + self.limits.part_span())) {
            self.leave_last();
        }
        let mut index = 0;
        while let Some(part) = self.old.get(index).copied() {
            // Its last line is no younger than the file after it, and it was not written to for longer than its span.
            let after = self.old.get(index + 1).copied().or(self.last());
            if !is_over(after.map_or(part.begun + self.limits.part_span(), |after| after.begun)) {
                break;
            }
            if self.sieve(index, Rule::Age, lasts)? {
                index += 1;
            }
        }
        Ok(())
    }

    /// Takes out what resources have beyond their even share, from the oldest on, until there is room for a new file.
    pub(super) fn make_room(&mut self, lasts: &Lasts<'_>) -> io::Result<()> {
        let room = self.limits.room_for_old();
        if self.size() <= room {
            return Ok(());
        }
        let share = self.shares.even_share(self.limits.room_to_share());
        let first = self.shares.first_above(share).unwrap_or(self.next);
        let mut index = self.old.partition_point(|part| part.number < first);
        while self.size() > room && index < self.old.len() {
            if self.sieve(index, Rule::Share(share), lasts)? {
                index += 1;
            }
        }
        // Of nothing but terms that last, or of lines that nobody can read: then the oldest go, whatever they are.
        while self.size() > room && !self.old.is_empty() {
            self.drop_oldest()?;
        }
        Ok(())
    }

    /// Writes a file again without what has to go. Whether it is still a file of its own.
    fn sieve(&mut self, index: usize, rule: Rule, lasts: &Lasts<'_>) -> io::Result<bool> {
        let Some(part) = self.old.get(index).copied() else { return Ok(true) };
        let bytes = self.read_part(part)?;
        let Sieved { text, fates } = self.pick(&bytes, rule, lasts);
        if fates.values().all(|fate| fate.dropped == 0) && !text.is_empty() {
            return Ok(true);
        }
        let before = index.checked_sub(1).and_then(|before| self.old.get(before).copied());
        let home = match before.filter(|before| self.fit(*before, part, index, &text, rule)) {
            _ if text.is_empty() => None,
            Some(before) => {
                self.put_in_place(before, &joined(self.read_part(before)?, &text))?;
                Some(before.number)
            }
            None => {
                self.put_in_place(part, [clock::line(part.begun), text].concat().as_bytes())?;
                Some(part.number)
            }
        };
        let stays = home == Some(part.number);
        if !stays {
            self.remove(index)?;
        }
        self.account(part, home, &fates);
        Ok(stays)
    }

    /// What stays of a file, and what that means for each resource.
    fn pick(&self, bytes: &[u8], rule: Rule, lasts: &Lasts<'_>) -> Sieved {
        let mut sieved = Sieved { text: String::new(), fates: HashMap::new() };
        for line in lines(bytes) {
            let Some(name) = Entry::subject(line) else { continue };
            let key = self.shares.key(name);
            let fate = sieved.fates.entry(key).or_default();
            let goes = match rule {
                Rule::Age => true,
                Rule::Share(share) => self.shares.bytes(key).saturating_sub(fate.dropped) > share,
            };
            if goes && !lasts(line) {
                fate.dropped += line.len() as u64 + 1;
            } else {
                fate.stays = true;
                sieved.text.push_str(line);
                sieved.text.push('\n');
            }
        }
        sieved
    }

    /// Whether what is left of a file can go into the one before it: files must neither become too large nor span too much
    /// time, because they go by their age as a whole.
    fn fit(&self, before: Part, part: Part, index: usize, text: &str, rule: Rule) -> bool {
        let after = self.old.get(index + 1).copied().or(self.last());
        let end = after.map_or(part.begun, |after| after.begun);
        let in_time = end.saturating_sub(before.begun) <= self.limits.part_span();
        before.size + text.len() as u64 <= self.limits.part_size() && (in_time || matches!(rule, Rule::Age))
    }

    fn account(&mut self, part: Part, home: Option<u64>, fates: &HashMap<Key, Fate>) {
        let after = self.old.iter().map(|old| old.number).find(|number| *number > part.number);
        let after = after.or(self.last().map(|last| last.number)).unwrap_or(self.next);
        for (key, fate) in fates {
            let first = if fate.stays { home.unwrap_or(after) } else { after };
            self.shares.shift(*key, part.number, first);
            self.shares.lower(*key, fate.dropped);
        }
    }

    fn drop_oldest(&mut self) -> io::Result<()> {
        let Some(part) = self.old.front().copied() else { return Ok(()) };
        let bytes = self.read_part(part)?;
        let Sieved { fates, .. } = self.pick(&bytes, Rule::Age, &|_| false);
        self.remove(0)?;
        self.account(part, None, &fates);
        Ok(())
    }

    /// A file that somebody has removed is empty.
    fn read_part(&self, part: Part) -> io::Result<Vec<u8>> {
        match fs::read(path(&self.folder, part.number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(io::Error::new(error.kind(), format!("file {}: {error}", part.number))),
            bytes => bytes,
        }
    }

    fn put_in_place(&mut self, part: Part, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.folder.join(UNFINISHED);
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&unfinished, path(&self.folder, part.number))?;
        self.folder_changed = true;
        if let Some(known) = self.old.iter_mut().find(|known| known.number == part.number) {
            known.size = bytes.len() as u64;
        }
        Ok(())
    }

    fn remove(&mut self, index: usize) -> io::Result<()> {
        let Some(part) = self.old.get(index).copied() else { return Ok(()) };
        match fs::remove_file(path(&self.folder, part.number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.old.remove(index);
        Ok(())
    }
}

/// Two files in one. The first may end in half a line, of a write that failed.
fn joined(mut bytes: Vec<u8>, text: &str) -> Vec<u8> {
    if bytes.last().is_some_and(|last| *last != b'\n') {
        bytes.push(b'\n');
    }
    bytes.extend(text.as_bytes());
    bytes
}
