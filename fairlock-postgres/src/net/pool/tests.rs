//! Who gets which connection, with which limits, and what becomes of a connection that a call has spoilt.

use std::io::Write;
use std::net::TcpListener;

use fairlock_core::backend::Backend;

use super::*;
use crate::PostgresBackend;
use crate::net::TlsConfig;
use crate::test_server::{SERVER, new_database, pooled};
use crate::tests::{SECOND, session, soon, stage};

fn address(url: &str) -> Address {
    Address::parse(url, &TlsConfig::default()).unwrap()
}

fn process(con: &mut Connection) -> Result<i32, Failure> {
    con.row(Statement::made_up("select pg_backend_pid()"), soon())?.count(0)
}

#[test]
fn a_transaction_has_its_limits_behind_a_pooler_too() {
    let url = new_database();
    for url in [pooled(&url), url] {
        let backend = PostgresBackend::builder(&url).response_timeout(SECOND / 5).connect().unwrap();
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
    let backend = PostgresBackend::builder(&new_database()).connections(3).connect().unwrap();
    let pool = &backend.0.pool;
    let is_refused = |watchdog| {
        let refused = pool.lend_to(watchdog, Instant::now() + SECOND / 20, |_| Ok(()));
        refused.is_err_and(|refused| refused.says("are in use"))
    };
    let third = |_: &mut Connection| {
        let is_refused_to_caller = is_refused(false);
        pool.lend_to(true, soon(), |_| Ok([is_refused_to_caller, is_refused(true)]))
    };
    assert_eq!(pool.lend(soon(), |_| pool.lend(soon(), third)).unwrap(), [true, true]);
}

/// A broken connection costs the idle ones as well, since the server may be gone. A late call costs none.
#[test]
fn idle_connections_end_with_a_broken_one() {
    let backend = PostgresBackend::connect(&new_database()).unwrap();
    let pool = &backend.0.pool;
    let two = || pool.lend(soon(), |con| Ok([process(con)?, pool.lend(soon(), process)?])).unwrap();
    let [_, idle] = two();
    let deadline = Instant::now() + SECOND / 20;
    let sleep = Statement::made_up("select pg_sleep(10)");
    pool.lend(deadline, |con| con.flight(&[sleep], deadline)).unwrap_err();
    let before = two();
    assert_eq!(before[0], idle);
    pool.lend(soon(), |_| Err::<(), _>(Failure::senseless())).unwrap_err();
    assert!(two().iter().all(|process| !before.contains(process)));
    assert_eq!(backend.reconnects(), 2);
}

#[test]
fn a_call_hears_no_messages_of_the_call_before() {
    let (backend, _con) = stage();
    let pool = &backend.0.pool;
    pool.lend(soon(), |con| con.script("listen anything; notify anything", soon())).unwrap();
    assert_eq!(pool.lend(soon(), |con| con.listen(Instant::now())).unwrap(), [""; 0]);
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
    let began = Instant::now();
    open(
        &address(&url.replace(&SERVER.address(), &format!("{silent},{}", SERVER.address()))),
        began + SECOND,
    )
    .unwrap();
    let timeouts = Timeouts { connect: SECOND * 5, response: SECOND * 5 };
    let pool = Pool::new(address(&format!("postgres://fairlock@{silent}/x")), timeouts, 1);
    pool.lend(Instant::now() + SECOND / 10, |_| Ok(())).unwrap_err();
    assert!(began.elapsed() < SECOND * 4, "{:?}", began.elapsed());
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
