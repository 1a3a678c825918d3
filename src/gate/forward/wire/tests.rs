//! A fence between two writes, with TLS above the socket and without.

use std::io::ErrorKind;
use std::time::Duration;

use highgate_elector::Moment;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::server::TlsStream as ServerStream;

use super::*;
use crate::tls;

async fn lent() -> (Wire, TcpStream, Arc<Validity>, Rc<Loan>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let validity = Arc::new(Validity::fenced(Duration::from_millis(50)));
    let loan = Loan::new(validity.clone());
    (Wire::plain(here, loan.clone()), listener.accept().await.unwrap().0, validity, loan)
}

fn later(millis: u64) -> Moment {
    Moment::now() + Duration::from_millis(millis)
}

async fn is_reset(upstream: &mut TcpStream) {
    let error = upstream.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the upstream is told that this was no end");
}

#[tokio::test]
async fn a_fence_between_two_writes_of_a_body_stops_the_second_and_resets_the_connection() {
    let (mut wire, mut upstream, validity, loan) = lent().await;
    loan.fence(validity.begin(later(60_000)));
    wire.write_all(b"first").await.unwrap();
    let mut first = [0; 5];
    upstream.read_exact(&mut first).await.unwrap();
    validity.fence();
    let error = wire.write_all(b"last").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    is_reset(&mut upstream).await;
}

#[tokio::test]
async fn the_end_of_the_stream_is_not_told_after_a_fence() {
    let (mut wire, mut upstream, validity, loan) = lent().await;
    loan.fence(validity.begin(later(60_000)));
    wire.write_all(b"whole, if it ends here").await.unwrap();
    upstream.read_exact(&mut [0; 22]).await.unwrap();
    validity.fence();
    let error = wire.shutdown().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    is_reset(&mut upstream).await;
}

#[tokio::test]
async fn an_end_that_has_passed_counts_although_nobody_fenced_yet() {
    let (mut wire, mut upstream, validity, loan) = lent().await;
    loan.fence(validity.begin(later(20)));
    let slices = [IoSlice::new(b"la"), IoSlice::new(b"st")];
    assert!(wire.write_vectored(&slices).await.is_err(), "the margin before the end belongs to it");
    is_reset(&mut upstream).await;
}

#[tokio::test]
async fn a_later_incarnation_does_not_write_for_an_earlier_one() {
    let (mut wire, mut upstream, validity, loan) = lent().await;
    loan.fence(validity.begin(later(60_000)));
    validity.fence();
    validity.begin(later(60_000));
    assert!(wire.write_all(b"last").await.is_err());
    is_reset(&mut upstream).await;
}

#[tokio::test]
async fn a_request_without_a_fence_and_the_next_one_on_a_line_are_written_whatever_the_validity() {
    let (mut wire, mut upstream, validity, loan) = lent().await;
    wire.write_all(b"a").await.unwrap();
    loan.fence(validity.begin(later(60_000)));
    wire.write_all(b"b").await.unwrap();
    loan.end();
    validity.fence();
    wire.write_all(b"c").await.unwrap();
    let mut all = [0; 3];
    upstream.read_exact(&mut all).await.unwrap();
    assert_eq!(&all, b"abc");
}

/// A wire with TLS, and its upstream: both sides have shaken hands, and the kernel takes little at once.
async fn lent_with_tls() -> (Wire, ServerStream<TcpStream>, Arc<Validity>, Rc<Loan>) {
    let (acceptor, client) = tls::tests::ends();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    SockRef::from(&listener).set_recv_buffer_size(4096).unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    SockRef::from(&here).set_send_buffer_size(4096).unwrap();
    let there = listener.accept().await.unwrap().0;
    let validity = Arc::new(Validity::fenced(Duration::from_millis(50)));
    let loan = Loan::new(validity.clone());
    let (wire, upstream) =
        tokio::join!(Wire::encrypted(here, loan.clone(), &client, "http/1.1"), acceptor.accept(there));
    (wire.unwrap(), upstream.unwrap(), validity, loan)
}

/// Writes until nothing more is taken; how much was.
async fn fill(wire: &mut Wire) -> usize {
    let mut taken = 0;
    loop {
        let more = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *wire).poll_write(cx, &[7; 4096])));
        match more.await {
            Poll::Ready(written) => taken += written.unwrap(),
            Poll::Pending => return taken,
        }
    }
}

/// Everything that the upstream is sent, and how that ends.
async fn drain(upstream: &mut ServerStream<TcpStream>) -> (usize, Option<ErrorKind>) {
    let (mut received, mut block) = (0, [0; 4096]);
    loop {
        // Nothing more and no end is an end that nobody told of.
        let read = tokio::time::timeout(Duration::from_secs(10), upstream.read(&mut block)).await;
        match read.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
            Ok(0) => return (received, None),
            Ok(count) => received += count,
            Err(error) => return (received, Some(error.kind())),
        }
    }
}

#[tokio::test]
async fn what_tls_has_encrypted_and_not_yet_sent_does_not_leave_after_a_fence() {
    let (mut wire, mut upstream, validity, loan) = lent_with_tls().await;
    loan.fence(validity.begin(later(60_000)));
    let taken = fill(&mut wire).await;
    validity.fence();
    // The upstream reads now, so that there is room for what rustls still holds.
    let (flushed, (received, end)) = tokio::join!(wire.flush(), drain(&mut upstream));
    assert_eq!(flushed.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    assert_eq!(end, Some(ErrorKind::ConnectionReset), "the upstream is told that this was no end");
    assert!(received < taken, "{received} of {taken}");
}

#[tokio::test]
async fn without_a_fence_everything_that_tls_has_taken_leaves() {
    let (mut wire, mut upstream, validity, loan) = lent_with_tls().await;
    loan.fence(validity.begin(later(60_000)));
    let taken = fill(&mut wire).await;
    let sent = async {
        wire.flush().await.unwrap();
        wire.shutdown().await.unwrap();
    };
    let ((), (received, end)) = tokio::join!(sent, drain(&mut upstream));
    assert_eq!((received, end), (taken, None));
}

#[tokio::test]
async fn a_fence_between_two_writes_of_a_body_stops_the_second_over_tls_as_well() {
    let (mut wire, mut upstream, validity, loan) = lent_with_tls().await;
    loan.fence(validity.begin(later(60_000)));
    wire.write_all(b"first").await.unwrap();
    wire.flush().await.unwrap();
    let mut first = [0; 5];
    upstream.read_exact(&mut first).await.unwrap();
    validity.fence();
    assert!(wire.write_all(b"last").await.is_err() || wire.flush().await.is_err());
    assert!(wire.shutdown().await.is_err(), "not even as part of a goodbye");
    assert_eq!(drain(&mut upstream).await, (0, Some(ErrorKind::ConnectionReset)));
}
