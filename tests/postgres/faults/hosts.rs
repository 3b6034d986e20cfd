//! A primary and a synchronous standby: which of them is used, and what goes on when the standby takes over.

use std::thread;
use std::time::Duration;

use fairlock::{Client, Error, PostgresBackend, TryLock};
use fairlock_tests::errors::{assert_says, assert_unavailable};
use fairlock_tests::{Alone, PgPool, PostgresServer, eventually};

use super::support::{
    SOON, client, granted, patient, request, take, until_in_queue, until_nothing_left, within,
};

fn url_of(servers: [&PostgresServer; 2]) -> String {
    let [first, second] = servers.map(PostgresServer::address);
    format!("postgres://fairlock@{first},{second}/fairlock?target_session_attrs=read-write")
}

/// The host that takes writes is found before and after a fail-over.
#[test]
fn the_writable_host_is_found_before_and_after_a_fail_over() {
    let _alone = Alone::here();
    let primary = PostgresServer::builder().start();
    let standby = primary.standby("near");
    for sql in ["alter system set synchronous_standby_names = 'near'", "select pg_reload_conf()"] {
        primary.con().batch_execute(sql).unwrap();
    }
    let parts = [&standby.address(), "it takes no writes: it is a standby"];
    assert_unavailable(PostgresBackend::connect(&standby.url()), &parts);
    let (ours, theirs) = (patient(&url_of([&standby, &primary])), patient(&url_of([&primary, &standby])));
    let guard = take(&ours.fair_lock("x").unwrap());
    let waiting = request(&theirs, "x");
    until_in_queue(&ours, "x", 1);
    primary.kill();
    standby.promote();
    eventually("it takes writes", || PostgresBackend::connect(&standby.url()).is_ok());
    let other = client(&standby.url());
    assert!(matches!(other.fair_lock("x").unwrap().try_lock().unwrap(), TryLock::Busy(_)));
    eventually("renewed", || guard.renew().is_ok()); // its connection was to the former primary
    let token = guard.token();
    guard.unlock().unwrap();
    let next = granted(waiting, SOON);
    assert!(next.token() > token);
    next.unlock().unwrap();
    until_nothing_left(&standby);
}

/// A host that takes no writes any more is left for the other host. An operator makes it so before a planned fail-over; behind
/// one address a pooler may lead elsewhere at any time.
#[test]
fn a_host_that_became_read_only_is_left_for_the_other() {
    let _alone = Alone::here();
    let primary = PostgresServer::builder().start();
    let standby = primary.standby("near");
    for sql in ["alter system set synchronous_standby_names = 'near'", "select pg_reload_conf()"] {
        primary.con().batch_execute(sql).unwrap();
    }
    let ours = patient(&url_of([&primary, &standby]));
    let guard = take(&ours.fair_lock("x").unwrap());
    let waiting = request(&ours, "x");
    // Connections that are idle when it happens.
    thread::scope(|scope| {
        (0..4).for_each(|n| {
            let ours = &ours;
            scope.spawn(move || take(&ours.fair_lock(format!("of {n}")).unwrap()).unlock().unwrap());
        });
    });
    for sql in ["alter system set default_transaction_read_only = on", "select pg_reload_conf()"] {
        primary.con().batch_execute(sql).unwrap();
    }
    standby.promote();
    eventually("it takes writes", || PostgresBackend::connect(&standby.url()).is_ok());
    eventually("renewed there", || guard.renew().is_ok()); // it is one attempt
    within(Duration::from_secs(3), || take(&ours.fair_lock("new").unwrap()).unlock().unwrap());
    let holder = client(&standby.url()).fair_lock("x").unwrap().admin().inspect().unwrap();
    assert_eq!(holder.holder().unwrap().token, Some(guard.token()), "it was renewed there");
    guard.unlock().unwrap();
    granted(waiting, SOON).unlock().unwrap();
    // A single host says what is to do.
    let refused = PostgresBackend::connect(&primary.url()).unwrap_err();
    assert!(matches!(refused, Error::InvalidConfig { .. }), "{refused:?}");
    assert_says(&refused, &[&primary.address(), "default_transaction_read_only is on"]);
}

/// All that only reads goes to the standby there, unless it says that it must not.
#[test]
fn a_pooler_that_spreads_reads_sends_ours_where_writes_go() {
    let _alone = Alone::here();
    let primary = PostgresServer::builder().set("log_statement", "all").start();
    let standby = primary.standby("near");
    let pool = PgPool::start(&primary, &standby);
    // As a client of ours that did not say so would see it.
    let mut con = postgres::Client::connect(&pool.url("fairlock"), postgres::NoTls).unwrap();
    let read = con.query_one("select pg_is_in_recovery()", &[]).unwrap();
    assert!(read.get::<_, bool>(0), "it balances nothing, so this shows nothing");
    drop(con);
    let connect = || {
        let backend = PostgresBackend::builder(&pool.url("fairlock")).listen_on(&primary.url());
        Client::new(backend.connect_timeout(SOON / 5).response_timeout(SOON / 5).connect().unwrap()).unwrap()
    };
    let clients: Vec<_> = (0..6).map(|_| connect()).collect();
    for (turn, ours) in clients.iter().enumerate() {
        let theirs = &clients[(turn + 1) % clients.len()];
        let guard = take(&ours.fair_lock("x").unwrap());
        let waiting = request(theirs, "x");
        guard.renew().unwrap();
        assert!(theirs.fair_lock("x").unwrap().admin().inspect().unwrap().holder().is_some());
        guard.unlock().unwrap();
        granted(waiting, SOON).unlock().unwrap();
    }
    let log = standby.log();
    let there: Vec<_> =
        log.lines().filter(|line| line.contains("fairlock.") || line.contains("pg_notify")).collect();
    assert!(there.is_empty(), "the standby was asked: {there:#?}");
    drop(clients);
    drop(pool);
    until_nothing_left(&primary);
}
