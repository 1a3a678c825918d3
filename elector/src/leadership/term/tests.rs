//! When a term ends, why, and when its work is told to stop.

use super::*;
use crate::Resource;

fn term(ttl: Duration) -> Term {
    let grant = Grant {
        resource: Resource::parse("ledger").unwrap(),
        holder: "me".to_owned(),
        token: Token::new(7).unwrap(),
        lease: "1".to_owned(),
        ttl,
        signed_token: None,
    };
    Term::new(grant, Moment::now() + ttl, ttl / 3, Arc::new(Metrics::new("ledger")))
}

#[test]
fn a_term_that_expired_is_not_brought_back_by_a_late_renewal() {
    let term = term(Duration::from_millis(1));
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(term.renewed(Moment::now()), Err(Lost::Expired));
    assert_eq!(term.check(), Err(Lost::Expired));
}

#[test]
fn a_renewal_counts_from_when_it_was_sent_and_never_shortens() {
    let term = term(Duration::from_secs(10));
    let held = term.valid_until().unwrap();
    assert_eq!(term.renewed(Moment::from_nanos(1)), Ok(held));
    let sent = Moment::now() + Duration::from_secs(1);
    assert_eq!(term.renewed(sent), Ok(sent + Duration::from_millis(9900)));
}

#[tokio::test]
async fn the_first_reason_stays() {
    let term = term(Duration::from_secs(10));
    term.end(Lost::Deposed);
    term.end(Lost::Resigned);
    assert_eq!((term.check(), term.lost().await), (Err(Lost::Deposed), Lost::Deposed));
}

#[tokio::test]
async fn the_work_of_a_term_that_is_taken_away_has_its_grace_and_no_more_than_the_lease() {
    let (long, short) = (term(Duration::from_secs(30)), term(Duration::from_secs(30)));
    let (before, until) = (Moment::now(), long.valid_until().unwrap());
    long.end(Lost::Deposed);
    let stop = long.stop().await;
    assert_eq!(stop.why, Lost::Deposed);
    assert!(stop.by >= before + Duration::from_secs(10) && stop.by < until, "{stop:?}");
    // Two seconds of the lease are left, and ten of the grace.
    short.until.store((Moment::now() + Duration::from_secs(2)).nanos(), Ordering::Release);
    let until = short.valid_until().unwrap();
    short.end(Lost::Stale);
    assert_eq!(short.stop().await, Stop { why: Lost::Stale, by: until });
}

#[tokio::test]
async fn the_work_is_told_a_grace_before_the_end_and_a_late_renewal_takes_nothing_back() {
    let term = term(Duration::from_secs(30));
    assert_eq!((term.proceed(), term.told()), (Ok(term.grant.token), None));
    term.until.store((Moment::now() + Duration::from_secs(9)).nanos(), Ordering::Release);
    let until = term.valid_until().unwrap();
    assert_eq!(term.proceed(), Err(Lost::Expired));
    assert_eq!(term.check(), Ok(term.grant.token), "there is time to finish a write");
    assert_eq!(term.stop().await, Stop { why: Lost::Expired, by: until });
    assert!(term.renewed(Moment::now()).unwrap() > until);
    assert_eq!((term.proceed(), term.stop().await.by), (Err(Lost::Expired), until));
}

#[test]
fn a_term_that_expires_while_a_renewal_is_unanswered_ends_because_the_backend_is_away() {
    let term = term(Duration::from_millis(2));
    term.asked();
    std::thread::sleep(Duration::from_millis(3));
    assert_eq!(term.check(), Err(Lost::BackendAway));
}

#[test]
fn a_term_that_expires_while_the_watchdog_withholds_renewals_is_stuck() {
    let term = term(Duration::from_millis(2));
    std::thread::sleep(Duration::from_millis(3));
    assert!(term.is_stuck(Duration::from_millis(1)));
    assert_eq!(term.check(), Err(Lost::Stuck));
}
