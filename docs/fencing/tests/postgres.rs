//! On PostgreSQL a writer that stood still past its lease is refused, and a newer holder waits for the commit of an older one.

use std::time::Duration;

use fairlock::testing::ManualClock;
use fairlock::{Client, FencingToken, MemoryBackend};
use fairlock_fencing::Fence;
use fairlock_fencing::postgres::{TABLE, pass_fence};
use fairlock_tests::{PostgresServer, eventually};

/// The work: writes a balance under the fence.
fn write(database: &mut postgres::Client, token: FencingToken, balance: i64) -> Fence {
    let mut work = database.transaction().unwrap();
    if pass_fence(&mut work, "account 7", token).unwrap() == Fence::Stale {
        work.rollback().unwrap();
        return Fence::Stale;
    }
    work.execute("UPDATE account SET balance = $1 WHERE id = 7", &[&balance]).unwrap();
    work.commit().unwrap();
    Fence::Passed
}

fn balance(database: &mut postgres::Client) -> i64 {
    database.query_one("SELECT balance FROM account WHERE id = 7", &[]).unwrap().get(0)
}

fn waiting_for_a_row(database: &mut postgres::Client) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    database.query_one(sql, &[]).unwrap().get(0)
}

#[test]
fn the_write_of_a_holder_that_lost_its_lock_is_refused() {
    let server = PostgresServer::start();
    let connect = || server.con();
    let mut database = connect();
    database.batch_execute(TABLE).unwrap();
    database
        .batch_execute("CREATE TABLE account (id int, balance bigint); INSERT INTO account VALUES (7, 0)")
        .unwrap();

    let clock = ManualClock::new();
    let store = MemoryBackend::with_clock(clock.clone());
    let connect_locks = || Client::builder(store.clone()).clock(clock.clone()).build().unwrap();
    let (one, other) = (connect_locks(), connect_locks());

    let slow = one.fair_lock("lock:account-7").unwrap().lock().unwrap();
    assert_eq!(write(&mut database, slow.token(), 100), Fence::Passed);
    assert_eq!(write(&mut database, slow.token(), 110), Fence::Passed, "one hold may write often");

    clock.jump(Duration::from_secs(60)); // the process stands still; its lease ends
    let quick = other.fair_lock("lock:account-7").unwrap().lock().unwrap();
    assert_eq!(write(&mut connect(), quick.token(), 200), Fence::Passed);

    assert_eq!(write(&mut database, slow.token(), 120), Fence::Stale);
    assert_eq!(balance(&mut database), 200);

    // A newer holder waits for the open transaction of an older one, and writes last.
    let newest = FencingToken::new(quick.token().get() + 1);
    let mut open = database.transaction().unwrap();
    assert_eq!(pass_fence(&mut open, "account 7", quick.token()).unwrap(), Fence::Passed);
    open.execute("UPDATE account SET balance = 210 WHERE id = 7", &[]).unwrap();
    let mut theirs = connect();
    let later = std::thread::spawn(move || write(&mut theirs, newest, 300));
    let mut observer = connect();
    eventually("the newer holder waits for the older transaction", || waiting_for_a_row(&mut observer) > 0);
    open.commit().unwrap();
    assert_eq!(later.join().unwrap(), Fence::Passed);
    assert_eq!(balance(&mut database), 300);
}
