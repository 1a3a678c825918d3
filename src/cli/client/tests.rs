use std::net::SocketAddr;
use std::sync::Arc;

use highgate::admin::{Admin, serve};
use highgate::door::Door;
use highgate::events::Bus;
use highgate::journal::{Journal, Limits, Writer};
use highgate::metrics::Metrics;
use highgate::store::{OwnNames, embedded};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;

/// An admin port over a real store, for the tests of every command.
pub(crate) struct Running {
    pub(crate) admin: Arc<Admin>,
    pub(crate) address: SocketAddr,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) served: JoinHandle<()>,
    _folder: TempDir,
}

pub(crate) async fn gateway() -> Running {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { keep: Duration::from_secs(3600), max_size: 1 << 20 };
    let admin = Arc::new(Admin {
        journal: Arc::new(Journal::open(folder.path(), limits, Writer::Thread).unwrap()),
        store: embedded::start(folder.path(), Duration::ZERO, OwnNames::default(), |_| ()).unwrap().store,
        metrics: Arc::new(Metrics::new(10)),
        bus: Bus::new(),
        draining: Arc::default(),
        auth: None,
        signing: Arc::default(),
        access: Arc::default(),
        jobs: highgate::admin::Jobs::Here,
        doors: Vec::new(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, shutdown) = watch::channel(false);
    let door = Door::new("admin", address, None, &admin.metrics);
    let served = tokio::spawn(serve(listener, door, admin.clone(), shutdown));
    Running { admin, address, stop, served, _folder: folder }
}

#[test]
fn a_name_survives_its_way_through_a_query() {
    let name = |text| encoded(&Resource::parse(text).unwrap());
    assert_eq!(name("a/b%2Fc"), "a/b%252Fc");
    assert_eq!(name("a+b=c"), "a%2Bb%3Dc");
}

#[test]
fn a_bearer_with_a_line_break_is_refused() {
    let address = "127.0.0.1:1".parse().unwrap();
    assert!(matches!(
        Client::new(&[address], Some("a\nb"), &ClientTls::default()),
        Err(ClientError::BadBearer)
    ));
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let absent: Address = address.parse().unwrap();
    let error = Client::new(std::slice::from_ref(&absent), None, &ClientTls::default())
        .unwrap()
        .get("/readyz")
        .await
        .err()
        .unwrap();
    assert_eq!(error.to_string(), format!("no gateway answers at {address}"));
    let other = "127.0.0.1:1".parse().unwrap();
    let error = Client::new(&[absent, other], None, &ClientTls::default())
        .unwrap()
        .get("/readyz")
        .await
        .err()
        .unwrap();
    assert_eq!(error.to_string(), format!("no gateway answers at {address}, 127.0.0.1:1"));
}

#[tokio::test]
async fn of_several_gateways_the_first_that_is_ready_is_asked() {
    let (unready, ready) = (gateway().await, gateway().await);
    unready.admin.draining.store(true, std::sync::atomic::Ordering::SeqCst);
    let absent: Address = "127.0.0.1:1".parse().unwrap();
    let at = |running: &Running| running.address.to_string().parse::<Address>().unwrap();
    let asked = |addresses: Vec<Address>| async move {
        let client = Client::new(&addresses, None, &ClientTls::default()).unwrap();
        client.place().await.to_string()
    };
    assert_eq!(asked(vec![absent.clone(), at(&unready), at(&ready)]).await, ready.address.to_string());
    assert_eq!(asked(vec![absent, at(&unready)]).await, unready.address.to_string(), "better than nobody");
}
