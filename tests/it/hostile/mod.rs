//! Requests and responses that two readers would cut in two ways, as tables: through the real gateway, to an upstream
//! that keeps exact bytes.
//!
//! What must hold for every case, however its bytes are cut and whatever follows it: it is answered as the table says; as
//! many requests reach the upstream as the gateway says that it let through; none of them is the one inside another's
//! body; and what reached the upstream is read alike by a strict reader, by hyper and, in `scripts/readers`, by h11 and
//! httptools.

mod laws;
mod readers;
mod recorder;
mod replies;
mod stand;
mod streams;
mod table;

use stand::Stand;

macro_rules! tables {
    ($($test:ident => $file:literal,)+) => {
        $(#[test]
        fn $test() {
            Stand::start().try_all(concat!("requests-", $file), include_str!(concat!("cases/", $file, ".txt")));
        })+
    };
}

tables! {
    start_lines_and_fields_have_one_reading => "heads",
    lengths_have_one_reading => "lengths",
    transfer_codings_have_one_reading => "codings",
    chunks_have_one_reading => "chunks",
    targets_and_hosts_have_one_reading => "targets",
    fields_that_speak_to_the_fence_have_one_reading => "fencing",
    what_is_inside_a_body_is_no_request => "bodies",
}

#[test]
fn a_frame_of_http2_becomes_no_line_of_http1() {
    streams::try_all(include_str!("cases/streams.txt"));
}

#[test]
fn an_upstream_that_lies_deceives_nobody() {
    replies::try_all(include_str!("cases/replies.txt"));
}

#[test]
fn there_are_enough_cases_and_none_twice() {
    let tables = [
        include_str!("cases/heads.txt"),
        include_str!("cases/lengths.txt"),
        include_str!("cases/codings.txt"),
        include_str!("cases/chunks.txt"),
        include_str!("cases/targets.txt"),
        include_str!("cases/fencing.txt"),
        include_str!("cases/bodies.txt"),
        include_str!("cases/replies.txt"),
    ];
    let mut names: Vec<_> =
        tables.iter().flat_map(|table| table::cases(table)).map(|case| case.name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "two cases have one name");
    assert!(count >= 200, "{count} cases");
}
