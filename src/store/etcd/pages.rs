//! Ranges that are too long for one answer, read page by page.
//!
//! Nobody knows beforehand how large a value is: a candidate may hold a megabyte. A page that is too large for one
//! answer is asked for again with half as many keys, down to a single one.

use highgate_etcd::{CallError, KeyValue, Range};

use super::link::{Link, Trouble};

const PAGE: i64 = 4000;

/// What `read` makes of every key of the range. If the request names a revision, all pages are of that one.
pub(super) async fn pages<T>(
    link: &Link,
    request: Range,
    read: impl Fn(KeyValue) -> Option<T>,
) -> Result<Vec<T>, Trouble> {
    let mut page = request.limit(PAGE);
    let mut found = Vec::new();
    loop {
        let answer = match link.range(page.clone()).await {
            Err(Trouble::Call(CallError::TooLarge)) if page.limit > 1 => {
                page.limit /= 2;
                continue;
            }
            answer => answer?,
        };
        let last = answer.kvs.last().map(|kv| kv.key.clone());
        found.extend(answer.kvs.into_iter().filter_map(&read));
        match last {
            Some(last) if answer.more => page.key = [&last[..], b"\0"].concat(),
            _ => return Ok(found),
        }
    }
}
