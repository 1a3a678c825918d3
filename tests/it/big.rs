//! Large bodies stream through the real program, and its memory stays flat.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::support::{Highgate, get, highgate, origin, post, reply};

const MOST_GROWTH: u64 = 64 << 20;

const SIZE: u64 = 2 << 30;

/// Watches a program's memory until told to stop.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    most: Arc<AtomicU64>,
    before: u64,
}

impl Watch {
    fn begin(gate: &Arc<Highgate>) -> Self {
        let (stop, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let before = gate.resident();
        let (watched, stopped, peak) = (gate.clone(), stop.clone(), most.clone());
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                peak.fetch_max(watched.resident(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
        });
        Self { stop, thread, most, before }
    }

    fn growth(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a watcher of a program that runs");
        self.most.load(Ordering::Relaxed).saturating_sub(self.before)
    }
}

#[test]
fn a_large_upload_and_download_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let origin = origin()
        .answering(|request| match request.method() {
            "GET" => reply(200).streaming(SIZE),
            _ => reply(200),
        })
        .start();
    let gate = Arc::new(highgate().upstream(origin.address).data(folder.path()).start());
    gate.ask(&post("/").token(7)).is_ok();

    let watch = Watch::begin(&gate);
    let mut client = gate.connect();
    client.send(post("/").token(7).chunked().head());
    let block = vec![b'x'; 1 << 20];
    for _ in 0..SIZE >> 20 {
        client.send_chunk(&block);
    }
    client.send("0\r\n\r\n");
    client.response().is_ok();
    assert_eq!(origin.seen().requests[1].received, SIZE);
    let growth = watch.growth();
    assert!(growth < MOST_GROWTH, "{growth} bytes more for an upload");

    let watch = Watch::begin(&gate);
    client.send(get("/").bytes());
    assert_eq!(client.response_head().length(), usize::try_from(SIZE).ok());
    client.discard(usize::try_from(SIZE).expect("a size of this machine"));
    let growth = watch.growth();
    assert!(growth < MOST_GROWTH, "{growth} bytes more for a download");
}
