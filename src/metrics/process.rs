//! What the kernel knows of this process, under the names that every exporter uses: read from /proc at each scrape.

use std::fs;

use super::names;
use super::text::Text;

/// In which unit the kernel shows processor time to programs, whatever it counts in itself.
const TICKS_PER_SECOND: f64 = 100.0;

/// What cannot be read is left out.
pub(super) fn write(text: &mut Text) {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let stat = stat.as_deref().and_then(Stat::parse);
    text.number(names::PROCESS_CPU, stat.as_ref().map(|stat| stat.cpu_seconds));
    text.number(names::PROCESS_THREADS, stat.as_ref().map(|stat| stat.threads));
    text.number(names::PROCESS_VIRTUAL, stat.as_ref().map(|stat| stat.virtual_bytes));
    let boot = boot_time();
    text.number(names::PROCESS_START, stat.zip(boot).map(|(stat, boot)| boot + stat.started_after_boot));
    let status = fs::read_to_string("/proc/self/status").ok();
    text.number(names::PROCESS_RESIDENT, status.as_deref().and_then(resident_bytes));
    text.number(names::PROCESS_FDS, open_files());
    let limits = fs::read_to_string("/proc/self/limits").ok();
    text.number(names::PROCESS_MAX_FDS, limits.as_deref().and_then(most_files));
}

#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    threads: f64,
    started_after_boot: f64,
    virtual_bytes: f64,
}

impl Stat {
    fn parse(stat: &str) -> Option<Self> {
        // The name in front may hold spaces and parentheses; what follows its last one does not.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // The first of them is the third of proc(5).
        let number = |place: usize| fields.get(place - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (number(14)? + number(15)?) / TICKS_PER_SECOND,
            threads: number(20)?,
            started_after_boot: number(22)? / TICKS_PER_SECOND,
            virtual_bytes: number(23)?,
        })
    }
}

fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}

fn most_files(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Newer kernels say it as the size of the folder; else the folder has to be counted.
fn open_files() -> Option<f64> {
    let folder = "/proc/self/fd";
    let said = fs::metadata(folder).ok()?.len();
    let count = if said > 0 { said } else { fs::read_dir(folder).ok()?.count() as u64 };
    Some(super::lossy(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_whatever_the_process_is_called() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 900 0 0 0 150 50 0 0 20 0 9 0 4200 1048576 300 18446744073709551615";
        let expected =
            Stat { cpu_seconds: 2.0, threads: 9.0, started_after_boot: 42.0, virtual_bytes: 1_048_576.0 };
        assert_eq!(Stat::parse(stat), Some(expected));
        assert_eq!(resident_bytes("VmPeak:  9 kB\nVmRSS:\t  2048 kB\n"), Some(2_097_152.0));
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096  files\n";
        assert_eq!(most_files(limits), Some(1024.0));
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut text = Text::after(String::new());
        write(&mut text);
        let text = text.finish();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name} in {text}")).parse::<f64>().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!((1.0..=value("process_max_fds")).contains(&value("process_open_fds")));
        assert!(value("process_threads") >= 1.0 && value("process_cpu_seconds_total") >= 0.0);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let started = value("process_start_time_seconds");
        assert!((now - 86_400.0..now + 2.0).contains(&started), "{started}, and it is {now}");
    }
}
