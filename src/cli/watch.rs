//! `highgate watch RESOURCE`: what happens to a resource, one line of JSON each, as it happens.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use highgate_elector::Resource;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::client::{Answer, Client, ClientError, EXIT_FAILED, Target, encoded};

/// The gateway says something every 15 s, if only that it is there.
const MAX_SILENCE: Duration = Duration::from_secs(45);
/// Before another gateway is asked.
const PAUSE: Duration = Duration::from_millis(200);

/// Streams what happens to a resource, as lines of JSON
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// The resource; what concerns the whole gateway is shown, too
    pub(super) resource: Resource,
    #[command(flatten)]
    pub(super) target: Target,
}

/// Why the stream is over, other than by its end.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the events cannot be written")]
    Output(#[from] io::Error),
}

/// Prints events until Ctrl-C, or until the gateway ends; of several gateways, until all have.
pub(super) async fn run(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let mut output = io::stdout();
    let watched = tokio::select! {
        watched = follow(&args.target, &args.resource, &mut output) => watched,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Failed::from),
    };
    match watched {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // Whoever reads us has had enough, like `head`.
        Err(Failed::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Failed::Client(error)) => Ok(error.report()),
        Err(Failed::Refused(detail)) => {
            eprintln!("highgate: {detail}");
            Ok(ExitCode::from(EXIT_FAILED))
        }
        Err(error @ Failed::Output(_)) => Err(error.into()),
    }
}

/// Watches at one gateway after the other.
async fn follow(target: &Target, resource: &Resource, output: &mut impl Write) -> Result<(), Failed> {
    let mut client = target.client()?;
    if let Some(note) = note_if_unseen(&client, resource).await? {
        eprintln!("highgate: {note}");
    }
    loop {
        let body = open(&client, resource).await?;
        match copy(&client, body, output).await {
            Err(error @ (Failed::Output(_) | Failed::Refused(_))) => return Err(error),
            ended if target.admin.len() == 1 => return ended,
            _ => {}
        }
        eprintln!(
            "highgate: {} has ended the stream; what happens until another tells is missed",
            client.names()
        );
        tokio::time::sleep(PAUSE).await;
        client = target.client()?;
    }
}

/// What to say of a resource that has no mark yet: it may be a slip of the hand, or the first token is still to come.
async fn note_if_unseen(client: &Client, resource: &Resource) -> Result<Option<String>, Failed> {
    let shown = client.get(&format!("/v1/resource?name={}", encoded(resource))).await?;
    let unseen = shown.status == StatusCode::NOT_FOUND;
    Ok(unseen.then(|| format!("{}; waiting for the first", shown.detail())))
}

async fn open(client: &Client, resource: &Resource) -> Result<Incoming, Failed> {
    let response = client.stream(&format!("/v1/events?resource={}", encoded(resource))).await?;
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        let answer = Answer { status: head.status, body: client.collect(body).await? };
        return Err(Failed::Refused(answer.detail()));
    }
    Ok(body)
}

/// Events as lines, until the stream ends.
async fn copy(client: &Client, mut body: Incoming, output: &mut impl Write) -> Result<(), Failed> {
    let mut lines = Lines::default();
    while let Some(piece) = next(client, &mut body).await? {
        lines.push(&piece);
        while let Some(line) = lines.next() {
            if let Some(event) = line.strip_prefix(b"data: ") {
                output.write_all(event)?;
                output.write_all(b"\n")?;
                output.flush()?;
            }
        }
    }
    Ok(())
}

/// The next piece of the body; none at its end.
async fn next(client: &Client, body: &mut Incoming) -> Result<Option<Bytes>, ClientError> {
    loop {
        let frame = timeout(MAX_SILENCE, body.frame()).await.map_err(|_| client.too_slow())?;
        let Some(frame) = frame.transpose().map_err(|error| client.broken(error))? else { return Ok(None) };
        if let Ok(piece) = frame.into_data() {
            return Ok(Some(piece));
        }
    }
}

