//! Other users of the server: changes of the tables, a transaction that keeps one row.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, PostgresBackend};
use fairlock_tests::locks::take_now;
use fairlock_tests::{Alone, PostgresServer};

use super::support::{SOON, client, granted, patient, request, take, until_nothing_left};

fn hand_offs(ours: &Client, theirs: &Client, name: &str, turns: usize) {
    let mut guard = granted(request(ours, name), SOON);
    for turn in 0..turns {
        let next = request(if turn % 2 == 0 { theirs } else { ours }, name);
        guard.unlock().unwrap();
        guard = granted(next, SOON);
    }
    guard.unlock().unwrap();
}

/// A newer layout that this version may still write comes while locks are held and waited for: its columns are left alone, and
/// a change of the table delays nobody for longer than it takes.
#[test]
fn holds_and_waits_go_on_while_a_newer_layout_comes() {
    let _alone = Alone::here();
    let server = PostgresServer::start();
    let (ours, theirs) = (patient(&server.url()), patient(&server.url()));
    let guard = granted(request(&ours, "x"), SOON);
    let waiting = request(&theirs, "x");
    thread::scope(|scope| {
        let turns = scope.spawn(|| hand_offs(&ours, &theirs, "busy", 200));
        server
            .con()
            .batch_execute(
                "begin; set local lock_timeout = '10s'; alter table fairlock.lock add column extra int default 7;
                 update fairlock.meta set layout = 2; commit",
            )
            .unwrap();
        turns.join().unwrap();
    });
    let newcomer = client(&server.url());
    guard.renew().unwrap();
    guard.unlock().unwrap();
    granted(waiting, SOON).unlock().unwrap();
    take(&newcomer.fair_lock("x").unwrap()).unlock().unwrap();
    let kept = "select count(*) from fairlock.lock where extra is distinct from 7";
    assert_eq!(server.con().query_one(kept, &[]).unwrap().get::<_, i64>(0), 0);
    until_nothing_left(&server);
}

/// They ask, fail, withdraw and ask again, and each step waits for half a second in the server if it may.
#[test]
fn threads_that_retry_at_blocked_rows_cost_others_nothing() {
    const ROWS: usize = 5;
    const LEASE: Duration = Duration::from_secs(3);
    let (_alone, server) = (Alone::here(), PostgresServer::start());
    let backend = PostgresBackend::connect(&server.url()).unwrap();
    let ours = Client::builder(backend).lease(LEASE).outage_limit(LEASE / 3).build().unwrap();
    let held: Vec<_> = (0..5).map(|n| take_now(&ours, &format!("held {n}"))).collect();
    let blocked: Vec<_> = (0..ROWS).map(|n| ours.fair_lock(format!("blocked {n}")).unwrap()).collect();
    blocked.iter().for_each(|lock| take(lock).unlock().unwrap());
    let mut con = server.con();
    let mut work = con.transaction().unwrap();
    work.execute("select from fairlock.lock where name like 'blocked%' for update", &[]).unwrap();
    let (ended, failures) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    thread::scope(|scope| {
        for n in 0..100 {
            let lock = &blocked[n % ROWS];
            scope.spawn(move || {
                while !ended.load(Ordering::Acquire) {
                    let tried = if n % 2 == 0 { lock.try_lock() } else { lock.try_lock_for(LEASE / 6) };
                    failures.fetch_add(usize::from(tried.is_err()), Ordering::AcqRel);
                }
            });
        }
        let (began, mut turns) = (Instant::now(), 0);
        while began.elapsed() < LEASE + LEASE / 3 {
            let free = ours.fair_lock(format!("free {turns}")).unwrap();
            let tried = free.try_lock().expect("a connection is free");
            tried.granted().expect("so is the lock").unlock().unwrap();
            turns += 1;
        }
        ended.store(true, Ordering::Release);
        assert!(turns > 20, "{turns}");
    });
    work.rollback().unwrap();
    assert!(failures.load(Ordering::Acquire) > 50, "{failures:?}");
    assert!(held.iter().all(|guard| !guard.is_lost()));
    held.into_iter().for_each(|guard| guard.unlock().unwrap());
    until_nothing_left(&server);
}
