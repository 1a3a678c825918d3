//! The live page: one file without external parts. Its policy lets nothing else run.

use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use uuid::Uuid;

use super::answer::{Answer, answer};

const PAGE: &str = include_str!("page.html");

/// Style and script carry a number that is new every time: what somebody managed to insert would not know it.
pub(super) fn show() -> Answer {
    let nonce = Uuid::new_v4().simple().to_string();
    let mut page = answer(StatusCode::OK, "text/html; charset=utf-8", PAGE.replace("{nonce}", &nonce));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let policy = HeaderValue::try_from(policy).expect("hexadecimal digits are valid in a header");
    page.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    page
}
