//! Signed tokens: the command gets one that is good for as long as it leads.

use crate::support::{Gateway, eventually};

#[test]
fn the_command_has_a_signed_token_that_follows_the_renewals() {
    let gateway = Gateway::signing();
    let script = "printenv FENCING_SIGNED_TOKEN > first; printenv FENCING_TOKEN > number
        printenv FENCING_HEADERS > headers
        while [ ! -e end ]; do
            cat $FENCING_SIGNED_TOKEN_FILE > new && mv new now; cp $FENCING_CURL_CONFIG curl; sleep 0.05
        done";
    let mut run = gateway.run("a", &["--resource", "r", "--ttl", "2s"]).sh(script);
    let read = |file: &str| gateway.read(file).trim().to_owned();
    eventually("the command", || !read("now").is_empty());
    let (first, number) = (read("first"), read("number"));
    assert!(first.starts_with(&format!("{number}.")), "{first}");
    assert!(read("headers").starts_with(&format!("X-Fencing-Token: {first}\n")), "{}", read("headers"));
    assert_eq!((gateway.write("r", &first), gateway.write("r", &number)), (200, 400));
    eventually("the first one ends", || gateway.write("r", &first) == 403);
    eventually("a later one is good", || gateway.write("r", &read("now")) == 200);
    assert!(read("curl").contains(&format!("header = \"X-Fencing-Token: {number}.")), "{}", read("curl"));
    std::fs::write(gateway.folder.path().join("end"), "").unwrap();
    assert_eq!(run.code(), 0);
    assert!(run.has_cleaned_up());
    eventually("its leader has left", || gateway.write("r", &read("now")) == 403);
}
