//! What gateways keep in etcd, as values: marks, members and tombstones.
//!
//! Lines of JSON, so that `etcdctl get` shows what there is. The gateway's store writes them all; the elector
//! raises the mark of what it has won. [`crate::keys`] says where they are. What must stay true: fields that a
//! reader does not know are skipped, and a value that lacks something or is of the wrong kind is no value.

use std::time::Duration;

use serde_json::{Value, json};

use highgate_token::Token;

/// The mark of a resource: `f/<resource>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// The mark; 0 of a resource that nobody has led.
    pub token: u64,
    /// The gate is closed until every lower request has ended; else it is open to exactly `token`.
    pub raised: bool,
    /// An operator holds it closed.
    pub frozen: bool,
    /// Its leader has gone and nobody has taken over.
    pub vacant: bool,
    /// An end with unknown outcome blocks higher tokens until an operator settles it.
    pub block: bool,
    /// The same of the mark that is being raised, once it is open.
    pub block_next: bool,
    /// Raised with the proof that an election issued the token.
    pub issued: bool,
    /// Unknown outcomes up to this revision were settled by an operator; 0: none was.
    pub settled: i64,
}

/// A gateway that serves: `m/<incarnation>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberValue {
    /// Where it listens, for people.
    pub name: String,
    /// Every change up to this revision is applied.
    pub watermark: i64,
    /// The revisions of the raises whose lower requests have not all ended here.
    pub draining: Vec<i64>,
    /// How long it may serve after a renewal.
    pub validity: Duration,
    /// The longest that it waits after an end whose outcome is unknown.
    pub lock_delay: Duration,
}

/// A gateway that was evicted and may not know it yet: `t/<incarnation>`, with the last that it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TombstoneValue {
    /// The revision at which its member key was created.
    pub created: i64,
    pub watermark: i64,
    pub draining: Vec<i64>,
    pub validity: Duration,
    pub lock_delay: Duration,
}

impl Fence {
    pub fn encode(&self) -> Vec<u8> {
        let mut value = json!({"token": self.token, "state": if self.raised { "raised" } else { "open" }});
        let flags = [
            ("frozen", self.frozen),
            ("vacant", self.vacant),
            ("block", self.block),
            ("block_next", self.block_next),
            ("issued", self.issued),
        ];
        for (name, _) in flags.into_iter().filter(|(_, set)| *set) {
            value[name] = true.into();
        }
        if self.settled != 0 {
            value["settled"] = self.settled.into();
        }
        line(&value)
    }

    pub fn decode(value: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(value).ok()?;
        let flag = |name: &str| value.get(name).map_or(Some(false), Value::as_bool);
        Some(Self {
            token: value.get("token")?.as_u64().filter(|token| *token <= Token::MAX)?,
            raised: match value.get("state")?.as_str()? {
                "raised" => true,
                "open" => false,
                _ => return None,
            },
            frozen: flag("frozen")?,
            vacant: flag("vacant")?,
            block: flag("block")?,
            block_next: flag("block_next")?,
            issued: flag("issued")?,
            settled: value.get("settled").map_or(Some(0), revision)?,
        })
    }
}

impl MemberValue {
    pub fn encode(&self) -> Vec<u8> {
        line(&json!({
            "name": self.name,
            "watermark": self.watermark,
            "draining": self.draining,
            "validity_ms": millis(self.validity),
            "lock_delay_ms": millis(self.lock_delay),
        }))
    }

    pub fn decode(value: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(value).ok()?;
        Some(Self {
            name: value.get("name")?.as_str()?.to_owned(),
            watermark: revision(value.get("watermark")?)?,
            draining: revisions(value.get("draining")?)?,
            validity: duration(value.get("validity_ms")?)?,
            lock_delay: duration(value.get("lock_delay_ms")?)?,
        })
    }
}

impl TombstoneValue {
    pub fn encode(&self) -> Vec<u8> {
        line(&json!({
            "created": self.created,
            "watermark": self.watermark,
            "draining": self.draining,
            "validity_ms": millis(self.validity),
            "lock_delay_ms": millis(self.lock_delay),
        }))
    }

