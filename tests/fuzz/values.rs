//! What gateways keep in etcd: every value, or none, and what is read is written back as the same.

use highgate_elector::Token;
use highgate_etcd::fence::{Fence, MemberValue, TombstoneValue};

use super::target::{Answer, Target, ensure, texts};

pub(crate) fn target() -> Target {
    let examples = texts(&[
        r#"{"state":"open","token":7}"#,
        r#"{"block_next":true,"issued":true,"settled":9,"state":"raised","token":7}"#,
        r#"{"token":7,"state":"raised","frozen":true,"vacant":false,"block":true,"more":["x",{}]}"#,
        r#"{"name":"gate-1:8080","watermark":12,"draining":[7,9],"validity_ms":4000,"lock_delay_ms":5000}"#,
        r#"{"created":3,"watermark":12,"draining":[],"validity_ms":1000,"lock_delay_ms":0}"#,
        r#"{"token":7,"state":"shut"}"#,
        r#"{"token":-7,"state":"open"}"#,
        r#"{"token":9223372036854775808,"state":"open"}"#,
        r#"{"token":7.5,"state":"open","settled":-1}"#,
        "[]",
        "7",
        "",
    ]);
    let words = &[
        "true",
        "false",
        "null",
        "[",
        "]",
        "{",
        ":",
        ",",
        "\\u00e9",
        "\\ud800",
        "\"token\":",
        "\"state\":\"open\"",
        "\"settled\":",
        "\"issued\":true",
        "\"draining\":",
        "\"name\":",
        "\"created\":",
        "1e9",
    ];
    Target { name: "values", accepted: "are a value", examples, words, check, exact: true }
}

fn check(input: &[u8]) -> Result<Answer, String> {
    let fence = Fence::decode(input);
    if let Some(fence) = fence {
        ensure(fence.token <= Token::MAX && fence.settled >= 0, || format!("out of range: {fence:?}"))?;
        ensure(Fence::decode(&fence.encode()) == Some(fence), || format!("not written back: {fence:?}"))?;
    }
    let member = MemberValue::decode(input);
    if let Some(member) = &member {
        let again = MemberValue::decode(&member.encode());
        ensure(again.as_ref() == Some(member), || format!("not written back: {member:?}"))?;
    }
    let tombstone = TombstoneValue::decode(input);
    if let Some(tombstone) = &tombstone {
        let again = TombstoneValue::decode(&tombstone.encode());
        ensure(again.as_ref() == Some(tombstone), || format!("not written back: {tombstone:?}"))?;
    }
    Ok(Answer::of(fence.is_some() || member.is_some() || tombstone.is_some()))
}
