//! A writer: a process of its own that campaigns for a resource and writes to it through the gateways.
//!
//! It is careless on purpose. Its threads do not ask whether it still leads: they go on with the token while it
//! resigns, after it was stopped, and for some seconds after the leadership is over, as a zombie does. `crew`
//! starts it, and `words` is what they say to each other.

use std::io::{BufRead, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use highgate_elector::{Elector, Leadership, Moment, TokenSource, connect};
use tokio::sync::Notify;

use crate::chance::Chance;
use crate::load::Manner;
use crate::support::gateway::Door;
use crate::support::writer::{Answers, Write};
use crate::words::{Order, Place, Post, Said, Wrote};

/// The first argument of a process that is a writer.
pub(crate) const ROLE: &str = "--as-writer";

/// How long a writer waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of a writer that hangs up.
const HANGS_UP: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));
/// A large body: more than what is read before it is admitted, and less than a kernel takes.
const LARGE: usize = 96 << 10;
/// How long it takes to connect anew.
const RECONNECTS: Duration = Duration::from_millis(2500);
/// How long a polite leader waits for its writes before it resigns.
const DRAIN: Duration = Duration::from_secs(4);

struct Desk {
    post: Post,
    doors: Mutex<Vec<Arc<Door>>>,
    term: Mutex<Term>,
    answers: Arc<Answers>,
    /// Writes under way.
    busy: AtomicUsize,
    ended: AtomicBool,
    end: Notify,
    resign: Notify,
    rest: Notify,
    reconnect: Notify,
}

#[derive(Default)]
struct Term {
    leading: Option<Lead>,
    /// Tokens that were deposed, and when; the last one last.
    deposed: Vec<(u64, Instant)>,
    /// It is about to resign and begins nothing more.
    resigning: bool,
}

#[derive(Clone)]
struct Lead {
    token: u64,
    source: TokenSource,
}

/// What to send next.
struct Choice {
    token: u64,
    /// None for a token that was deposed.
    source: Option<TokenSource>,
}