    pub fn decode(value: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(value).ok()?;
        Some(Self {
            created: revision(value.get("created")?)?,
            watermark: revision(value.get("watermark")?)?,
            draining: revisions(value.get("draining")?)?,
            validity: duration(value.get("validity_ms")?)?,
            lock_delay: duration(value.get("lock_delay_ms")?)?,
        })
    }
}

fn line(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn revision(value: &Value) -> Option<i64> {
    value.as_i64().filter(|revision| *revision >= 0)
}

fn revisions(value: &Value) -> Option<Vec<i64>> {
    value.as_array()?.iter().map(revision).collect()
}

/// Rounded up: whoever waits for it waits rather too long.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn duration(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(value: Vec<u8>) -> String {
        String::from_utf8(value).unwrap()
    }

    #[test]
    fn a_mark_says_no_more_than_there_is_to_say() {
        let mark = Fence { token: 7, ..Fence::default() };
        assert_eq!(text(mark.encode()), r#"{"state":"open","token":7}"#);
        let mark = Fence { raised: true, issued: true, block_next: true, settled: 9, ..mark };
        let written = r#"{"block_next":true,"issued":true,"settled":9,"state":"raised","token":7}"#;
        assert_eq!(text(mark.encode()), written);
    }

    #[test]
    fn members_and_tombstones_are_read_back() {
        let member = MemberValue {
            name: "gate-1:8080".to_owned(),
            watermark: 12,
            draining: vec![7, 9],
            validity: Duration::from_secs(4),
            lock_delay: Duration::from_micros(4_999_001),
        };
        let read = MemberValue::decode(&member.encode()).unwrap();
        assert_eq!(read.lock_delay, Duration::from_secs(5), "what is not whole is rounded up");
        assert_eq!(MemberValue { lock_delay: member.lock_delay, ..read }, member);
        let tombstone = TombstoneValue {
            created: 3,
            watermark: 12,
            draining: Vec::new(),
            validity: Duration::from_secs(1),
            lock_delay: Duration::ZERO,
        };
        assert_eq!(TombstoneValue::decode(&tombstone.encode()), Some(tombstone));
    }

    #[test]
    fn unknown_fields_are_skipped_and_nonsense_is_no_value() {
        let newer = br#"{"token":7,"state":"raised","raise_revision":4,"frozen":false,"by":["x"]}"#;
        assert_eq!(Fence::decode(newer), Some(Fence { token: 7, raised: true, ..Fence::default() }));
        for nonsense in [
            "",
            "7",
            "[]",
            r#"{"token":7}"#,
            r#"{"state":"open"}"#,
            r#"{"token":7,"state":"shut"}"#,
            r#"{"token":-7,"state":"open"}"#,
            r#"{"token":9223372036854775808,"state":"open"}"#,
            r#"{"token":7.5,"state":"open"}"#,
            r#"{"token":7,"state":"open","frozen":1}"#,
            r#"{"token":7,"state":"open","settled":-1}"#,
        ] {
            assert_eq!(Fence::decode(nonsense.as_bytes()), None, "{nonsense}");
        }
        let member =
            r#"{"name":"g","watermark":1,"draining":[1],"validity_ms":1,"lock_delay_ms":1,"more":0}"#;
        assert!(MemberValue::decode(member.as_bytes()).is_some());
        for (right, wrong) in [
            (r#""name":"g","#, ""),
            (r#""watermark":1"#, r#""watermark":"1""#),
            ("[1]", "1"),
            ("[1]", r#"["1"]"#),
            (r#""validity_ms":1"#, r#""validity_ms":-1"#),
        ] {
            assert_eq!(MemberValue::decode(member.replace(right, wrong).as_bytes()), None, "{wrong}");
        }
        assert_eq!(TombstoneValue::decode(member.as_bytes()), None, "it lacks when it was created");
    }

    proptest! {
        #[test]
        fn every_mark_is_read_back(
            token in 0..=Token::MAX, flags in any::<[bool; 6]>(), settled in 0..=i64::MAX,
        ) {
            let [raised, frozen, vacant, block, block_next, issued] = flags;
            let mark = Fence { token, raised, frozen, vacant, block, block_next, issued, settled };
            prop_assert_eq!(Fence::decode(&mark.encode()), Some(mark));
        }
    }
}
