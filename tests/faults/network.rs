//! A network of our own, where packets can be lost: the harness and all that it starts live in a network namespace
//! with nothing but a loopback device, and `tc` sends what is to be lost into a hole.
//!
//! Lost packets are another fault than a relay that swallows: TCP sends them again, so what was said during the
//! fault arrives after it. Without the rights for it the harness does without, and says so.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Set in the process that lives in its own network.
const MARK: &str = "HIGHGATE_FAULTS_NETWORK";
/// Where packets go that are lost. A dummy device would do; a pair of these is what small kernels have.
const HOLE: &str = "hole";

/// Which packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Both,
    /// Those to these ports.
    Requests,
    /// Those from these ports.
    Answers,
}

pub(crate) struct Network {
    /// The places of the filters that are set. There are 65,535.
    places: BTreeSet<u16>,
}

/// Packets that are being lost.
pub(crate) struct Loss {
    places: Vec<u16>,
}

/// Starts this program once more in a network of its own, if that is possible, and does not return then.
pub(crate) fn move_out() {
    if std::env::var_os(MARK).is_some() || !succeeds(&["unshare", "--net", "true"]) {
        return;
    }
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut command = Command::new("unshare");
    let error =
        command.arg("--net").arg("--").arg(program).args(std::env::args_os().skip(1)).env(MARK, "1").exec();
    eprintln!("no network of our own: {error}");
}

impl Network {
    /// Sets the own network up; why not, if there is none.
    pub(crate) fn set_up() -> Result<Self, String> {
        if std::env::var_os(MARK).is_none() {
            return Err("`unshare --net` is not permitted here".to_owned());
        }
        for step in [
            &["ip", "link", "set", "lo", "up"][..],
            &["ip", "link", "add", HOLE, "type", "veth", "peer", "name", "bottom"],
            &["ip", "link", "set", HOLE, "up"],
            &["ip", "link", "set", "bottom", "up"],
            &["tc", "qdisc", "add", "dev", "lo", "clsact"],
        ] {
            if !succeeds(step) {
                return Err(format!("`{}` failed", step.join(" ")));
            }
        }
        let mut network = Self { places: BTreeSet::new() };
        // Nobody listens there; it shows whether this kernel can do it.
        let probe = network.lose(&[1], Way::Both).ok_or("this kernel's tc cannot redirect packets")?;
        network.restore(probe);
        Ok(network)
    }

    /// From now on packets to or from these ports are lost. None if that could not be done.
    pub(crate) fn lose(&mut self, ports: &[u16], way: Way) -> Option<Loss> {
        let sides: &[&str] = match way {
            Way::Both => &["dport", "sport"],
            Way::Requests => &["dport"],
            Way::Answers => &["sport"],
        };
        let matching = |port: u16| sides.iter().map(move |side| format!("match ip {side} {port} 0xffff"));
        self.lose_matching(&ports.iter().copied().flat_map(matching).collect::<Vec<_>>())
    }

    fn lose_matching(&mut self, matches: &[String]) -> Option<Loss> {
        let mut loss = Loss { places: Vec::new() };
        for what in matches {
            let place = (1..u16::MAX).find(|place| !self.places.contains(place))?;
            if !succeeds(&add(place, what).split(' ').collect::<Vec<_>>()) {
                self.restore(loss);
                return None;
            }
            self.places.insert(place);
            loss.places.push(place);
        }
        Some(loss)
    }

    /// From now on a server and its peers hear nothing of each other, while the peers go on among themselves: what is
    /// lost are the packets of its own port and of the connections that it has made, and all attempts to make new
    /// ones. None if that could not be done.
    pub(crate) fn isolate(&mut self, process: u32, own: u16, peers: &[u16]) -> Option<Loss> {
        let syn = |port: &u16| format!("match ip dport {port} 0xffff match u8 0x02 0x12 at 33");
        let mut matches: Vec<String> = peers.iter().map(syn).collect();
        let both = |port: u16| ["dport", "sport"].map(|side| format!("match ip {side} {port} 0xffff"));
        matches.extend(both(own));
        let mut loss = self.lose_matching(&matches)?;
        // After new ones have become impossible.
        let made: Vec<_> = connections_to(process, peers).into_iter().flat_map(both).collect();
        match self.lose_matching(&made) {
            Some(more) => loss.places.extend(more.places),
            None => {
                self.restore(loss);
                return None;
            }
        }
        Some(loss)
    }

    /// Nothing is lost any more, whatever was to be.
    pub(crate) fn restore_all(&mut self) {
        let places = self.places.iter().copied().collect();
        self.restore(Loss { places });
    }

    pub(crate) fn restore(&mut self, loss: Loss) {
        for place in loss.places {
            let number = place.to_string();
            assert!(succeeds(&["tc", "filter", "del", "dev", "lo", "egress", "pref", &number]), "{number}");
            self.places.remove(&place);
        }
    }
}

fn add(place: u16, what: &str) -> String {
    format!(
        "tc filter add dev lo egress protocol ip pref {place} u32 match ip protocol 6 0xff {what} action mirred egress \
         redirect dev {HOLE}"
    )
}

/// The local ports of a process's connections to these ports.
fn connections_to(process: u32, ports: &[u16]) -> Vec<u16> {
    let folder = std::path::PathBuf::from(format!("/proc/{process}"));
    let links = std::fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let sockets: BTreeSet<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let table = std::fs::read_to_string(folder.join("net/tcp")).unwrap_or_default();
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    let made = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (here, there, inode) = (port(words.get(1)?)?, port(words.get(2)?)?, words.get(9)?);
        (ports.contains(&there) && sockets.contains(&format!("socket:[{inode}]"))).then_some(here)
    };
    table.lines().skip(1).filter_map(made).collect()
}

fn succeeds(words: &[&str]) -> bool {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
