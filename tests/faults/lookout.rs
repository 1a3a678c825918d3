//! Watches the gateways as a balancer does, and tells the writers where they are and which are ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::crew::Doors;
use crate::support::gateway::Door;
use crate::words::Place;

/// How often a gateway is probed.
const PROBES: Duration = Duration::from_millis(100);
/// How often the writers are told although nothing has changed: one may have been started meanwhile.
const REMINDERS: Duration = Duration::from_millis(250);

pub(crate) struct Lookout {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Lookout {
    pub(crate) fn start(gateways: Vec<Arc<Door>>, writers: Arc<Doors>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let probing = |door: &Arc<Door>| {
            let (stop, door) = (stop.clone(), door.clone());
            thread::spawn(move || probe(&stop, &door))
        };
        let mut threads: Vec<_> = gateways.iter().map(probing).collect();
        let telling = stop.clone();
        threads.push(thread::spawn(move || tell(&telling, &gateways, &writers)));
        Self { stop, threads }
    }

    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("no lookout panics"));
    }
}

fn probe(stop: &AtomicBool, door: &Door) {
    while !stop.load(Ordering::SeqCst) {
        door.is_ready.store(door.says_ready(), Ordering::SeqCst);
        thread::sleep(PROBES);
    }
}

fn tell(stop: &AtomicBool, gateways: &[Arc<Door>], writers: &Doors) {
    let (mut told, mut when) = (Vec::new(), Instant::now());
    while !stop.load(Ordering::SeqCst) {
        let place = |door: &Arc<Door>| Place {
            data: door.data(),
            admin: door.admin(),
            ready: door.is_ready.load(Ordering::SeqCst),
        };
        let places: Vec<_> = gateways.iter().map(place).collect();
        if places != told || when.elapsed() >= REMINDERS {
            writers.are(places.clone());
            (told, when) = (places, Instant::now());
        }
        thread::sleep(Duration::from_millis(10));
    }
}
