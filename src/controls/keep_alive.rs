//! Validity from whatever any node says: a read that a node answers from its own memory, without asking the others.
//!
//! Such a node may be cut off from the rest, and then its word means nothing. It is asked over etcd's HTTP API, since
//! the client proper tells a node not to answer when it has lost its cluster.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_millis(300);
/// Any key will do: this is "x".
const QUESTION: &str = r#"{"key":"eA==","serializable":true}"#;

/// Whether any of the nodes of `etcd://host:port,host:port/prefix` answers.
pub(crate) async fn is_answered(location: &str) -> bool {
    let nodes = location.replace("http://", "");
    let nodes = nodes.trim_start_matches("etcd://").split('/').next().unwrap_or_default();
    for node in nodes.split(',') {
        if matches!(tokio::time::timeout(PATIENCE, ask(node)).await, Ok(Ok(true))) {
            return true;
        }
    }
    false
}

async fn ask(node: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(node).await?;
    let length = QUESTION.len();
    let head = format!("POST /v3/kv/range HTTP/1.1\r\nHost: {node}\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{QUESTION}").as_bytes()).await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    Ok(&answer == b"HTTP/1.1 200")
}
