//! A server with `synchronous_commit = off` crashes, and forgets holds.

use fairlock_core::OwnerId;
use fairlock_core::backend::{Acquired, Backend, LockId, Wait, only};
use fairlock_tests::{PostgresServer, look_until};

use crate::tests::{LEASE, ask, hold, lock, patient};

/// The bounds are shorter than in the schema, and a server that was just made counts as any other.
const SHORTER: &str = "do $$ begin execute replace(replace(replace(pg_get_functiondef('fairlock.grace_ends()'::regprocedure), \
                       '30 s', '5 s'), '30000000', '5000000'), '+ 10 ', '+ 0 '); end $$";

/// After a crash that forgets holds, nothing is granted until the holds are over.
#[test]
fn after_a_crash_nothing_is_granted_until_holds_are_over() {
    fn eventually<T>(attempt: impl FnMut() -> Option<T>) -> T {
        look_until(LEASE * 4, attempt).expect("the grace ends")
    }
    let server = PostgresServer::builder().set("wal_writer_delay", "10s").start();
    server.con().batch_execute(SHORTER).unwrap();
    let unsynced = format!("{}?options=-c%20synchronous_commit%3Doff", server.url());
    let backend = patient(&unsynced).connect().unwrap();
    assert_eq!(backend.longest_lease(), Some(LEASE));
    let [ann, bob] = ["a:1", "b:1"].map(OwnerId::new);
    let locks: Vec<_> = (0..50).map(|n| lock(&format!("{n}"))).collect();
    let try_take = |lock: &LockId, owner: &OwnerId| {
        let mut ask = ask(lock, owner, 1);
        ask.place.wait = Wait::No;
        match only(backend.acquire(&[ask])) {
            Ok(Acquired::Granted { token, .. }) => Some(token),
            _ => None,
        }
    };
    // The first may have to wait for the end of the grace after initdb. Rows are there, and on the disk.
    for lock in &locks {
        let token = eventually(|| try_take(lock, &ann));
        only(backend.release(&[hold(lock, &ann, token)])).unwrap();
    }
    server.con().batch_execute("update fairlock.meta set layout = layout").unwrap();
    server.con().batch_execute("analyze fairlock.lock").unwrap(); // a crash forgets that as well
    for lock in &locks {
        try_take(lock, &ann).unwrap();
    }
    let grace_ends = || {
        let mut con = server.try_con("fairlock").ok()?;
        con.batch_execute("set synchronous_commit = off").ok()?;
        let row = con.query_one("select fairlock.grace_ends()", &[]).ok()?;
        Some(row.get::<_, i64>(0).cast_unsigned())
    };
    let before = eventually(grace_ends);
    server.kill_session(server.sessions()[0]);
    let grace_ends = eventually(|| grace_ends().filter(|ends| *ends > before));
    let is_free = |lock: &&LockId| eventually(|| backend.inspect(lock, 0..0).ok()).holder().is_none();
    let forgotten: Vec<_> = locks.iter().filter(is_free).collect();
    assert!(!forgotten.is_empty(), "the crash forgot nothing, so this shows nothing");
    for lock in forgotten {
        let token = eventually(|| try_take(lock, &bob)).get();
        assert!(token >= grace_ends, "{token} was granted {} us too early", grace_ends - token);
    }
}
