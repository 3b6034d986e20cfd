//! What the conformance suite can't know: columns, layouts, rows, and other sessions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendErrorKind, Hold, LockId, Place, Renew, Renewal, RequestId,
};
use fairlock_core::{ClientId, FencingToken, LockKind, LockName, OwnerId};

use crate::PostgresBackend;
use crate::net::address::Address;
use crate::net::{Connection, Statement, open};
use crate::test_server::{new_database, new_empty_database};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) fn soon() -> Instant {
    Instant::now() + SECOND * 5
}

pub(crate) fn session(url: &str) -> Connection {
    open(&Address::parse(url).unwrap(), soon()).unwrap()
}

pub(crate) fn lock(name: &str) -> LockId {
    LockId::new(LockName::new(name).unwrap(), LockKind::Fair)
}

pub(crate) fn take(backend: &PostgresBackend, lock: &LockId, owner: &OwnerId) -> FencingToken {
    let ask = Acquire::new(Place::new(lock, owner, RequestId::new(1)), LEASE);
    match backend.acquire(&ask).unwrap() {
        Acquired::Granted { token, .. } => token,
        other => panic!("{other:?}"),
    }
}

fn still_held(con: &mut Connection, name: &str, token: FencingToken) -> bool {
    let values = [name.into(), token.get().cast_signed().into()];
    let answers = con.flight(&[Statement::new("select fairlock.still_held($1, $2)", values)], soon());
    answers.unwrap()[0][0].flag(0).unwrap()
}

#[test]
fn a_missing_or_newer_layout_is_refused_in_words() {
    let url = new_empty_database();
    let cause = || PostgresBackend::connect(&url).unwrap_err().to_string();
    assert!(cause().contains("fairlock migrate --postgres URL"), "{}", cause());
    PostgresBackend::migrate(&url).unwrap();
    PostgresBackend::migrate(&url).unwrap(); // a repeat
    PostgresBackend::connect(&url).unwrap();
    let mut con = session(&url);
    con.script("update fairlock.meta set layout = 2", soon()).unwrap();
    PostgresBackend::connect(&url).unwrap(); // which this one may still write
    con.script("update fairlock.meta set least_client = 2", soon()).unwrap();
    assert!(cause().contains("layout 2") && cause().contains("newer version"), "{}", cause());
    let refused = PostgresBackend::migrate(&url).unwrap_err().to_string();
    assert!(refused.contains("layout 2"), "{refused}");
}

#[test]
fn of_many_that_migrate_at_once_none_fails_and_one_that_waits_for_too_long_says_so() {
    let url = new_empty_database();
    let mut first = session(&url);
    let takes_it = "begin; select pg_advisory_xact_lock(7378700441894417)";
    first.script(takes_it, soon()).unwrap();
    let began = Instant::now();
    let error = PostgresBackend::migrate(&url).unwrap_err().to_string();
    assert!(error.contains("for more than 2 s") && began.elapsed() < SECOND * 5, "{error}");
    first.script("commit", soon()).unwrap();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| PostgresBackend::migrate(&url))).collect();
        all.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
    // Where the tables are there nothing waits for those that use them.
    first.script("begin; lock table fairlock.lock", soon()).unwrap();
    PostgresBackend::migrate(&url).unwrap();
}

#[test]
fn the_printed_migration_makes_what_migrate_makes() {
    let url = new_empty_database();
    session(&url).script(&PostgresBackend::migration(), soon()).unwrap();
    take(&PostgresBackend::connect(&url).unwrap(), &lock("x"), &OwnerId::new("ann:1"));
}

