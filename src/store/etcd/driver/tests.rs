//! The end of a driver, without an etcd: what it does to requests that are under way.

use std::sync::Mutex;

use highgate_elector::{Resource, Token};
use highgate_etcd::Client;
use highgate_etcd::keys::Keys;
use highgate_etcd::url::EtcdUrl;

use super::*;
use crate::ledger::Shut;
use crate::ledger::validity::Validity;
use crate::store::etcd::memory::Memory;
use crate::store::etcd::view;

/// What held when the upstream connections were reset: nothing may pass, and the warden was at its post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AtTheCut {
    passes: bool,
    guarded: bool,
}

struct Bench {
    driver: Driver,
    cuts: Arc<Mutex<Vec<AtTheCut>>>,
    _folder: tempfile::TempDir,
}

/// A driver whose etcd never answers, of a replica that is valid all the same.
fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let endpoints = vec!["127.0.0.1:1".to_owned()];
    let url = EtcdUrl { endpoints, prefix: "/p".to_owned(), login: None, tls: None };
    let memory = Arc::new(Memory::open(folder.path()).unwrap());
    let link = Link { client: Client::open(&url).unwrap(), keys: Arc::new(Keys::new("/p")), memory };
    let second = Duration::from_secs(1);
    let timing = Timing { validity: 60 * second, lock_delay: second, drain_timeout: second };
    let validity = Arc::new(Validity::fenced(Duration::ZERO));
    validity.begin(Moment::now() + timing.validity);
    let watched = Arc::new(Watched::new(validity.clone()));
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let (seen, watching) = (cuts.clone(), watched.clone());
    let cut = move || {
        let (passes, guarded) = (watching.validity.holds(), !watching.is_stopped());
        seen.lock().unwrap().push(AtTheCut { passes, guarded });
    };
    let shared = Shared {
        own_names: OwnNames::default(),
        ledger: Arc::new(Ledger::with_validity(validity, |_| {})),
        watched,
        cut: Arc::new(cut),
        queued: Arc::default(),
        away: Arc::default(),
        overview: Arc::new(ArcSwap::from_pointee(view::outside("nowhere", "it is a test"))),
    };
    let (save, _) = std::sync::mpsc::channel();
    let (nowhere, name) = ("nowhere".to_owned(), "test".to_owned());
    let driver = Driver::new(link, nowhere, name, timing, shared, Box::new(|_| {}), save);
    Bench { driver, cuts, _folder: folder }
}

#[tokio::test]
async fn an_end_with_requests_under_way_cuts_them_before_the_warden_goes() {
    let Bench { mut driver, cuts, _folder } = bench();
    let (ledger, resource) = (driver.shared.ledger.clone(), Resource::parse("ledger").unwrap());
    let _ = ledger.close(&resource, 7, Shut::Raised);
    ledger.open(&resource, 7, false).unwrap();
    let under_way = ledger.enter(&resource).admit(Token::new(7).unwrap()).unwrap();
    assert!(!driver.stop().await, "what is under way has not ended");
    assert_eq!(*cuts.lock().unwrap(), [AtTheCut { passes: false, guarded: true }]);
    assert!(driver.shared.watched.is_stopped());
    drop(under_way);
}

#[tokio::test]
async fn an_end_with_nothing_under_way_is_clean() {
    let Bench { mut driver, cuts, _folder } = bench();
    assert!(driver.stop().await);
    assert!(cuts.lock().unwrap().is_empty() && driver.shared.watched.is_stopped());
}
