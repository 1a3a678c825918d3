//! `--metrics ADDRESS`: the elector's own metrics of this run, for Prometheus to fetch.
//!
//! They live in a recorder of this run, not in the process's: nothing else counts into them. What must stay true: whoever
//! fetches them, or does not end to, holds nothing up; and the port is there before the campaign begins.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use highgate::config::parse_address;
use highgate_elector::{BuildError, Builder, Elector};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};

use super::say;

const PATH: &str = "/metrics";
const MAX_CONNECTIONS: usize = 16;
/// For a request's head, and so also between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Out of file descriptors, for one: trying again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often histograms are added up when nobody fetches them.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);
const HEARTBEAT_BUCKETS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
const FAILOVER_BUCKETS: [f64; 11] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The metrics of a run, if somebody wants them.
pub(super) struct Metrics(Option<PrometheusRecorder>);

impl Metrics {
    /// Begins to serve, and says where.
    pub(super) async fn start(address: Option<SocketAddr>) -> anyhow::Result<Self> {
        let Some(address) = address else { return Ok(Self(None)) };
        let listener =
            TcpListener::bind(address).await.with_context(|| format!("cannot serve metrics on {address}"))?;
        let recorder = recorder().context("cannot keep metrics")?;
        say(&format!("metrics on http://{}{PATH}", listener.local_addr()?));
        tokio::spawn(serve(listener, recorder.handle()));
        tokio::spawn(upkeep(recorder.handle()));
        Ok(Self(Some(recorder)))
    }

    /// Builds an elector that counts here.
    pub(super) fn build(&self, builder: Builder) -> Result<Elector, BuildError> {
        match &self.0 {
            None => builder.build(),
            Some(recorder) => metrics::with_local_recorder(recorder, || {
                highgate_elector::metrics::describe();
                builder.build()
            }),
        }
    }
}

/// The same forms of an address as those of a gateway's ports.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    parse_address(text).map_err(|what| format!("{what}, such as :9903 or 127.0.0.1:9903"))
}

fn recorder() -> anyhow::Result<PrometheusRecorder> {
    let named = |name: &str| Matcher::Full(format!("highgate_elector_{name}"));
    Ok(PrometheusBuilder::new()
        .set_buckets_for_metric(named("heartbeat_duration_seconds"), &HEARTBEAT_BUCKETS)?
        .set_buckets_for_metric(named("failover_seconds"), &FAILOVER_BUCKETS)?
        .build_recorder())
}

async fn serve(listener: TcpListener, metrics: PrometheusHandle) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let metrics = metrics.clone();
                tokio::spawn(async move {
                    connection(stream, metrics).await;
                    drop(slot);
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, metrics: PrometheusHandle) {
    let answer = service_fn(move |request| {
        let metrics = metrics.clone();
        async move { Ok::<_, Infallible>(answer(&request, &metrics)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer);
    // Whoever hangs up, or takes too long, gets no more.
    let _ended = timeout(HEADER_TIMEOUT * 2, connection).await;
}

fn answer(request: &Request<Incoming>, metrics: &PrometheusHandle) -> Response<Full<Bytes>> {
    let is_asked = request.uri().path() == PATH && matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, body) = match is_asked {
        true => (StatusCode::OK, metrics.render()),
        false => (StatusCode::NOT_FOUND, format!("there is only GET {PATH} here\n")),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn upkeep(metrics: PrometheusHandle) {
    let mut period = interval(UPKEEP_PERIOD);
    loop {
        period.tick().await;
        metrics.run_upkeep();
    }
}