#[test]
fn locks_in_use_are_listed_page_by_page() {
    let url = new_database();
    let backend = PostgresBackend::connect(&url).unwrap();
    let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    session(&url)
        .script(
            "insert into fairlock.lock (name, h_owner, h_request, h_token, h_count, h_since, h_ends, h_label) select \
             convert_to(format('held:%s', lpad(n::text, 4, '0')), 'UTF8'), 'a:1', 1, n, 1, fairlock.micros(), fairlock.micros() + \
             1e9, '' from generate_series(1, 1001) n; insert into fairlock.lock (name) values ('unused'), ('\\xff')",
            soon(),
        )
        .unwrap();
    let (fair, pool) =
        (lock("waited for"), LockId::new(LockName::new("pool").unwrap(), LockKind::Semaphore { permits: 2 }));
    take(&backend, &fair, &ann);
    backend.acquire(&Acquire::new(Place::new(&fair, &bob, RequestId::new(2)), LEASE)).unwrap();
    take(&backend, &pool, &ann);
    let all = backend.locks(None).unwrap();
    assert_eq!(all.len(), 1003);
    assert!(all.is_sorted_by_key(|(name, _)| name.as_str().to_owned()));
    let names = |pattern: &str| {
        let found = backend.locks(Some(pattern)).unwrap();
        found.into_iter().map(|(name, state)| (name.as_str().to_owned(), state)).collect::<Vec<_>>()
    };
    assert_eq!(names("held:000[^0]").len(), 9);
    let [(name, state), (other, waited)] = &names("[pw]*")[..] else { panic!("two") };
    assert_eq!((name.as_str(), state.capacity, state.taken()), ("pool", Some(2), 1));
    assert_eq!(
        (other.as_str(), waited.holder().unwrap().owner.as_str(), waited.waiting()),
        ("waited for", "ann:1", 1)
    );
    assert!(waited.line.is_empty());
}

#[test]
fn no_other_owner_gets_the_lock_while_a_transaction_knows_that_it_is_held() {
    let url = new_database();
    let backend = PostgresBackend::connect(&url).unwrap();
    let (lock, ann, bob) = (lock("a lock"), OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    let token = take(&backend, &lock, &ann);
    let mut con = session(&url);
    con.script("begin", soon()).unwrap();
    assert!(still_held(&mut con, "a lock", token));
    assert!(!still_held(&mut con, "a lock", FencingToken::new(token.get() + 1)));
    assert!(!still_held(&mut con, "another", token));
    let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    let began = Instant::now();
    let error = backend.release(&hold).unwrap_err();
    assert!(error.kind() == BackendErrorKind::Unavailable && began.elapsed() < SECOND, "{error}");
    con.script("commit", soon()).unwrap();
    backend.release(&hold).unwrap();
    assert!(!still_held(&mut con, "a lock", token));
    assert!(take(&backend, &lock, &bob) > token);
}

#[test]
fn two_hundred_holds_are_renewed_by_one_statement_and_a_locked_row_delays_no_other() {
    let url = new_database();
    let backend = PostgresBackend::connect(&url).unwrap();
    let owner = OwnerId::new("ann:1");
    let locks: Vec<_> = (0..201).map(|number| lock(&format!("{number}"))).collect();
    let holds: Vec<_> = locks
        .iter()
        .map(|lock| Hold::new(lock, &owner, RequestId::new(1), take(&backend, lock, &owner)))
        .collect();
    let mut items: Vec<_> =
        holds.iter().map(|hold| Renew::Hold { hold: *hold, holds: 2, lease: LEASE * 2 }).collect();
    let of_no_request = Hold::new(&locks[7], &owner, RequestId::new(9), holds[7].token);
    items[7] = Renew::Hold { hold: of_no_request, holds: 2, lease: LEASE };
    let mut con = session(&url);
    con.script("begin", soon()).unwrap();
    assert!(still_held(&mut con, "11", holds[11].token));
    let answers = backend.renew(ClientId::random(), &items);
    for (at, answer) in answers.iter().enumerate() {
        match at {
            7 => assert!(matches!(answer, Ok(Renewal::Lost)), "{answer:?}"),
            11 => assert!(answer.as_ref().is_err_and(|error| error.kind() == BackendErrorKind::Unavailable)),
            _ => assert!(matches!(answer, Ok(Renewal::Renewed)), "{at}: {answer:?}"),
        }
    }
    let holder = |at: usize| backend.inspect(&locks[at], 0..0).unwrap().holders[0].clone();
    assert!(holder(0).hold_count == 2 && holder(0).lease_left > Some(LEASE));
    assert!(holder(7).hold_count == 1 && holder(11).hold_count == 1);
}

#[test]
fn rows_that_stay_locked_leave_each_other_lock_its_renewal() {
    let url = new_database();
    let backend = PostgresBackend::connect(&url).unwrap();
    let owner = OwnerId::new("ann:1");
    let kind = |at: usize| if at < 3 { LockKind::Fair } else { LockKind::Semaphore { permits: 2 } };
    let locks: Vec<_> =
        (0..11).map(|at| LockId::new(LockName::new(&format!("{at}")).unwrap(), kind(at))).collect();
    let items: Vec<_> = locks
        .iter()
        .map(|lock| Hold::new(lock, &owner, RequestId::new(1), take(&backend, lock, &owner)))
        .map(|hold| Renew::Hold { hold, holds: 1, lease: LEASE * 2 })
        .collect();
    let mut con = session(&url);
    con.script("begin", soon()).unwrap();
    con.script("select from fairlock.lock where h_owner is not null for share", soon()).unwrap();
    let began = Instant::now();
    let answers = backend.renew(ClientId::random(), &items);
    assert!(began.elapsed() < SECOND * 2, "{:?}", began.elapsed());
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(matches!(answer, Ok(Renewal::Renewed)), at >= 3, "{at}: {answer:?}");
    }
}

