//! What reached an upstream, as other readers see it.

use std::cell::RefCell;
use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;

use super::recorder::{Read, Stream};

/// hyper reads every stream as the recorder did. Where `HIGHGATE_STREAMS` names a folder, the streams are put there for
/// `scripts/readers` to show them to others.
pub(super) fn agree(name: &str, streams: &[Stream]) {
    let used: Vec<_> = streams.iter().filter(|stream| !stream.requests.is_empty()).collect();
    assert!(!used.is_empty(), "{name}: nothing was forwarded at all");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for stream in &used {
        let read = tokio::task::LocalSet::new()
            .block_on(&runtime, hypers_reading(stream.bytes[..stream.whole].to_vec()));
        assert_eq!(read, stream.requests, "{name}: hyper reads {}", String::from_utf8_lossy(&stream.bytes));
    }
    if let Some(folder) = std::env::var_os("HIGHGATE_STREAMS") {
        let file = Path::new(&folder).join(format!("{name}.json"));
        let streams: Vec<_> = used.iter().map(|stream| as_json(stream)).collect();
        std::fs::write(file, json!(streams).to_string()).expect("a folder that can be written to");
    }
}

async fn hypers_reading(bytes: Vec<u8>) -> Vec<Read> {
    let (client, server) = tokio::io::duplex(64 << 10);
    let read = Rc::new(RefCell::new(Vec::new()));
    let kept = read.clone();
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let kept = kept.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("a whole body").to_bytes().to_vec();
            let named = head.headers.iter().map(|(name, value)| {
                (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            });
            let (method, target) = (head.method.to_string(), head.uri.to_string());
            kept.borrow_mut().push(Read { method, target, headers: named.collect(), body });
            Ok::<_, Infallible>(hyper::Response::new(Full::new(Bytes::from_static(b"ok"))))
        }
    });
    let (mut answers, mut requests) = tokio::io::split(client);
    let writing = async {
        // A server that was told to close does not read to the end.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut requests, &bytes).await;
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut requests).await;
    };
    let serving = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(server), service);
    let mut sink = tokio::io::sink();
    let (_, served, _) = tokio::join!(writing, serving, tokio::io::copy(&mut answers, &mut sink));
    served.expect("hyper reads what the gateway sends");
    read.take()
}

fn as_json(stream: &Stream) -> serde_json::Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let requests: Vec<_> = stream
        .requests
        .iter()
        .map(|request| {
            json!({
                "method": request.method,
                "target": request.target,
                "headers": request.headers,
                "body": hex(&request.body),
            })
        })
        .collect();
    json!({ "bytes": hex(&stream.bytes[..stream.whole]), "requests": requests })
}
