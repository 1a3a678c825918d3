//! The elector over a backend in memory: timing and failures that a real one does not show on demand.

mod fake;
mod handed;
mod lasting;
mod led;
mod lost;
mod seen;
mod sent;

use std::sync::Arc;
use std::time::Duration;

use crate::{Builder, Elector, Renewer, Resource};
use fake::Fake;

/// A backend, its renewer and a resource.
struct World {
    fake: Arc<Fake>,
    renewer: Renewer,
    resource: Resource,
}

impl World {
    fn new() -> Self {
        let fake = Arc::new(Fake::default());
        Self {
            renewer: Renewer::new(fake.clone()),
            fake,
            resource: Resource::parse("ledger/acct-7").unwrap(),
        }
    }

    fn settings(&self) -> Builder {
        Elector::builder(&self.renewer, self.resource.clone()).ttl(ms(300))
    }

    fn elector(&self) -> Elector {
        self.settings().build().unwrap()
    }
}

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// Waits until something is true, for two seconds at the most.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..400 {
        if holds() {
            return;
        }
        tokio::time::sleep(ms(5)).await;
    }
    panic!("not within two seconds: {what}");
}
