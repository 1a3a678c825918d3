use std::sync::atomic::AtomicUsize;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::url;
use super::*;
use crate::ClientTls;

const PATIENCE: Duration = Duration::from_secs(10);

/// These, in plain HTTP.
fn named(addresses: &str) -> Result<Gateways, String> {
    Gateways::new(&url::parse(addresses, ClientTls::default())?, None)
}

fn names(addresses: &str) -> Result<Vec<String>, String> {
    let gateways = named(addresses)?;
    Ok(gateways.all.iter().map(|gateway| gateway.wire.name()).collect())
}

/// A gateway that gives one answer to everything, or none.
struct Fake {
    address: String,
    asked: Arc<AtomicUsize>,
}

async fn fake(status: Option<u16>) -> Fake {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, status, count.clone()));
        }
    });
    Fake { address, asked }
}

async fn serve(mut stream: TcpStream, status: Option<u16>, asked: Arc<AtomicUsize>) {
    let mut bytes = [0; 4096];
    // The requests of these tests come whole, in one piece.
    while stream.read(&mut bytes).await.is_ok_and(|length| length > 0) {
        asked.fetch_add(1, Ordering::SeqCst);
        if let Some(status) = status {
            let answer = format!("HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n\r\n{{}}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

/// These gateways, of which the first is the current one.
fn beginning_with_the_first(fakes: &[&Fake]) -> Gateways {
    let addresses: Vec<_> = fakes.iter().map(|fake| fake.address.as_str()).collect();
    let gateways = named(&addresses.join(",")).unwrap();
    gateways.current.store(0, Ordering::SeqCst);
    gateways
}

async fn status_of(gateways: &Gateways) -> u16 {
    let by = Instant::now() + PATIENCE;
    let (_, answer) = gateways.call("/", &json!({}), by).await.expect("some answer");
    answer.status.as_u16()
}

#[test]
fn a_url_names_one_gateway_or_several() {
    assert_eq!(names("a:1").unwrap(), ["highgate://a:1"]);
    assert_eq!(
        names("a:1,b:2,[::1]:3/").unwrap(),
        ["highgate://a:1", "highgate://b:2", "highgate://[::1]:3"]
    );
    for broken in ["", ",", "a:1,", ",a:1", "a:1,b", "a:1, b:2", "a:1;b:2", "a:1/x,b:2", "me@a:1,b:2"] {
        assert!(names(broken).is_err(), "{broken:?}");
    }
    assert_eq!(names("a:1,b:2,A:1").unwrap_err(), "it names A:1 twice");
}

#[cfg(feature = "tls")]
#[test]
fn all_gateways_of_a_url_are_spoken_to_alike() {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let url = format!("highgate://a:1,[::1]:2?ca={}", ca.display());
    assert_eq!(names(&url).unwrap(), ["highgates://a:1", "highgates://[::1]:2"]);
}

#[test]
fn whoever_hears_of_a_failure_late_moves_nobody() {
    let gateways = named("a:1,b:2,c:3").unwrap();
    let first = gateways.current();
    gateways.leave(first);
    gateways.leave(first);
    assert_eq!(gateways.current(), (first + 1) % 3);
    let round: Vec<_> = gateways.round().collect();
    assert_eq!(round, [(first + 1) % 3, (first + 2) % 3, first]);
}

#[tokio::test]
async fn a_gateway_that_is_not_ready_or_not_there_or_silent_is_left_for_the_next() {
    let (fenced, silent, well) = (fake(Some(503)).await, fake(None).await, fake(Some(200)).await);
    let absent = Fake { address: "127.0.0.1:1".to_owned(), asked: Arc::default() };
    for bad in [&fenced, &silent, &absent] {
        let gateways = beginning_with_the_first(&[bad, &well]);
        assert_eq!(status_of(&gateways).await, 200, "{}", bad.address);
        let asked_before = bad.asked.load(Ordering::SeqCst);
        assert_eq!((gateways.current(), status_of(&gateways).await), (1, 200));
        assert_eq!(bad.asked.load(Ordering::SeqCst), asked_before, "it is not asked again");
    }
}

#[tokio::test]
async fn the_word_of_one_gateway_is_the_word_of_all() {
    let (gone, well) = (fake(Some(410)).await, fake(Some(200)).await);
    let gateways = beginning_with_the_first(&[&gone, &well]);
    assert_eq!(status_of(&gateways).await, 410, "the leadership is over by etcd's word");
    assert_eq!(well.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn when_none_is_well_the_answer_says_so() {
    let (one, other) = (fake(Some(503)).await, fake(Some(500)).await);
    let gateways = beginning_with_the_first(&[&one, &other]);
    assert_eq!(status_of(&gateways).await, 500);
    assert!(!gateways.leaves(0).await, "the other one is not ready either");
}

#[tokio::test]
async fn a_gateway_that_is_not_ready_is_left_only_for_one_that_is() {
    let (fenced, silent, well) = (fake(Some(503)).await, fake(Some(503)).await, fake(Some(200)).await);
    let gateways = beginning_with_the_first(&[&fenced, &silent, &well]);
    assert!(gateways.leaves(0).await);
    assert_eq!(gateways.current(), 2, "past the one that is not ready");
    assert!(!gateways.leaves(2).await);
}
