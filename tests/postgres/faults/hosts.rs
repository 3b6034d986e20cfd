//! A primary and a synchronous standby: which of them is used, and what goes on when the standby takes over.

use fairlock::{PostgresBackend, TryLock};
use fairlock_tests::errors::assert_unavailable;
use fairlock_tests::{Alone, PostgresServer, eventually};

use crate::support::{SOON, client, granted, patient, request, take, until_in_line, until_nothing_left};

fn url_of(servers: [&PostgresServer; 2]) -> String {
    let [first, second] = servers.map(PostgresServer::address);
    format!("postgres://fairlock@{first},{second}/fairlock?target_session_attrs=read-write")
}

#[test]
fn the_host_that_takes_writes_is_found_before_and_after_a_fail_over() {
    let _alone = Alone::here();
    let primary = PostgresServer::builder().start();
    let standby = primary.standby("near");
    for sql in ["alter system set synchronous_standby_names = 'near'", "select pg_reload_conf()"] {
        primary.con().batch_execute(sql).unwrap();
    }
    let parts = [&standby.address(), "it takes no writes: a standby"];
    assert_unavailable(PostgresBackend::connect(&standby.url()), &parts);
    let (ours, theirs) = (patient(&url_of([&standby, &primary])), patient(&url_of([&primary, &standby])));
    let guard = take(&ours.fair_lock("x").unwrap());
    let waiting = request(&theirs, "x");
    until_in_line(&ours, "x", 1);
    primary.kill();
    standby.promote();
    eventually(SOON, "it takes writes", || PostgresBackend::connect(&standby.url()).is_ok());
    let other = client(&standby.url());
    assert!(matches!(other.fair_lock("x").unwrap().try_lock().unwrap(), TryLock::Busy));
    eventually(SOON, "renewed", || guard.renew().is_ok()); // its connection was to the former primary
    let token = guard.token();
    guard.unlock().unwrap();
    let next = granted(waiting, SOON);
    assert!(next.token() > token);
    next.unlock().unwrap();
    until_nothing_left(&standby);
}
