//! What others get to see: observers, metrics and the receivers of requests.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Mutex;
use std::task::{Context, Poll};

use http::Request;
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata};
use metrics::{Recorder, SharedString, Unit};
use tower_layer::Layer;
use tower_service::Service;

use super::*;
use crate::Lost;
use crate::header::{FencingError, FencingLayer};
use crate::stream::next;

#[tokio::test]
async fn an_observer_is_told_every_change_once_through_failures_of_the_backend() {
    let world = World::new();
    let elector = world.elector();
    let mut stream = elector.observe();
    assert_eq!(next(&mut stream).await.unwrap().unwrap(), None);
    let leadership = elector.campaign().await.unwrap();
    assert_eq!(next(&mut stream).await.unwrap().unwrap().unwrap().token, leadership.token());
    world.fake.cut(true);
    assert!(next(&mut stream).await.unwrap().is_err());
    world.fake.cut(false);
    leadership.resign().await.unwrap();
    let mut state = next(&mut stream).await.unwrap();
    while state.is_err() {
        state = next(&mut stream).await.unwrap();
    }
    assert_eq!(state.unwrap(), None, "and not once more that it led");
}

/// A client that answers with the token it was sent.
struct Echo;

impl Service<Request<()>> for Echo {
    type Response = Vec<String>;
    type Error = Infallible;
    type Future = Ready<Result<Vec<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let all = |name: &str| request.headers().get_all(name).into_iter().cloned().collect::<Vec<_>>();
        let values = [all("x-fencing-token"), all("x-fencing-resource")].concat();
        ready(Ok(values.iter().map(|value| value.to_str().unwrap().to_owned()).collect()))
    }
}

#[tokio::test]
async fn requests_carry_the_token_and_its_resource_and_none_are_sent_once_the_leadership_is_over() {
    let world = World::new();
    let leadership = world.elector().campaign().await.unwrap();
    let mut client = FencingLayer::new(leadership.source()).layer(Echo);
    let request = || {
        let request = Request::builder().header("X-Fencing-Token", "1000000");
        request.header("X-Fencing-Resource", "another").body(()).unwrap()
    };
    let sent = client.call(request()).await.unwrap();
    assert_eq!(sent, [leadership.token().to_string(), world.resource.to_string()]);
    drop(leadership);
    assert!(matches!(client.call(request()).await, Err(FencingError::Lost(Lost::Resigned))));
}

/// Keeps the last value of gauges, the sum of counters and the count of histograms, by name.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<HashMap<String, f64>>>);

struct Series(Kept, String);

impl Series {
    fn change(&self, change: impl FnOnce(f64) -> f64) {
        let mut kept = self.0.0.lock().unwrap();
        let value = kept.entry(self.1.clone()).or_default();
        *value = change(*value);
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.change(|before| before + value as f64);
    }
    fn absolute(&self, value: u64) {
        self.change(|_| value as f64);
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.change(|before| before + value);
    }
    fn decrement(&self, value: f64) {
        self.change(|before| before - value);
    }
    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Series {
    fn record(&self, _: f64) {
        self.change(|before| before + 1.0);
    }
}

impl Kept {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Series(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.lock().unwrap().get(&format!("highgate_elector_{name}{{resource=ledger/acct-7}}")).copied()
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

#[tokio::test]
async fn metrics_tell_who_leads_how_often_and_for_how_long_nobody_did() {
    let (world, kept) = (World::new(), Kept::default());
    let elector = metrics::with_local_recorder(&kept, || world.elector());
    let mut stream = elector.observe();
    assert_eq!(next(&mut stream).await.unwrap().unwrap(), None);
    tokio::time::sleep(ms(50)).await;
    let leadership = elector.campaign().await.unwrap();
    assert_eq!(kept.get("is_leader"), Some(1.0));
    assert_eq!(kept.get("token"), Some(leadership.token().get() as f64));
    eventually("a heartbeat is recorded", || kept.get("heartbeat_duration_seconds") >= Some(1.0)).await;
    assert!(kept.get("lease_remaining_seconds") > Some(0.1));
    assert!(next(&mut stream).await.unwrap().unwrap().is_some());
    assert_eq!(kept.get("failover_seconds"), Some(1.0));
    assert!(kept.get("leaderless_seconds") >= Some(0.05));
    world.fake.evict(&world.resource);
    assert_eq!(leadership.lost().await, Lost::Deposed);
    assert_eq!((kept.get("is_leader"), kept.get("lease_remaining_seconds")), (Some(0.0), Some(0.0)));
    let _next = elector.campaign().await.unwrap();
    assert_eq!(kept.get("elections_total"), Some(2.0));
}