pub(crate) fn main() -> ExitCode {
    let post = std::env::args().nth(2).expect("who it is");
    let post: Post = serde_json::from_str(&post).expect("the harness writes what it reads");
    // A writer that is stopped when the harness dies would stay for ever.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .expect("a process may ask to die with its parent");
    let desk = Arc::new(Desk {
        answers: Arc::new(Answers::of(&post.name)),
        post,
        doors: Mutex::default(),
        term: Mutex::default(),
        busy: AtomicUsize::new(0),
        ended: AtomicBool::new(false),
        end: Notify::new(),
        resign: Notify::new(),
        rest: Notify::new(),
        reconnect: Notify::new(),
    });
    let listening = desk.clone();
    thread::spawn(move || listening.listen());
    for number in 0..desk.post.load.threads {
        let desk = desk.clone();
        thread::spawn(move || desk.send(number));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(desk.campaign());
    ExitCode::SUCCESS
}

fn say(said: &Said) {
    let line = serde_json::to_string(said).expect("plain data") + "\n";
    // Whoever does not listen any more has gone, and this process is about to go, too.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

fn now() -> u64 {
    Moment::now().nanos()
}

impl Desk {
    fn term(&self) -> MutexGuard<'_, Term> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the harness says that it is over, or has gone.
    fn listen(&self) {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line).expect("an order") {
                Order::Doors(places) => self.find(&places),
                // Kept for nobody: who does not lead has nothing to resign.
                Order::Resign => self.resign.notify_waiters(),
                Order::Rest => self.rest.notify_one(),
                Order::Reconnect => self.reconnect.notify_one(),
                Order::End => break,
            }
        }
        self.ended.store(true, Ordering::SeqCst);
        self.end.notify_one();
    }

    fn find(&self, places: &[Place]) {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.resize_with(places.len(), || Arc::new(Door::at(places[0].data, places[0].admin)));
        for (door, place) in doors.iter().zip(places) {
            door.moves(place.data, place.admin);
            door.is_ready.store(place.ready, Ordering::SeqCst);
        }
    }

    /// Leads again and again.
    async fn campaign(&self) {
        let mut chance = Chance::of(self.post.seed, &format!("{} leads", self.post.name));
        while !self.ended.load(Ordering::SeqCst) {
            let elector = self.elector();
            tokio::select! {
                () = self.campaign_with(&elector, &mut chance) => continue,
                () = self.rest.notified() => {}
                () = self.reconnect.notified() => self.reconnect.notify_one(),
            }
            self.over(None);
            drop(elector);
            tokio::select! {
                () = self.reconnect.notified() => tokio::time::sleep(RECONNECTS).await,
                () = self.end.notified() => return,
            }
        }
    }

    fn elector(&self) -> Elector {
        let backend = connect(&self.post.url).expect("the URL of an etcd");
        let resource = self.post.resource.parse().expect("a resource's name");
        let builder = Elector::builder(backend, resource).holder(&self.post.name);
        builder.ttl(Duration::from_millis(self.post.ttl_ms)).build().expect("sound settings")
    }

    async fn campaign_with(&self, elector: &Elector, chance: &mut Chance) {
        while !self.ended.load(Ordering::SeqCst) {
            let leadership = tokio::select! {
                won = elector.campaign() => won.expect("etcd refuses nobody"),
                () = self.end.notified() => return,
            };
            self.lead(leadership, chance).await;
            tokio::time::sleep(chance.between(Duration::ZERO, Duration::from_millis(500))).await;
        }
    }

    async fn lead(&self, leadership: Leadership, chance: &mut Chance) {
        let token = leadership.token().get();
        say(&Said::Won { token, at: now() });
        let source = leadership.source();
        self.term().leading = Some(Lead { token, source });
        let time = self.post.load.term(chance);
        let (how, polite) = tokio::select! {
            lost = leadership.lost() => (format!("lost: {lost}"), false),
            () = tokio::time::sleep(time) => ("resigned".to_owned(), chance.one_in(2)),
            () = self.resign.notified() => ("resigned when told to".to_owned(), false),
            () = self.end.notified() => ("ended".to_owned(), true),
        };
        if polite {
            self.drain().await;
        }
        // What is under way when this is said was sent by a leader; it says so itself.
        say(&Said::Over { token, at: now(), how });
        if leadership.is_valid() {
            // Unsaid, the lease runs out.
            let _unavailable = leadership.resign().await;
        }
        self.over(Some(token));
    }

    /// It leads no longer: with this token, or with the one that it has.
    fn over(&self, token: Option<u64>) {
        let mut term = self.term();
        let had = term.leading.take().map(|lead| lead.token);
        term.resigning = false;
        term.deposed.extend(token.or(had).map(|token| (token, Instant::now())));
    }

    async fn drain(&self) {
        self.term().resigning = true;
        let deadline = Instant::now() + DRAIN;
        while self.busy.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn send(&self, number: usize) {
        let mut chance = Chance::of(self.post.seed, &format!("{} sends {number}", self.post.name));
        while !self.ended.load(Ordering::SeqCst) {
            let choice = self.choose(number, &mut chance);
            let pause = if choice.as_ref().is_some_and(|choice| choice.source.is_none()) { 150 } else { 40 };
            if let Some(choice) = choice
                && let Some((at, door)) = self.door(&mut chance)
            {
                self.write(choice, at, door, &mut chance);
            }
            thread::sleep(chance.between(Duration::from_millis(5), Duration::from_millis(pause)));
        }
    }

    fn choose(&self, number: usize, chance: &mut Chance) -> Option<Choice> {
        let (term, load) = (self.term(), &self.post.load);
        let within = |since: Instant, millis: u64| since.elapsed() < Duration::from_millis(millis);
        let last = term.deposed.last().filter(|(_, since)| within(*since, load.zombie));
        let fresh = last.is_some_and(|(_, since)| within(*since, load.fresh));
        if load.haunts && number == 0 && !term.deposed.is_empty() {
            let (token, _) = term.deposed[chance.below(term.deposed.len())];
            return Some(Choice { token, source: None });
        }
        match (&term.leading, last) {
            (Some(_), _) if term.resigning => None,
            (Some(lead), _) => Some(Choice { token: lead.token, source: Some(lead.source.clone()) }),
            (None, Some((token, _))) if number == 0 || fresh => Some(Choice { token: *token, source: None }),
            (None, _) => None,
        }
    }

    /// Most of the time one that is ready; sometimes any, as a client does that has not heard yet.
    fn door(&self, chance: &mut Chance) -> Option<(usize, Arc<Door>)> {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let any = chance.one_in(self.post.load.any_door);
        let usable = |door: &Arc<Door>| any || door.is_ready.load(Ordering::SeqCst);
        let usable: Vec<_> = doors.into_iter().enumerate().filter(|(_, door)| usable(door)).collect();
        (!usable.is_empty()).then(|| usable[chance.below(usable.len())].clone())
    }

    fn write(&self, choice: Choice, gateway: usize, door: Arc<Door>, chance: &mut Chance) {
        let leads = || choice.source.as_ref().is_some_and(|source| source.token().is_ok());
        let write = Write::new(door, self.answers.clone(), &self.post.resource, choice.token);
        let (id, token) = (write.id().to_owned(), choice.token);
        let manner = chance.weighted(&self.post.load.manners);
        let write = self.mannered(write, manner, chance);
        let (led, sent) = (leads(), now());
        self.busy.fetch_add(1, Ordering::SeqCst);
        let outcome = write.send();
        self.busy.fetch_sub(1, Ordering::SeqCst);
        let may_pass = !matches!(manner, Manner::BreaksOff | Manner::GivenUp | Manner::HangsUp);
        let (led, answered) = (led && leads() && may_pass, now());
        say(&Said::Wrote(Wrote { id, token, gateway, sent, answered, led, outcome }));
    }

    fn mannered(&self, write: Write, manner: Manner, chance: &mut Chance) -> Write {
        let delay = self.post.load.delay(chance);
        let write = write.patience(PATIENCE);
        match manner {
            Manner::Plain => write.delayed(delay),
            Manner::HeadFirst => write.delayed(delay).asking_for("X-Head-First", "yes"),
            Manner::BreaksOff => write.delayed(delay).asking_for("X-Breaks-Off", "yes"),
            Manner::GivenUp => write.delayed(delay).asking_for("X-Given-Up", "yes"),
            Manner::HangsUp => write.delayed(delay).patience(chance.between(HANGS_UP.0, HANGS_UP.1)),
            // It takes effect with its last byte.
            Manner::UploadedSlowly => write.of_size(LARGE).uploaded_over(delay),
            Manner::ReadSlowly => {
                let millis = delay.as_millis().to_string();
                write.of_size(LARGE).asking_for("X-Slow-Read-Ms", &millis)
            }
        }
    }
}
