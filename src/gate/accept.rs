//! Client connections: accepted on every core, limited, timed, decrypted where the port speaks TLS, and read as HTTP/1.1 or
//! HTTP/2.
//!
//! Each core has its own listener on the shared address (SO_REUSEPORT), so a connection lives on the core that
//! accepted it. Time-outs are the sweeper's: hyper's own header timer would also run between the requests of
//! a kept-alive connection. An accept error is waited out, never fatal.

mod clients;
mod conduct;
mod framing;
mod outlet;

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::http1::{self, Parts};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Socket, Type};
use tokio::io::AsyncWrite;
use tokio::net::{TcpListener, TcpStream};

pub(crate) use clients::Clients;
use conduct::Order;
pub(crate) use conduct::{Busy, Conduct, Connections, Patience};
use framing::Strict;
pub(crate) use framing::{Unreadable, too_large};
use outlet::Outlet;

use super::forward::tunnel::Tunnel;
use super::{Worker, gate};
use crate::door::Door;
use crate::door::proxy::introduce;
use crate::metrics::Limit;
use crate::tls::{Stream, hear_out, is_hello};

const BACKLOG: i32 = 1024;
/// After an accept error, most often for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How many times larger a list of header fields HTTP/2 takes than is let through, so that the gateway says so itself.
const HEADER_LIST_FACTOR: usize = 4;
/// The smallest buffer of an HTTP/1 connection: it is for answers, too.
const MIN_BUFFER: usize = 64 << 10;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PEEK_AGAIN: Duration = Duration::from_millis(5);
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// One listener a worker, all on one address. A port that somebody else listens on is an error, even
/// though SO_REUSEPORT would share it: two gateways on one port would be two fences.
pub(crate) fn bind(address: SocketAddr, workers: usize) -> io::Result<Vec<StdListener>> {
    if address.port() != 0 {
        let probe = socket(address)?;
        probe.bind(&address.into())?;
        probe.listen(1)?;
    }
    let first = listener(address)?;
    let address = first.local_addr()?;
    let rest = (1..workers).map(|_| listener(address));
    std::iter::once(Ok(first)).chain(rest).collect()
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

fn listener(address: SocketAddr) -> io::Result<StdListener> {
    let socket = socket(address)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts until it is dropped.
pub(crate) async fn accept(worker: Rc<Worker>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let is_full = worker.open_connections.load(Ordering::Relaxed) >= worker.max_connections;
                let serve: Pin<Box<dyn Future<Output = ()>>> = if is_full {
                    Box::pin(turn_away(worker.clone(), stream, Limit::MaxConnections))
                } else {
                    Box::pin(serve(worker.clone(), stream, peer))
                };
                tokio::task::spawn_local(serve);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Says 503 to a connection over a limit, in the one form that needs no request to be read. Where the port speaks TLS it
/// would take a handshake to say so.
async fn turn_away(worker: Rc<Worker>, mut stream: TcpStream, limit: Limit) {
    worker.metrics.limited(limit);
    if worker.door.tls().is_some() {
        return;
    }
    let whose = if limit == Limit::ConnectionsPerClient { "your address" } else { "the gateway" };
    let body = format!(
        r#"{{"type":"urn:highgate:problem:overloaded","title":"Gateway overloaded","status":503,"detail":"{whose} has reached its connection limit; try again","reason":"overloaded"}}"#
    );
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\
         Retry-After: 1\r\nX-Fencing-Reason: overloaded\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    hear_out(&mut stream, &answer).await;
}

/// Counts a connection, finds out whose it is, and serves it.
async fn serve(worker: Rc<Worker>, mut stream: TcpStream, peer: SocketAddr) {
    worker.open_connections.fetch_add(1, Ordering::Relaxed);
    if let Some(client) = introduced(&worker, &mut stream, peer).await {
        match worker.clients.connect(client.ip()) {
            Some(_place) => serve_client(&worker, stream, client).await,
            None => turn_away(worker.clone(), stream, Limit::ConnectionsPerClient).await,
        }
    }
    worker.open_connections.fetch_sub(1, Ordering::Relaxed);
}

/// Whose connection it is, by its PROXY header where there has to be one. None: it is not served.
async fn introduced(worker: &Worker, stream: &mut TcpStream, peer: SocketAddr) -> Option<SocketAddr> {
    let Some(proxies) = &worker.proxies else { return Some(peer) };
    match introduce(proxies, stream, peer, worker.patience.header).await {
        Ok(client) => Some(client),
        Err(error) => {
            worker.metrics.limited(Limit::ProxyProtocol);
            let error = &error as &dyn std::error::Error;
            tracing::debug!(%peer, error, "a connection without the PROXY header that it needs");
            None
        }
    }
}

async fn serve_client(worker: &Rc<Worker>, stream: TcpStream, client: SocketAddr) {
    let conduct = Conduct::new(client);
    let slot = worker.connections.insert(conduct.clone());
    worker.stir();
    // An answer that is sent late because of Nagle helps nobody; if it cannot be turned off, so be it.
    let _ = stream.set_nodelay(true);
    match open_unless_told_to_leave(worker, stream, &conduct).await {
        Some((Protocol::Http1, stream)) => serve_http1(worker.clone(), stream, conduct).await,
        Some((Protocol::Http2, stream)) => serve_http2(worker.clone(), stream, conduct).await,
        None => {}
    }
    worker.connections.remove(slot);
}

enum Protocol {
    Http1,
    Http2,
}

async fn open_unless_told_to_leave(
    worker: &Worker,
    stream: TcpStream,
    conduct: &Conduct,
) -> Option<(Protocol, Stream)> {
    let mut opening = pin!(open(worker, stream, conduct));
    let opened = std::future::poll_fn(|cx| match conduct.order(cx.waker()) {
        Order::Serve => opening.as_mut().poll(cx),
        Order::Finish | Order::Break => Poll::Ready(None),
    });
    opened.await
}

/// Waits for the client to say what it speaks, and shakes hands first where the port speaks TLS. None: it left, or was
/// too slow, or speaks something else.
async fn open(worker: &Worker, stream: TcpStream, conduct: &Conduct) -> Option<(Protocol, Stream)> {
    let (door, limit) = (&worker.door, worker.patience.header);
    let Some(server) = door.tls() else {
        let protocol = tokio::time::timeout(limit, sniff(&stream, door, conduct)).await.ok()??;
        return Some((protocol, Stream::Plain(stream)));
    };
    // In a box, so that a plain connection need not keep the room for a handshake.
    let accepted = Box::pin(door.shake_hands(server, stream, conduct.peer(), limit)).await?;
    conduct.is_encrypted_for(accepted.identity);
    let protocol = if accepted.http2 { Protocol::Http2 } else { Protocol::Http1 };
    Some((protocol, accepted.stream))
}

/// Which protocol the client speaks, by its first bytes, which stay unread.
async fn sniff(stream: &TcpStream, door: &Door, conduct: &Conduct) -> Option<Protocol> {
    loop {
        let mut first = [0; PREFACE.len()];
        let seen = stream.peek(&mut first).await.ok()?;
        if seen == 0 {
            return None;
        }
        if is_hello(first[0]) {
            door.tell_of_hello(conduct.peer());
            return None;
        }
        if !PREFACE.starts_with(&first[..seen]) {
            return Some(Protocol::Http1);
        }
        if seen == PREFACE.len() {
            return Some(Protocol::Http2);
        }
        // Part of the preface: nothing tells when the rest is there but looking again.
        tokio::time::sleep(PEEK_AGAIN).await;
    }
}

async fn serve_http1(worker: Rc<Worker>, stream: Stream, conduct: Rc<Conduct>) {
    let limits = worker.limits.head;
    let strict = Strict::new(Outlet::new(stream, conduct.clone()), conduct.clone(), limits);
    let connection = http1::Builder::new()
        .max_buf_size(limits.bytes.max(MIN_BUFFER))
        .max_headers(limits.fields)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(strict), gate(worker, conduct.clone()));
    let mut connection = connection;
    let ended = obey(&conduct, |cx, finish| {
        let mut connection = Pin::new(&mut connection);
        if finish {
            connection.as_mut().graceful_shutdown();
        }
        connection.poll(cx)
    });
    let ended = ended.await;
    let tunnel = conduct.take_tunnel();
    if !ended {
        return;
    }
    let Parts { io, read_buf, .. } = connection.into_parts();
    let mut strict = io.into_inner();
    if let Some(tunnel) = tunnel {
        // In a box, so that a connection without one need not keep the room for it.
        Box::pin(serve_tunnel(&conduct, tunnel, strict, &read_buf)).await;
    } else if strict.was_offered() {
        // hyper leaves a stream alone that may go on with another protocol.
        obey(&conduct, |cx, _| Pin::new(&mut strict).poll_shutdown(cx)).await;
    }
}

/// After HTTP: `read` is what hyper has read and not taken for HTTP.
async fn serve_tunnel(conduct: &Conduct, tunnel: Box<Tunnel>, strict: Strict<Outlet<Stream>>, read: &[u8]) {
    let (stream, held) = strict.into_rest();
    let mut tunnel = tunnel.open(stream, &[read, &held].concat());
    let obeyed = obey(conduct, |cx, finish| {
        if finish {
            tunnel.leave();
        }
        tunnel.poll(cx).map(Ok::<_, Infallible>)
    });
    if !obeyed.await {
        return tunnel.drop_client();
    }
    tunnel.say_goodbye().await;
}

async fn serve_http2(worker: Rc<Worker>, stream: Stream, conduct: Rc<Conduct>) {
    conduct.multiplexes();
    let limits = worker.limits;
    let header_list = limits.head.bytes.max(MIN_BUFFER) * HEADER_LIST_FACTOR;
    let connection = http2::Builder::new(OnThisCore)
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .max_concurrent_streams(limits.streams_per_connection)
        .max_header_list_size(u32::try_from(header_list).unwrap_or(u32::MAX))
        .serve_connection(TokioIo::new(Outlet::new(stream, conduct.clone())), gate(worker, conduct.clone()));
    let mut connection = pin!(connection);
    obey(&conduct, |cx, finish| {
        if finish {
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    })
    .await;
}

/// Polls a connection to its end, or as long as its orders let it. `poll` is told once to finish. Whether it has ended in
/// order.
async fn obey<E: Error + 'static>(
    conduct: &Conduct,
    mut poll: impl FnMut(&mut Context<'_>, bool) -> Poll<Result<(), E>>,
) -> bool {
    let mut finishing = false;
    let ended = std::future::poll_fn(|cx| {
        let finish = match conduct.order(cx.waker()) {
            Order::Serve => false,
            Order::Finish => !std::mem::replace(&mut finishing, true),
            Order::Break => return Poll::Ready(Ok(false)),
        };
        poll(cx, finish).map_ok(|()| true)
    });
    ended.await.unwrap_or_else(|error| {
        tracing::debug!(peer = %conduct.peer(), error = &error as &dyn Error, "connection ended");
        false
    })
}

/// Streams of a connection run on the core of the connection.
#[derive(Clone, Copy)]
struct OnThisCore;

impl<F: Future<Output = ()> + 'static> Executor<F> for OnThisCore {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}
