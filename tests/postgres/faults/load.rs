//! Other users of the server: old snapshots, changes of the tables.

use std::thread;
use std::time::Instant;

use fairlock::Client;
use fairlock_tests::{Alone, PostgresServer};

use crate::support::{SOON, client, granted, patient, request, server, take, until_nothing_left};

fn hand_offs(ours: &Client, theirs: &Client, name: &str, turns: usize) {
    let mut guard = granted(request(ours, name), SOON);
    for turn in 0..turns {
        let next = request(if turn % 2 == 0 { theirs } else { ours }, name);
        guard.unlock().unwrap();
        guard = granted(next, SOON);
    }
    guard.unlock().unwrap();
}

/// Versions of the hot row pile up while a snapshot needs them; in another database they do not. What it costs is shown, not checked.
#[test]
fn hand_offs_go_on_beside_an_old_snapshot() {
    let _alone = Alone::here();
    let server = server();
    let (ours, theirs) = (client(&server.url()), client(&server.url()));
    for database in ["postgres", "fairlock"] {
        let mut old = server.con_to(database);
        old.batch_execute("begin isolation level repeatable read; select count(*) from pg_class").unwrap();
        let began = Instant::now();
        hand_offs(&ours, &theirs, database, 500);
        println!("500 hand-offs beside an old snapshot in {database}: {:?}", began.elapsed());
        old.batch_execute("rollback").unwrap();
    }
    until_nothing_left(server);
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