#[test]
fn a_state_that_this_version_can_not_read_is_left_alone() {
    let url = new_database();
    let backend = PostgresBackend::connect(&url).unwrap();
    let (lock, ann) = (lock("x"), OwnerId::new("ann:1"));
    take(&backend, &lock, &ann);
    let mut con = session(&url);
    con.script(r"update fairlock.lock set state = '\x02'", soon()).unwrap();
    let error =
        backend.acquire(&Acquire::new(Place::new(&lock, &ann, RequestId::new(2)), LEASE)).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Corrupt);
    assert!(error.message().ends_with("format 2, which this version can't read"), "{error}");
    let rows = con.flight(&[Statement::new("select state from fairlock.lock", [])], soon()).unwrap();
    assert_eq!(rows[0][0].bytes(0).unwrap(), [2]);
}

#[test]
fn a_row_goes_a_day_after_its_last_use() {
    let url = new_database();
    let backend = PostgresBackend::connect(&url).unwrap();
    let (used, over) = (lock("used"), lock("over"));
    for lock in [&used, &over] {
        take(&backend, lock, &OwnerId::new("ann:1"));
    }
    let mut con = session(&url);
    con.script("update fairlock.lock set dead_at = fairlock.micros() where name = 'over'", soon()).unwrap();
    backend.0.sweep().unwrap();
    let rows = con.flight(&[Statement::new("select name from fairlock.lock", [])], soon()).unwrap();
    assert_eq!(rows[0].iter().map(|row| row.bytes(0).unwrap()).collect::<Vec<_>>(), [b"used"]);
}

#[test]
fn a_program_that_only_takes_and_releases_deletes_the_rows_of_unused_locks_however_many() {
    let url = new_database();
    let backend = PostgresBackend::connect(&url).unwrap();
    let (ann, used) = (OwnerId::new("ann:1"), lock("used"));
    let mut con = session(&url);
    let unused =
        "insert into fairlock.lock (name, dead_at) select int4send(n), 1 from generate_series(1, 250) n";
    con.script(unused, soon()).unwrap();
    for left in [150, 50, 0] {
        *backend.0.next_sweep.lock() = Instant::now();
        let token = take(&backend, &used, &ann);
        backend.release(&Hold::new(&used, &ann, RequestId::new(1), token)).unwrap();
        let rows = con.flight(&[Statement::new("select count(*) from fairlock.lock", [])], soon()).unwrap();
        assert_eq!(rows[0][0].number(0).unwrap(), left + 1);
        assert_eq!(*backend.0.next_sweep.lock() <= Instant::now() + SECOND, left > 0);
    }
}

#[test]
fn each_way_to_log_in_works_and_a_wrong_password_is_denied() {
    let url = new_database();
    let mut con = session(&url);
    for (role, encryption) in [("scram", "scram-sha-256"), ("md5", "md5"), ("clear", "scram-sha-256")] {
        let made =
            format!("set password_encryption = '{encryption}'; create role {role} login password 'p@ss'");
        con.script(&made, soon()).unwrap();
        con.script(&format!("grant usage on schema fairlock to {role}"), soon()).unwrap();
        con.script(&format!("grant all on all tables in schema fairlock to {role}"), soon()).unwrap();
        let with = |password: &str| url.replace("fairlock@", &format!("{role}{password}@"));
        take(&PostgresBackend::connect(&with(":p%40ss")).unwrap(), &lock(role), &OwnerId::new("ann:1"));
        for (password, cause) in [(":p%40sss", "28P01"), ("", "the address has none")] {
            let error = PostgresBackend::connect(&with(password)).unwrap_err().to_string();
            assert!(error.contains(cause) && !error.contains("p@sss"), "{error}");
        }
    }
}
