//! A process that is stopped between the two trips of a step.

use std::time::Instant;

use fairlock::owner::Owner;
use fairlock::{Client, Guard};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, Worker, eventually, signals};

use super::support::{
    ANSWER, IDLE, SLACK, SOON, granted, patient, request, server, through, until_in_queue, until_nothing_left,
};

/// A process that asks for the lock, which is held, and has got as far as to keep its row: it has not heard so yet.
fn keeps_the_row(proxy: &Proxy, name: &str) -> Worker {
    let arguments = ["hold", "postgres", &through(server(), proxy), name, "60000"];
    let mut worker = Worker::start(env!("CARGO_BIN_EXE_lock_worker"), &arguments);
    // A row that others have locked is waited for, and then kept until the next trip.
    let mut con = server().con();
    con.batch_execute("begin; select from fairlock.lock for share").unwrap();
    proxy.silence_from("for update) l", 0);
    worker.go();
    let waits =
        "select count(*) from pg_locks where not granted and transactionid = pg_current_xact_id()::xid";
    eventually("it waits for the row", || con.query_one(waits, &[]).unwrap().get::<_, i64>(0) > 0);
    con.batch_execute("commit").unwrap();
    let idle = "select count(*) from pg_stat_activity where state = 'idle in transaction'";
    eventually("a transaction keeps the row", || con.query_one(idle, &[]).unwrap().get::<_, i64>(0) == 1);
    worker
}

/// Renews and hands on to a new waiter, for all of which the row is needed.
fn turns(ours: &Client, name: &str, guard: Guard<Owner>) -> Guard<Owner> {
    let next = request(ours, name);
    // This is asked only once, and may meet the row.
    eventually("renewed", || guard.renew().is_ok());
    guard.unlock().unwrap();
    granted(next, SOON)
}

/// A client that stops between its two trips delays the others by a second, and its step has no effect. The worst moment for a
/// stop: the row is locked. The server ends the transaction; what the process does when it goes on finds none.
#[test]
fn a_client_stopped_between_trips_costs_others_a_second() {
    let _alone = Alone::here();
    let (server, proxy) = (server(), Proxy::start(server().port()));
    let ours = patient(&server.url());
    let guard = granted(request(&ours, "still"), SOON);
    let mut stopped = keeps_the_row(&proxy, "still");
    let kept = Instant::now();
    signals::stop(stopped.child());
    // What the server has said so far is with the process: it decides by that when it goes on.
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    let guard = turns(&ours, "still", guard);
    assert!(kept.elapsed() < IDLE + ANSWER + SLACK, "{:?}", kept.elapsed());
    assert_eq!(ours.fair_lock("still").unwrap().admin().inspect().unwrap().queue_length, 0);
    signals::cont(stopped.child());
    until_in_queue(&ours, "still", 1);
    guard.renew().unwrap();
    guard.unlock().unwrap();
    stopped.expect("held", SOON);
    stopped.go();
    stopped.expect("unlocked", SOON);
    until_nothing_left(server);
}
