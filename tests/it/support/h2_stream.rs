//! One HTTP/2 stream to the gateway, frame by frame: what is sent, and what comes back when.
//!
//! On a connection, thread and runtime of its own, so that tests stay plain code.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use h2::client::{self, ResponseFuture};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::PATIENCE;
use super::client::Ask;

/// What comes back on a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Head(u16, HeaderMap),
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    Reset(Option<Reason>),
}

/// What goes out.
enum Part {
    Data(Bytes),
    End,
    Trailers(HeaderMap),
    Reset(Reason),
}

/// A stream that is open. Dropping it drops its connection.
pub(crate) struct Stream {
    parts: UnboundedSender<Part>,
    events: mpsc::Receiver<Event>,
}

impl Stream {
    /// Sends the head; the body stays open.
    pub(crate) fn open(address: SocketAddr, ask: &Ask) -> Self {
        let (parts, outbox) = unbounded_channel();
        let (inbox, events) = mpsc::channel();
        let request = head(ask);
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(run(address, request, outbox, inbox));
        });
        let stream = Self { parts, events };
        if !ask.body.is_empty() {
            stream.send(&ask.body);
        }
        stream
    }

    pub(crate) fn send(&self, data: &[u8]) -> &Self {
        self.part(Part::Data(Bytes::copy_from_slice(data)))
    }

    pub(crate) fn end(&self) -> &Self {
        self.part(Part::End)
    }

    pub(crate) fn end_with(&self, name: &'static str, value: &'static str) -> &Self {
        let field = (http::HeaderName::from_static(name), http::HeaderValue::from_static(value));
        self.part(Part::Trailers(HeaderMap::from_iter([field])))
    }

    pub(crate) fn reset(&self, reason: Reason) -> &Self {
        self.part(Part::Reset(reason))
    }

    fn part(&self, part: Part) -> &Self {
        // What is sent after the stream has ended is lost, and that is nobody's fault.
        let _ = self.parts.send(part);
        self
    }

    /// What comes next. Fails if nothing does in time.
    pub(crate) fn next(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("something more on the stream, in time")
    }

    /// The response head, which has this status.
    pub(crate) fn head(&self, status: u16) -> HeaderMap {
        match self.next() {
            Event::Head(got, headers) if got == status => headers,
            other => panic!("not a head with {status}: {other:?}"),
        }
    }

    /// So many bytes of the body, however they are cut.
    pub(crate) fn body(&self, length: usize) -> String {
        let mut body = Vec::new();
        while body.len() < length {
            match self.next() {
                Event::Data(data) => body.extend_from_slice(&data),
                other => panic!("{length} bytes were expected: {other:?} after {body:?}"),
            }
        }
        String::from_utf8(body).expect("a body of text")
    }

    /// The fields that end the stream, after any rest of the body.
    pub(crate) fn trailers(&self) -> HeaderMap {
        loop {
            match self.next() {
                Event::Data(_) => {}
                Event::Trailers(trailers) => return trailers,
                other => panic!("no trailers, but {other:?}"),
            }
        }
    }
}

fn head(ask: &Ask) -> Request<()> {
    let host = ask.headers.first().map_or("ledger.test", |(_, host)| host.as_str());
    let mut request =
        Request::builder().method(ask.method.as_str()).uri(format!("http://{host}{}", ask.path));
    for (name, value) in ask.headers.iter().skip(1) {
        request = request.header(name, value);
    }
    request.body(()).expect("a head that HTTP/2 can say")
}

async fn run(
    address: SocketAddr,
    request: Request<()>,
    mut outbox: UnboundedReceiver<Part>,
    inbox: mpsc::Sender<Event>,
) {
    let stream = TcpStream::connect(address).await.expect("the gateway listens");
    stream.set_nodelay(true).expect("a connected socket takes TCP_NODELAY");
    let (client, connection) = client::handshake(stream).await.expect("an HTTP/2 handshake");
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.expect("room for a stream");
    let (response, mut upload) = client.send_request(request, false).expect("a head is sent");
    tokio::spawn(receive(response, inbox));
    while let Some(part) = outbox.recv().await {
        send(&mut upload, part);
    }
    connection.abort();
}

fn send(upload: &mut SendStream<Bytes>, part: Part) {
    let _ = match part {
        Part::Data(data) => upload.send_data(data, false),
        Part::End => upload.send_data(Bytes::new(), true),
        Part::Trailers(trailers) => upload.send_trailers(trailers),
        Part::Reset(reason) => {
            upload.send_reset(reason);
            Ok(())
        }
    };
}

async fn receive(response: ResponseFuture, inbox: mpsc::Sender<Event>) {
    let tell = |event| drop(inbox.send(event));
    match response.await {
        Err(error) => tell(Event::Reset(error.reason())),
        Ok(response) => {
            let (head, body) = response.into_parts();
            tell(Event::Head(head.status.as_u16(), head.headers));
            tell(receive_body(body, &tell).await);
        }
    }
}

async fn receive_body(mut body: RecvStream, tell: &impl Fn(Event)) -> Event {
    while let Some(data) = body.data().await {
        match data {
            Ok(data) => {
                let _ = body.flow_control().release_capacity(data.len());
                if !data.is_empty() {
                    tell(Event::Data(data));
                }
            }
            Err(error) => return Event::Reset(error.reason()),
        }
    }
    match poll_fn(|cx| body.poll_trailers(cx)).await {
        Ok(Some(trailers)) => Event::Trailers(trailers),
        Ok(None) => Event::End,
        Err(error) => Event::Reset(error.reason()),
    }
}
