//! Work while leading: what it is told, how long it has, and what becomes of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{BuildError, LeadError, Leadership, Lost, Moment, Next};

/// Notes when it is dropped.
struct Witness(Arc<Mutex<Option<Moment>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = Some(Moment::now());
    }
}

#[tokio::test]
async fn lead_runs_the_work_once_resigns_and_returns_what_it_returned() {
    let world = World::new();
    let elector = world.settings().ttl(ms(60_000)).build().unwrap();
    let token = elector.lead(async |leadership| leadership.proceed().unwrap()).await.unwrap();
    assert_eq!(world.fake.leader(&world.resource), None, "resigned, with token {token}");
    assert_eq!(world.fake.resigned.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn leading_can_be_spawned() {
    let world = World::new();
    let (one, other) = (world.elector(), world.elector());
    let once = tokio::spawn(async move { one.lead(async |leadership| leadership.token()).await.unwrap() });
    let again = other.run(async |leadership: Arc<Leadership>| Next::Finish(leadership.token()));
    assert_ne!(once.await.unwrap(), again.await.unwrap());
    let again = tokio::spawn(async move { other.run(|_| async { Next::Finish(7) }).await });
    assert_eq!(again.await.unwrap().unwrap(), 7);
}

#[tokio::test]
async fn run_leads_again_after_a_loss_until_the_work_has_finished() {
    let world = World::new();
    let mut terms = 0;
    let elector = world.settings().ttl(ms(3000)).heartbeat(ms(20)).grace(ms(20)).build().unwrap();
    let run = elector.run(|leadership| {
        terms += 1;
        let (fake, resource, last) = (world.fake.clone(), world.resource.clone(), terms == 3);
        async move {
            if last {
                return Next::Finish(leadership.token());
            }
            fake.evict(&resource);
            std::future::pending().await
        }
    });
    let told = run.await.unwrap();
    assert_eq!(terms, 3);
    assert_eq!(world.fake.leader(&world.resource), None, "resigned, with token {told}");
}

#[tokio::test]
async fn work_that_is_deposed_ends_in_order_and_hears_why() {
    let world = World::new();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let settings = world.settings().ttl(ms(30_000)).heartbeat(ms(20)).grace(ms(10_000));
    let elector = settings
        .on_lost(move |lost| {
            let tell = tell.clone();
            async move {
                tokio::task::yield_now().await;
                tell.send(lost).unwrap();
            }
        })
        .build()
        .unwrap();
    let is_clean = AtomicBool::new(false);
    let work = elector.lead(async |leadership| {
        world.fake.evict(&world.resource);
        assert_eq!(leadership.stopping().await, Lost::Deposed);
        // Several awaits: whoever drops the work at its next one does not get to the end.
        tokio::time::sleep(ms(50)).await;
        is_clean.store(true, Ordering::SeqCst);
        "what it says does not count"
    });
    assert!(matches!(work.await, Err(LeadError::Lost(Lost::Deposed))));
    assert!(is_clean.load(Ordering::SeqCst), "it had its grace");
    assert_eq!(told.recv().await, Some(Lost::Deposed));
    assert_eq!(world.fake.resigned.load(Ordering::SeqCst), 0, "there was nothing to give up");
}

#[tokio::test]
async fn work_is_told_a_grace_before_its_leadership_ends_and_its_writes_still_pass() {
    let world = World::new();
    let elector = world.settings().ttl(ms(10_000)).grace(ms(9000)).build().unwrap();
    let work = elector.lead(async |leadership| {
        world.fake.cut(true);
        let began = Moment::now();
        assert_eq!(leadership.stopping().await, Lost::BackendAway);
        assert_eq!(leadership.proceed(), Err(Lost::BackendAway));
        assert!(Moment::now().since(began) >= ms(800), "not before its time");
        assert!(leadership.check().is_ok() && leadership.source().headers().is_ok());
    });
    assert!(matches!(work.await, Err(LeadError::Lost(Lost::BackendAway))));
    assert!(world.fake.leader(&world.resource).is_some(), "long before the lease ends there");
}

#[tokio::test]
async fn work_that_stops_at_the_head_of_its_loop_has_lost_its_leadership() {
    let world = World::new();
    let elector = world.settings().ttl(ms(10_000)).grace(ms(9000)).build().unwrap();
    let work = elector.lead(async |leadership| {
        world.fake.cut(true);
        // No await: it sees the word to stop, and ends, before whoever runs it has seen it.
        while leadership.proceed().is_ok() {
            std::thread::sleep(ms(5));
        }
        "half of the work"
    });
    assert!(matches!(work.await, Err(LeadError::Lost(Lost::BackendAway))));
}

#[tokio::test]
async fn work_that_does_not_listen_is_dropped_at_the_end_of_its_grace() {
    let world = World::new();
    let elector = world.settings().ttl(ms(30_000)).heartbeat(ms(20)).grace(ms(300)).build().unwrap();
    let dropped = Arc::new(Mutex::new(None));
    let witness = Witness(dropped.clone());
    let evicted = Mutex::new(None);
    let work = elector.lead(async |_leadership| {
        let _witness = witness;
        world.fake.evict(&world.resource);
        *evicted.lock().unwrap() = Some(Moment::now());
        std::future::pending::<()>().await;
    });
    assert!(matches!(work.await, Err(LeadError::Lost(Lost::Deposed))));
    let lived = dropped.lock().unwrap().unwrap().since(evicted.lock().unwrap().unwrap());
    assert!(lived >= ms(300) && lived < ms(10_000), "{lived:?}");
}

#[tokio::test]
async fn work_that_does_not_listen_is_dropped_when_its_lease_ends() {
    let world = World::new();
    let elector = world.settings().ttl(ms(1000)).grace(ms(500)).build().unwrap();
    let dropped = Arc::new(Mutex::new(None));
    let witness = Witness(dropped.clone());
    let valid_until = Mutex::new(None);
    let work = elector.lead(async |leadership| {
        let _witness = witness;
        world.fake.cut(true);
        *valid_until.lock().unwrap() = Some(leadership.valid_until());
        std::future::pending::<()>().await;
    });
    assert!(matches!(work.await, Err(LeadError::Lost(Lost::BackendAway))));
    let (dropped, until) = (dropped.lock().unwrap().unwrap(), valid_until.lock().unwrap().unwrap());
    assert!(dropped >= until, "it had all of its grace");
    assert!(dropped.since(until) < ms(500), "{:?} late", dropped.since(until));
}

#[tokio::test]
async fn work_that_ends_after_its_lease_has_not_been_done_while_leading() {
    let world = World::new();
    let work = world.settings().build().unwrap();
    let work = work.lead(async |_leadership| {
        world.fake.cut(true);
        // Nobody can tell or drop what blocks its thread.
        std::thread::sleep(ms(600));
    });
    assert!(matches!(work.await, Err(LeadError::Lost(Lost::BackendAway))));
}

#[tokio::test]
async fn what_finishes_within_its_grace_has_finished_a_run() {
    let world = World::new();
    let settings = world.settings().ttl(ms(30_000)).heartbeat(ms(20)).grace(ms(500));
    // A hook that does not end takes nothing away from what the work said.
    let elector = settings.on_lost(|_| std::future::pending()).build().unwrap();
    let run = elector.run(|leadership| {
        world.fake.evict(&world.resource);
        async move { Next::Finish(leadership.stopping().await) }
    });
    assert_eq!(run.await.unwrap(), Lost::Deposed);
}

#[tokio::test]
async fn a_name_or_a_backend_that_is_not_usable_is_reported_when_it_is_built() {
    let refused = Elector::named("").backend("highgate://127.0.0.1:9901").build().unwrap_err();
    assert!(matches!(refused, BuildError::Resource { .. }), "{refused}");
    let refused = Elector::named("ledger").backend("raft://a:1").build().unwrap_err();
    assert!(matches!(refused, BuildError::Backend(_)), "{refused}");
    let lead = Elector::named("ledger").backend("raft://a:1").lead(async |_| ());
    assert!(matches!(lead.await, Err(LeadError::Settings(BuildError::Backend(_)))));
}
