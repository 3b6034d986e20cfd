//! Who gets which connection, with which limits, and what becomes of a connection that a call has spoilt.

use std::io::Write;
use std::net::TcpListener;

use fairlock_core::backend::Backend;
use fairlock_tests::eventually;

use super::*;
use crate::PostgresBackend;
use crate::net::address::TlsConfig;
use crate::test_server::{SERVER, new_database, pooled};
use crate::tests::{SECOND, number, patient, process, session, soon, stage};

fn address(url: &str) -> Address {
    Address::parse(url, &TlsConfig::default()).unwrap()
}

/// Is at work until the test gives its lock up, or the client has gone: no cancel ends it.
pub(super) const STUCK: &str = "do $$ begin loop begin perform pg_advisory_xact_lock(1); exit; \
                                exception when others or query_canceled then raise warning 'stuck'; end; end loop; end $$";

/// A client with so many connections, and a session that has the lock.
pub(super) fn beside_a_lock(connections: usize) -> (PostgresBackend, Connection) {
    let url = new_database();
    let backend = patient(&url).connections(connections).connect().unwrap();
    let mut con = session(&url);
    con.script("select pg_advisory_lock(1)", soon()).unwrap();
    (backend, con)
}

/// Waits until the session of a process has ended.
pub(super) fn until_ended(con: &mut Connection, process: i32) {
    let sessions = format!("select count(*) from pg_stat_activity where pid = {process}");
    eventually("the session ends", || number(con, &sessions) == 0);
}

#[test]
fn a_transaction_has_its_limits_behind_a_pooler_too() {
    let url = new_database();
    for url in [pooled(&url), url] {
        let backend = patient(&url).response_timeout(SECOND / 5).connect().unwrap();
        let pool = &backend.0.pool;
        let limits = ["idle_in_transaction_session_timeout", "lock_timeout"].map(|name| {
            let show = Statement::made_up(format!("select current_setting('{name}')"));
            let asked = |con: &mut Connection| {
                let flight = pool.begin(con).into_iter().chain([show]).collect::<Vec<_>>();
                Ok(con.flight(&flight, soon())?.pop().unwrap()[0].text(0)?.to_owned())
            };
            pool.lend(soon(), asked).unwrap()
        });
        assert_eq!(limits, ["1s", "100ms"], "{url}");
        assert_eq!(backend.attempt_ttl(), Some(SECOND / 5 + SECOND));
    }
}

/// Each of its transactions may have another session. Others are set up once.
#[test]
fn behind_a_pooler_each_commit_is_asked_to_wait_for_the_disk() {
    for (level, is_asked_for) in [("on", true), ("off", false)] {
        let url = new_database();
        let set =
            format!("alter database {} set synchronous_commit = {level}", url.rsplit('/').next().unwrap());
        session(&url).script(&set, soon()).unwrap();
        let asks = [pooled(&url), url].map(|url| {
            let backend = patient(&url).connect().unwrap();
            let pool = &backend.0.pool;
            pool.lend(soon(), |con| Ok(pool.sync(con).is_some())).unwrap()
        });
        assert_eq!(asks, [is_asked_for, false], "{level}");
    }
}

#[test]
fn a_connection_that_is_given_back_goes_to_a_caller_that_waits() {
    let (backend, _con) = stage();
    let pool = &backend.0.pool;
    thread::scope(|scope| {
        let waiting = pool.lend(soon(), |_| {
            let waiting = scope.spawn(|| pool.lend(soon(), |_| Ok(())));
            thread::sleep(SECOND / 10); // by then the caller waits
            Ok(waiting)
        });
        waiting.unwrap().join().unwrap().unwrap();
    });
}

/// One of three: renewals wait for no caller.
#[test]
fn callers_leave_a_connection_to_the_watchdog() {
    let backend = patient(&new_database()).connections(3).connect().unwrap();
    let pool = &backend.0.pool;
    let is_refused = |watchdog| {
        let refused = pool.lend_to(watchdog, Instant::now() + SECOND / 20, |_| Ok(()));
        refused.is_err_and(|refused| refused.says("are in use") && !refused.says("wait"))
    };
    let third = |_: &mut Connection| {
        let is_refused_to_caller = is_refused(false);
        pool.lend_to(true, soon(), |_| Ok([is_refused_to_caller, is_refused(true)]))
    };
    assert_eq!(pool.lend(soon(), |_| pool.lend(soon(), third)).unwrap(), [true, true]);
}

/// A call whose time is over leaves its session to a thread, which has the server end what the session does.
#[test]
fn a_session_that_is_not_answered_counts_until_it_ends() {
    let (backend, mut con) = beside_a_lock(3);
    let pool = &backend.0.pool;
    let used = || pool.shared.state.lock().used();
    let leaves = |sql: &'static str| {
        let mut ours = 0;
        let asked = pool.lend(pool.deadline(), |con| {
            ours = process(con)?;
            con.flight(&[Statement::new(sql, [])], Instant::now() + SECOND / 10)
        });
        asked.unwrap_err();
        ours
    };
    let cancelled = leaves("select pg_sleep(60)");
    until_ended(&mut con, cancelled);
    eventually("it counts no longer", || used() == 0);
    let stuck = leaves(STUCK);
    assert_eq!(used(), 1);
    con.script("select pg_advisory_unlock(1)", soon()).unwrap();
    until_ended(&mut con, stuck);
    eventually("it counts no longer", || used() == 0);
    // With the client its thread ends, whatever the server does.
    con.script("select pg_advisory_lock(1)", soon()).unwrap();
    let stuck = leaves(STUCK);
    drop(backend);
    until_ended(&mut con, stuck);
}

