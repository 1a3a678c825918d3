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
        let mut loss = Loss { places: Vec::new() };
        let sides: &[&str] = match way {
            Way::Both => &["dport", "sport"],
            Way::Requests => &["dport"],
            Way::Answers => &["sport"],
        };
        for port in ports {
            for side in sides {
                let place = (1..u16::MAX).find(|place| !self.places.contains(place))?;
                if !succeeds(&add(place, side, *port).split(' ').collect::<Vec<_>>()) {
                    self.restore(loss);
                    return None;
                }
                self.places.insert(place);
                loss.places.push(place);
            }
        }
        Some(loss)
    }

    pub(crate) fn restore(&mut self, loss: Loss) {
        for place in loss.places {
            let number = place.to_string();
            assert!(succeeds(&["tc", "filter", "del", "dev", "lo", "egress", "pref", &number]), "{number}");
            self.places.remove(&place);
        }
    }
}

fn add(place: u16, side: &str, port: u16) -> String {
    format!(
        "tc filter add dev lo egress protocol ip pref {place} u32 match ip protocol 6 0xff \
         match ip {side} {port} 0xffff action mirred egress redirect dev {HOLE}"
    )
}

fn succeeds(words: &[&str]) -> bool {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
