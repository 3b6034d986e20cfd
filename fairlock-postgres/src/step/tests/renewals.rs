//! Heartbeats of many locks, and rows that others have locked meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::atomic::Ordering;
use std::time::Instant;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendErrorKind, Hold, LockId, Renew, Renewal, RequestId, only,
};
use fairlock_core::{ClientId, LockKind, LockName, OwnerId};

use crate::PostgresBackend;
use crate::combiner::MOST_LOCKS;
use crate::net::Statement;
use crate::test_server::new_database;
use crate::tests::{
    LEASE, SECOND, STANDING_CLOCK, ask, hold, lock, number, pass, patient, session, soon, stage, take, trips,
};

#[test]
fn two_hundred_holds_are_renewed_in_one_trip() {
    let (backend, mut con) = stage();
    let (locks, ann) = ((0..201).map(|n| lock(&format!("{n}"))).collect::<Vec<_>>(), OwnerId::new("ann:1"));
    let holds: Vec<_> = locks.iter().map(|lock| hold(lock, &ann, take(&backend, lock, &ann))).collect();
    let renewals =
        |lease| holds.iter().map(move |hold| Renew::Hold { hold: *hold, holds: 2, lease }).collect();
    let (before, mut items): (_, Vec<_>) = (trips(&backend), renewals(LEASE * 2));
    let answers = backend.renew(ClientId::random(), &items);
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Renewal::Renewed))), "{answers:?}");
    assert_eq!(trips(&backend) - before, 2, "for 201");
    let holder = |at: usize| backend.inspect(&locks[at], 0..0).unwrap().holders[0].clone();
    assert!(holder(0).hold_count == 2 && holder(0).lease_left > Some(LEASE));
    let swept_while_held = "select count(*) from fairlock.lock where dead_at < h_ends + 86400000000";
    assert_eq!(number(&mut con, swept_while_held), 0);
    // A shorter lease takes nothing away. Of those that can't be renewed, each for itself.
    items = renewals(LEASE);
    let of_no_request = Hold::new(&locks[7], &ann, RequestId::new(9), holds[7].token);
    items[7] = Renew::Hold { hold: of_no_request, holds: 3, lease: LEASE };
    con.script(
        "update fairlock.lock set rev = rev + 1, h_ends = fairlock.micros() where name = '13'",
        soon(),
    )
    .unwrap();
    con.script(r"update fairlock.lock set rev = rev + 1, state = '\x04' where name = '17'", soon()).unwrap();
    con.script("begin; select from fairlock.lock where name = '11' for share", soon()).unwrap();
    only(backend.acquire(&[ask(&locks[3], &OwnerId::new("bob:1"), 1)])).unwrap();
    let before = trips(&backend);
    for (at, answer) in backend.renew(ClientId::random(), &items).iter().enumerate() {
        match at {
            7 | 13 => assert!(matches!(answer, Ok(Renewal::Lost)), "{at}: {answer:?}"),
            11 => assert!(answer.as_ref().is_err_and(|error| error.kind() == BackendErrorKind::Unavailable)),
            17 => assert!(answer.as_ref().is_err_and(|error| error.kind() == BackendErrorKind::Unsupported)),
            _ => assert!(matches!(answer, Ok(Renewal::Renewed)), "{at}: {answer:?}"),
        }
    }
    assert_eq!(trips(&backend) - before, 6, "two, two for the four, and two to wait for the one");
    assert!(holder(7).hold_count == 2 && holder(0).lease_left > Some(LEASE));
}

/// The server needs 10 ms for each row, and has 300 ms for a part.
#[test]
fn a_server_too_slow_for_a_whole_part_renews_parts_of_it() {
    let (url, ann) = (new_database(), OwnerId::new("ann:1"));
    let (first, mut con) = (patient(&url).connect().unwrap(), session(&url));
    let locks: Vec<_> = (0..100).map(|n| lock(&format!("{n:02}"))).collect();
    let holds: Vec<_> = locks.iter().map(|lock| hold(lock, &ann, take(&first, lock, &ann))).collect();
    let slowly = "create function slowly() returns trigger language plpgsql as \
                  $$ begin perform pg_sleep(0.01); return new; end $$; \
                  create trigger slowly before update on fairlock.lock for each row execute function slowly()";
    con.script(slowly, soon()).unwrap();
    let backend = PostgresBackend::builder(&url).response_timeout(SECOND * 3 / 10).connect().unwrap();
    let mut left: Vec<_> =
        holds.iter().map(|hold| Renew::Hold { hold: *hold, holds: 1, lease: LEASE * 2 }).collect();
    for _ in 0..100 {
        let answers = backend.renew(ClientId::random(), &left);
        left = left.into_iter().zip(answers).filter_map(|(one, answer)| answer.err().map(|_| one)).collect();
        if left.is_empty() {
            return;
        }
    }
    panic!("{} are not renewed", left.len());
}

#[test]
fn a_round_begins_where_the_last_one_was_not_answered() {
    let ((backend, mut con), ann) = (stage(), OwnerId::new("ann:1"));
    let locks: Vec<_> = (0..4).map(|n| lock(&format!("{n}"))).collect();
    let holds: Vec<_> = locks.iter().map(|lock| hold(lock, &ann, take(&backend, lock, &ann))).collect();
    let items: Vec<_> =
        holds.iter().map(|hold| Renew::Hold { hold: *hold, holds: 1, lease: LEASE * 2 }).collect();
    backend.0.pace.unanswered(2, &locks[3].name);
    backend.renew(ClientId::random(), &items).iter().for_each(|answer| assert!(answer.is_ok(), "{answer:?}"));
    let order = "select string_agg(convert_from(name, 'UTF8'), '' order by rev)::bigint from fairlock.lock";
    assert_eq!(number(&mut con, order), 3012);
    assert!(backend.0.pace.most() > 1, "parts grow when they are answered in good time");
}

