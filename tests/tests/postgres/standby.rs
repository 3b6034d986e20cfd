//! A primary whose synchronous standby has gone: it acknowledges nothing, so it grants nothing.

use std::thread;
use std::time::Duration;

use fairlock::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, LockId, Place, RequestId,
};
use fairlock::{LockKind, LockName, OwnerId, PostgresBackend};
use fairlock_tests::{PostgresServer, eventually};

const SOON: Duration = Duration::from_secs(20);

fn is_unavailable(answer: &Result<Acquired, BackendError>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == BackendErrorKind::Unavailable)
}

/// Commits wait for a standby of this name, and for none if it is empty.
fn set_standby(server: &PostgresServer, name: &str) {
    let mut con = server.con();
    con.batch_execute(&format!("alter system set synchronous_standby_names = '{name}'")).unwrap();
    con.batch_execute("select pg_reload_conf()").unwrap();
    eventually(SOON, "the setting is there", || {
        let rows = server.con().query("show synchronous_standby_names", &[]).unwrap();
        rows[0].get::<_, String>(0) == name
    });
}

/// Ends the commit that waits, in this way.
fn end_waiting_commit(server: &PostgresServer, way: &str) {
    let sql = format!("select {way}(pid) from pg_stat_activity where wait_event = 'SyncRep'");
    eventually(SOON, "a commit waits for the standby", || server.con().execute(&sql, &[]).unwrap() > 0);
}

#[test]
fn what_no_standby_has_confirmed_is_no_grant_however_the_wait_for_it_ends() {
    for way in ["pg_cancel_backend", "pg_terminate_backend", "a restart"] {
        let server = PostgresServer::builder().start();
        let connect =
            |limit| PostgresBackend::builder(&server.url()).response_timeout(limit).connect().unwrap();
        let backend = connect(SOON);
        let (lock, owner) = (LockId::new(LockName::new("x").unwrap(), LockKind::Fair), OwnerId::new("ann:1"));
        let ask = |backend: &PostgresBackend| {
            backend.acquire(&Acquire::new(Place::new(&lock, &owner, RequestId::new(1)), 3 * SOON))
        };
        set_standby(&server, "nobody");
        thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&backend));
            if way == "a restart" {
                let waits = "select 1 from pg_stat_activity where wait_event = 'SyncRep'";
                eventually(SOON, "it waits", || server.con().execute(waits, &[]).unwrap() > 0);
                server.restart();
            } else {
                end_waiting_commit(&server, way);
            }
            let answer = asked.join().unwrap();
            assert!(is_unavailable(&answer), "{way}: {answer:?}");
        });
        let rows = server.con().query("select 1 from fairlock.lock where h_request = 1", &[]).unwrap();
        assert_eq!(rows.len(), 1, "{way}: the grant can be seen");
        let answer = ask(&connect(Duration::from_millis(300)));
        assert!(is_unavailable(&answer), "{way}: the repeat finds it, and must not tell: {answer:?}");
        set_standby(&server, "");
        eventually(SOON, "the standby is needed no more", || {
            matches!(ask(&backend), Ok(Acquired::Granted { .. }))
        });
    }
}
