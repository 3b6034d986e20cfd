//! What becomes of messages, and of the connection that they were sent on, while the server does not send them.

use fairlock_tests::eventually;

use super::tests::{STUCK, beside_a_lock, until_ended};
use super::*;
use crate::tests::{SECOND, number, process, soon};

/// Sends a message that is stuck. Returns the process of its session.
fn tell_stuck(pool: &Pool) -> i32 {
    let tell = |con: &mut Connection| {
        let ours = process(con)?;
        con.tell(&[Statement::new(STUCK, [])], soon());
        Ok(ours)
    };
    pool.lend(soon(), tell).unwrap()
}

/// Tells these numbers behind what is stuck.
fn tell_later(pool: &Pool, numbers: std::ops::Range<i64>) {
    let told = numbers.map(|number| Statement::new("insert into told (what) values ($1)", [number.into()]));
    let tell = |con: &mut Connection| {
        pool.tell(con, told.collect(), SECOND * 5, soon());
        Ok(())
    };
    pool.lend(soon(), tell).unwrap();
}

fn until_told(pool: &Pool) {
    eventually("all is told", || !pool.is_telling());
}

const TOLD: &str = "create table told (at bigserial, what bigint)";

#[test]
fn messages_wait_in_order_behind_a_stuck_one_and_not_too_many() {
    // Of one connection, the one that tells is not counted, and ends if another one was opened meanwhile.
    for connections in [1, 3] {
        let (backend, mut con) = beside_a_lock(connections);
        let pool = &backend.0.pool;
        con.script(TOLD, soon()).unwrap();
        assert!(!pool.is_telling());
        tell_stuck(pool);
        tell_later(pool, 1..200);
        tell_later(pool, 200..400);
        assert!(pool.is_telling());
        assert_eq!(number(&mut con, "select count(*) from told"), 0);
        con.script("select pg_advisory_unlock(1)", soon()).unwrap();
        until_told(pool);
        assert_eq!(number(&mut con, "select count(*) from told where what = at"), MOST_UNTOLD as i64);
        assert_eq!(pool.shared.state.lock().idle.len(), connections.min(2));
        tell_later(pool, 0..1);
        assert!(!pool.is_telling(), "its answer is there in time");
        assert_eq!(number(&mut con, "select count(*) from told where what = 0"), 1);
    }
}

/// Nobody would send what waits behind them.
#[test]
fn messages_are_dropped_when_no_session_is_left_to_send_them() {
    let (backend, mut con) = beside_a_lock(2);
    let pool = &backend.0.pool;
    con.script(TOLD, soon()).unwrap();
    let stuck = [tell_stuck(pool), tell_stuck(pool)];
    assert_eq!(pool.shared.state.lock().used(), 1, "all but one are counted");
    let telling = || pool.shared.state.lock().telling;
    tell_later(pool, 0..1);
    for (left, stuck) in [(1, stuck[0]), (0, stuck[1])] {
        con.script(&format!("select pg_terminate_backend({stuck})"), soon()).unwrap();
        eventually("its thread ends", || telling() == left);
        assert_eq!(pool.shared.state.lock().untold.len(), left);
    }
    tell_later(pool, 1..2);
    assert_eq!(number(&mut con, "select sum(what)::bigint from told"), 1);
}

#[test]
fn what_is_stuck_ends_with_its_client() {
    let (backend, mut con) = beside_a_lock(2);
    let stuck = tell_stuck(&backend.0.pool);
    drop(backend);
    until_ended(&mut con, stuck);
}