#[test]
fn a_hold_is_lost_with_its_table() {
    for drop in ["drop schema fairlock cascade", "drop table fairlock.lock"] {
        let ((backend, mut con), lock, ann) = (stage(), lock("x"), OwnerId::new("ann:1"));
        let hold = hold(&lock, &ann, take(&backend, &lock, &ann));
        con.script(drop, soon()).unwrap();
        let answers = backend.renew(ClientId::random(), &[Renew::Hold { hold, holds: 1, lease: LEASE }]);
        assert!(matches!(answers[..], [Ok(Renewal::Lost)]), "{answers:?}");
    }
}

#[test]
fn rows_that_stay_locked_leave_each_other_lock_its_renewal() {
    let (url, ann) = (new_database(), OwnerId::new("ann:1"));
    let backend = patient(&url).connections(1).connect().unwrap();
    let mut con = session(&url);
    let kind = |at: usize| if at < 6 { LockKind::Fair } else { LockKind::Semaphore { permits: 2 } };
    let lock_of = |at: usize| LockId::new(LockName::new(&format!("{at}")).unwrap(), kind(at));
    let locks: Vec<_> = (0..14).map(lock_of).collect();
    let taken = locks.iter().map(|lock| hold(lock, &ann, take(&backend, lock, &ann)));
    let items: Vec<_> = taken.map(|hold| Renew::Hold { hold, holds: 1, lease: LEASE * 2 }).collect();
    con.script("begin; select from fairlock.lock where h_owner is not null for share", soon()).unwrap();
    let answers = backend.renew(ClientId::random(), &items);
    for (at, answer) in answers.iter().enumerate() {
        let is_blocked = answer.as_ref().is_err_and(|error| error.message().contains("55P03"));
        assert!(if at < 6 { is_blocked } else { matches!(answer, Ok(Renewal::Renewed)) }, "{at}: {answer:?}");
    }
    assert_eq!(backend.reconnects(), 0, "no wait has outlasted its call");
}

/// One in each part. Else the rows that are free would wait for each of them.
#[test]
fn rows_that_stay_locked_are_waited_for_last() {
    let (url, ann) = (new_database(), OwnerId::new("ann:1"));
    let (first, mut con) = (patient(&url).connect().unwrap(), session(&url));
    let kind = LockKind::Semaphore { permits: 2 };
    let lock_of = |at: usize| LockId::new(LockName::new(&format!("{at:03}")).unwrap(), kind);
    let locks: Vec<_> = (0..12 * MOST_LOCKS).map(lock_of).collect();
    let taken = locks.iter().map(|lock| hold(lock, &ann, take(&first, lock, &ann)));
    let items: Vec<_> = taken.map(|hold| Renew::Hold { hold, holds: 1, lease: LEASE * 2 }).collect();
    let blocked = "begin; select from fairlock.lock where convert_from(name, 'UTF8')::int % 64 = 0 for share";
    con.script(blocked, soon()).unwrap();
    // Twelve rows, each of which is waited for half a second, would take longer than the call.
    let backend = patient(&url).connections(1).response_timeout(SECOND * 4).connect().unwrap();
    let answers = backend.renew(ClientId::random(), &items);
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(matches!(answer, Ok(Renewal::Renewed)), at % MOST_LOCKS != 0, "{at}: {answer:?}");
    }
}

/// Neither the one that renews nor the one that releases had to wait for the row, so neither knows that nobody else got it.
#[test]
fn a_row_tells_that_it_was_locked_and_nobody_could_be_heard() {
    for is_locked in [true, false] {
        let (url, lock) = (new_database(), lock("x"));
        let [ours, theirs] = [(); 2].map(|()| patient(&url).connect().unwrap());
        [&ours, &theirs].iter().for_each(|backend| backend.0.recent.stands.store(true, Ordering::Relaxed));
        let ([ann, bob, carl], mut con) = (["a:1", "b:1", "c:1"].map(OwnerId::new), session(&url));
        con.script(STANDING_CLOCK, soon()).unwrap();
        let held = hold(&lock, &ann, take(&theirs, &lock, &ann));
        let place = |owner, ticket| {
            let mut ask = ask(&lock, owner, 1);
            (ask.place.ttl, ask.place.ticket) = (SECOND, ticket);
            ask.place
        };
        let renew = |backend: &PostgresBackend, place| {
            let renewed = backend.renew(ClientId::random(), &[Renew::Place { place, lease: LEASE }]);
            assert!(matches!(renewed[..], [Ok(Renewal::Waiting { .. })]), "{renewed:?}");
        };
        let joins = |backend: &PostgresBackend, owner| {
            let asked = only(backend.acquire(&[Acquire::new(place(owner, 0), LEASE)])).unwrap();
            let Acquired::Queued { ticket, .. } = asked else { panic!("{asked:?}") };
            renew(backend, place(owner, ticket));
        };
        joins(&ours, &bob);
        joins(&theirs, &carl);
        for _ in 0..2 {
            if is_locked {
                con.script("begin; select from fairlock.lock for share", soon()).unwrap();
            }
            let now = pass(&mut con, SECOND * 7 / 10); // half of a place's time counts each time
            [&ours, &theirs].iter().for_each(|backend| backend.0.recent.heard(now, Instant::now()));
            con.script("commit", soon()).unwrap();
            renew(&theirs, place(&carl, 0));
        }
        only(theirs.release(&[held])).unwrap();
        let next = con.row(Statement::made_up("select h_owner from fairlock.lock"), soon()).unwrap();
        assert_eq!(next.text(0).unwrap(), if is_locked { "b:1" } else { "c:1" });
    }
}
