//! Answers of the admin port, and the problems that are some of them.

use std::convert::Infallible;

use bytes::Bytes;
use highgate_elector::Resource;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use serde_json::{Value, json};

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;
pub(super) type Answer = Response<Body>;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// Why a request was not carried out.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    resource: Option<String>,
    mark: Option<u64>,
    /// Who leads, where that is why; null: nobody.
    leader: Option<Box<Value>>,
    header: Option<Box<(HeaderName, &'static str)>>,
}

/// A problem in the form of RFC 9457.
#[derive(Serialize)]
struct Wire<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<Box<Value>>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), resource: None, mark: None, leader: None, header: None }
    }

    pub(super) fn about(self, resource: &Resource) -> Self {
        Self { resource: Some(resource.to_string()), ..self }
    }

    pub(super) fn at(self, mark: u64) -> Self {
        Self { mark: Some(mark), ..self }
    }

    pub(super) fn led_by(self, leader: Option<(&str, u64)>) -> Self {
        let leader = leader.map(|(holder, token)| json!({ "holder": holder, "token": token }));
        Self { leader: Some(Box::new(leader.into())), ..self }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn resource(&self) -> Option<&str> {
        self.resource.as_deref()
    }

    /// Whether it is who asked that is wrong, and not what was asked.
    pub(super) fn is_about_rights(&self) -> bool {
        matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    }

    pub(super) fn with(self, name: HeaderName, value: &'static str) -> Self {
        Self { header: Some(Box::new((name, value))), ..self }
    }
}

impl From<Problem> for Answer {
    fn from(Problem { status, detail, resource, mark, leader, header }: Problem) -> Self {
        let wire = Wire {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: &detail,
            resource: resource.as_deref(),
            mark,
            leader,
        };
        let mut answer = answer(status, PROBLEM, to_json(&wire));
        if let Some((name, value)) = header.map(|header| *header) {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}

pub(super) fn as_json(body: &impl Serialize) -> Answer {
    answer(StatusCode::OK, JSON, to_json(body))
}

/// One line for probes and people.
pub(super) fn line(status: StatusCode, text: &str) -> Answer {
    answer(status, TEXT, format!("{text}\n"))
}

pub(super) fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// What every answer tells a browser: believe the type, keep nothing, pass nothing on.
pub(super) fn harden(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

fn to_json(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("strings and numbers always serialise")
}
