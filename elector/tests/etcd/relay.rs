//! A TCP relay in front of etcd that loses what it is told to lose.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

pub(crate) struct Relay {
    pub(crate) port: u16,
    faults: Arc<Faults>,
    /// Changes when all connections are to be cut.
    cut: watch::Sender<u64>,
}

#[derive(Default)]
struct Faults {
    /// Requests do not arrive.
    swallow_requests: AtomicBool,
    /// Requests arrive, answers do not.
    swallow_answers: AtomicBool,
    /// Connections that were made before this many losses carry nothing any more.
    losses: AtomicU64,
    /// Nobody gets through.
    closed: AtomicBool,
    /// Answers are late.
    ramp: Mutex<Option<Ramp>>,
}

/// A latency that grows from nothing.
#[derive(Clone, Copy)]
struct Ramp {
    began: Instant,
    /// How long it grows, and to how much.
    over: Duration,
    most: Duration,
}

impl Ramp {
    fn latency(self) -> Duration {
        let share = self.began.elapsed().as_secs_f64() / self.over.as_secs_f64();
        self.most.mul_f64(share.min(1.0))
    }
}

impl Relay {
    pub(crate) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::new(Faults::default());
        let (cut, cuts) = watch::channel(0);
        tokio::spawn(serve(listener, target, faults.clone(), cuts));
        Self { port, faults, cut }
    }

    pub(crate) fn swallow_answers(&self) {
        self.faults.swallow_answers.store(true, Ordering::SeqCst);
    }

    #[allow(dead_code, reason = "for the gateways' tests, which share this file")]
    pub(crate) fn swallow_requests(&self) {
        self.faults.swallow_requests.store(true, Ordering::SeqCst);
    }

    /// Connections stand and new ones are taken, but nothing gets through.
    #[allow(dead_code, reason = "for the gateways' tests, which share this file")]
    pub(crate) fn swallow_everything(&self) {
        self.swallow_requests();
        self.swallow_answers();
    }

    /// Connections stand, but nothing gets through any more on those that there are; new ones are fine.
    pub(crate) fn lose_connections(&self) {
        self.faults.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// Answers are later and later; after so long nothing gets through any more but those that are on their way.
    #[allow(dead_code, reason = "for the gateways' tests, which share this file")]
    pub(crate) fn falls_silent(&self, most: Duration, over: Duration) {
        let ramp = Ramp { began: Instant::now(), over, most };
        *self.faults.ramp.lock().unwrap() = Some(ramp);
        let faults = self.faults.clone();
        std::thread::spawn(move || {
            std::thread::sleep(over);
            // Unless it was healed meanwhile.
            if faults.ramp.lock().unwrap().is_some_and(|now| now.began == ramp.began) {
                faults.swallow_requests.store(true, Ordering::SeqCst);
                faults.swallow_answers.store(true, Ordering::SeqCst);
            }
        });
    }

    pub(crate) fn close(&self) {
        self.faults.closed.store(true, Ordering::SeqCst);
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Cuts what is there; new connections are fine.
    pub(crate) fn heal(&self) {
        self.faults.swallow_requests.store(false, Ordering::SeqCst);
        self.faults.swallow_answers.store(false, Ordering::SeqCst);
        self.faults.closed.store(false, Ordering::SeqCst);
        *self.faults.ramp.lock().unwrap() = None;
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

async fn serve(listener: TcpListener, target: u16, faults: Arc<Faults>, cuts: watch::Receiver<u64>) {
    while let Ok((client, _)) = listener.accept().await {
        if faults.closed.load(Ordering::SeqCst) {
            continue;
        }
        let (faults, mut cuts) = (faults.clone(), cuts.clone());
        let born = faults.losses.load(Ordering::SeqCst);
        cuts.mark_unchanged();
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let at_once = Mutex::new(None);
            let swallows =
                |one: &AtomicBool| one.load(Ordering::SeqCst) || faults.losses.load(Ordering::SeqCst) > born;
            tokio::select! {
                () = copy(from_client, to_server, || swallows(&faults.swallow_requests), &at_once) => {}
                () = copy(from_server, to_client, || swallows(&faults.swallow_answers), &faults.ramp) => {}
                _ = cuts.changed() => {}
            }
        });
    }
}

/// What is read is delivered after the latency that there was when it was read, in order.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    swallows: impl Fn() -> bool,
    ramp: &Mutex<Option<Ramp>>,
) {
    let (send, mut under_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let due = Instant::now() + ramp.lock().unwrap().map_or(Duration::ZERO, Ramp::latency);
            if !swallows() && send.send((due, buffer[..read].to_vec())).is_err() {
                return;
            }
        }
    };
    let deliver = async move {
        while let Some((due, bytes)) = under_way.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        // A side that has ended is not the end of the other.
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    tokio::join!(read, deliver);
}
