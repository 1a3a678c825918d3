//! What others get to see: observers and metrics.

use std::collections::HashMap;
use std::sync::Mutex;

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata};
use metrics::{Recorder, SharedString, Unit};

use super::*;
use crate::Lost;
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