/// Pieces in, whole lines out.
#[derive(Default)]
struct Lines {
    pending: BytesMut,
}

impl Lines {
    fn push(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
    }

    fn next(&mut self) -> Option<Bytes> {
        let end = self.pending.iter().position(|byte| *byte == b'\n')?;
        let line = self.pending.split_to(end).freeze();
        self.pending.advance(1);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use highgate::events::Notice;
    use parking_lot::Mutex;

    use super::*;
    use crate::cli::client::tests::{Running, gateway};
    use crate::cli::tls::TlsArgs;
    use highgate_elector::ClientTls;

    /// What was written so far, for whoever else looks.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn events_are_lines_until_the_gateway_ends() {
        let gateway = gateway().await;
        let target = Target {
            admin: vec![gateway.address.to_string().parse().unwrap()],
            token_file: None,
            tls: TlsArgs::default(),
        };
        let mut output = Shared::default();
        let seen = output.clone();
        let publish = async {
            let bus = &gateway.admin.bus;
            // Nobody says when the stream listens, so this goes on until it shows.
            while seen.0.lock().is_empty() {
                for (name, token) in [("b", 6), ("a", 7)] {
                    let resource = Resource::parse(name).unwrap();
                    let (route, client) = ("r".into(), [127, 0, 0, 1].into());
                    bus.publish(Notice::Stale { route, resource, token, mark: 9, client, count: 1 });
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            bus.publish(Notice::Draining);
            gateway.stop.send(true).unwrap();
        };
        let resource = Resource::parse("a").unwrap();
        let (watched, ()) = tokio::join!(follow(&target, &resource, &mut output), publish);
        watched.unwrap();
        let output = String::from_utf8(seen.0.lock().clone()).unwrap();
        let mut lines: Vec<serde_json::Value> =
            output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.pop().unwrap()["type"], "draining");
        assert!(lines.iter().all(|line| line["resource"] == "a" && line["token"] == 7), "{output}");
    }

    #[tokio::test]
    async fn a_resource_that_nobody_has_seen_is_said_to_be_unseen() {
        let gateway = gateway().await;
        let client =
            Client::new(&[gateway.address.to_string().parse().unwrap()], None, &ClientTls::default())
                .unwrap();
        let resource = Resource::parse("a").unwrap();
        let note = note_if_unseen(&client, &resource).await.unwrap();
        assert_eq!(note.as_deref(), Some("no token was ever seen for a; waiting for the first"));
        gateway.admin.store.ledger().enter(&resource);
        assert_eq!(note_if_unseen(&client, &resource).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_watch_goes_on_at_another_gateway() {
        let (first, second) = (gateway().await, gateway().await);
        let address = |running: &Running| running.address.to_string().parse().unwrap();
        let target = Target {
            admin: vec![address(&first), address(&second)],
            token_file: None,
            tls: TlsArgs::default(),
        };
        let mut output = Shared::default();
        let seen = output.clone();
        let story = async {
            for gateway in [&first, &second] {
                let before = seen.0.lock().len();
                while seen.0.lock().len() == before {
                    gateway.admin.bus.publish(Notice::Draining);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                gateway.stop.send(true).unwrap();
            }
        };
        let resource = Resource::parse("a").unwrap();
        let (watched, ()) = tokio::join!(follow(&target, &resource, &mut output), story);
        assert!(matches!(watched, Err(Failed::Client(_))), "in the end nobody answers");
    }

    #[test]
    fn lines_come_whole_however_the_pieces_are_cut() {
        let mut lines = Lines::default();
        lines.push(b"event: stale\nda");
        assert_eq!(lines.next().as_deref(), Some(&b"event: stale"[..]));
        assert_eq!(lines.next(), None);
        lines.push(b"ta: {}\n\n");
        assert_eq!(lines.next().as_deref(), Some(&b"data: {}"[..]));
        assert_eq!(lines.next().as_deref(), Some(&b""[..]));
        assert_eq!(lines.next(), None);
    }
}