/// Perhaps only the network is silent.
#[test]
fn beside_sessions_that_are_ending_one_more_opens_at_times() {
    let (backend, _con) = stage();
    let pool = &backend.0.pool;
    let is_refused = || {
        let refused = pool.lend(Instant::now() + SECOND / 20, |_| Ok(())).unwrap_err();
        refused.says("all 1 connections are in use, or wait for the server")
    };
    let opens = || pool.lend(soon(), |_| Ok(is_refused())).unwrap();
    let set = |ending, opened| {
        let mut state = pool.shared.state.lock();
        (state.ending, state.one_more) = (ending, Instant::now().checked_sub(SECOND * opened));
    };
    pool.shared.state.lock().ending = 4;
    assert!(opens() && is_refused(), "the first, and no second one at once");
    for (ending, after) in [(1, 1), (2, 2), (3, 4), (9, 16)] {
        set(ending, after);
        assert!(opens(), "beside {ending}");
    }
    set(9, 1);
    assert!(is_refused());
}

/// A broken connection costs the idle ones as well, since the server may be gone. A late call costs none.
#[test]
fn idle_connections_end_with_a_broken_one() {
    let backend = patient(&new_database()).connect().unwrap();
    let pool = &backend.0.pool;
    let two = || pool.lend(soon(), |con| Ok([process(con)?, pool.lend(soon(), process)?])).unwrap();
    let spoil = |time: Duration, is_late: bool| {
        let spoils = |con: &mut Connection| {
            let sleep = Statement::made_up("select pg_sleep(10)");
            if is_late {
                con.flight(&[sleep], Instant::now() + SECOND / 20).map(drop)
            } else {
                Err(Failure::senseless())
            }
        };
        pool.lend(Instant::now() + time, spoils).unwrap_err();
    };
    let whole = pool.timeouts.response;
    // A call that had its whole time shows that the server is silent.
    for (time, is_late, is_kept) in
        [(SECOND / 20, true, true), (SECOND / 20, false, false), (whole, true, false)]
    {
        let [_, idle] = two();
        spoil(time, is_late);
        assert_eq!(two().contains(&idle), is_kept, "{time:?} {is_late}");
    }
    assert_eq!(backend.reconnects(), 3);
}

#[test]
fn a_call_hears_no_messages_of_the_call_before() {
    let (backend, _con) = stage();
    let pool = &backend.0.pool;
    pool.lend(soon(), |con| con.script("listen anything; notify anything", soon())).unwrap();
    assert_eq!(pool.lend(soon(), |con| con.listen(Instant::now())).unwrap(), [""; 0]);
}

/// Else the reason would be lost in the end of the stream, which comes behind it.
#[test]
fn a_session_that_the_server_ends_tells_why() {
    let (backend, _con) = stage();
    let end = Statement::made_up("select pg_terminate_backend(pg_backend_pid())");
    let why = backend.0.pool.ask(end, soon()).unwrap_err();
    assert!(why.has_code(&["57P01"]), "{why:?}");
}

/// A caller may wait for a row on the only connection.
#[test]
fn renewals_have_a_connection_of_their_own() {
    let (backend, _con) = beside_a_lock(1);
    let pool = &backend.0.pool;
    pool.lend(soon(), |_| pool.lend_to(true, soon(), |con| con.script("select", soon()))).unwrap();
}

/// A statement behind one that fails was not prepared.
#[test]
fn a_statement_behind_a_refused_one_is_prepared_later() {
    let mut con = session(&new_database());
    let [bad, good] = ["select 1 / 0", "select 1"].map(|sql| Statement::new(sql, []));
    con.flight(&[bad, good.clone()], soon()).unwrap_err();
    con.flight(&[good], soon()).unwrap();
    assert!(con.is_own_session());
}

#[test]
fn what_the_server_repeats_of_a_password_is_hidden() {
    let mut con = session(&new_database().replace("fairlock@", "fairlock:kanarie@"));
    let refused = con.script("do $$ begin raise 'it is kanarie'; end $$", soon()).unwrap_err();
    assert!(refused.says("it is ") && !refused.says("kanarie"), "{refused:?}");
}

/// The host that says nothing has half of the time; and a call connects within its own time, however long connecting may take.
#[test]
fn a_silent_host_leaves_the_next_one_its_time() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    let url = new_database();
    let both = url.replace(&SERVER.address(), &format!("{silent},{}", SERVER.address()));
    open(&address(&both), Instant::now() + SECOND * 10).unwrap();
    let timeouts = Timeouts { connect: SECOND * 1000, response: SECOND * 5 };
    let pool = Pool::new(address(&format!("postgres://fairlock@{silent}/x")), timeouts, 1);
    pool.lend(Instant::now() + SECOND / 10, |_| Ok(())).unwrap_err();
}

#[test]
fn an_answer_without_an_end_is_refused() {
    let endless = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("postgres://fairlock@{}/x?sslmode=disable", endless.local_addr().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut con, _) = endless.accept().unwrap();
            _ = con.write_all(b"D\x7f\xff\xff\xff");
            while con.write_all(&[0; 65_536]).is_ok() {}
        });
        let refused = open(&address(&url), soon()).err().unwrap();
        assert!(refused.says("has no end"), "{refused:?}");
    });
}
