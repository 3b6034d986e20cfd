//! What a decision on an old row, by an old reading of the clock, must not do.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::OwnerId;
use fairlock_core::backend::{Acquired, Backend, Hold, Place, Renew, RequestId, Wait, Withdrawn, only};
use fairlock_tests::eventually;

use crate::PostgresBackend;
use crate::clients::{channel_of, key_of};
use crate::combiner::Call;
use crate::command::Command;
use crate::net::Statement;
use crate::row::{Clock, Swap, clock_of, micros};
use crate::step::LATELY;
use crate::test_server::new_database;
use crate::tests::{
    LEASE, SECOND, STANDING_CLOCK, ask, hold, lock, number, pass, patient, session, soon, stage, take, trips,
    wait_for_rows,
};

/// The server's clock is set back by a minute. The lock has a row, or is new.
#[test]
fn a_decision_is_never_ahead_of_the_clock() {
    for is_new in [false, true] {
        let ((backend, mut con), [x, y], ann) = (stage(), ["x", "y"].map(lock), OwnerId::new("a:1"));
        if !is_new {
            only(backend.release(&[hold(&y, &ann, take(&backend, &y, &ann))])).unwrap();
        }
        take(&backend, &x, &ann); // which tells the clock
        let earlier = "create or replace function fairlock.micros() returns bigint language sql volatile \
                       as $$ select (date_part('epoch', clock_timestamp() - interval '1 min') * 1000000)::bigint $$";
        con.script(earlier, soon()).unwrap();
        let before = trips(&backend);
        take(&backend, &y, &ann);
        assert_eq!(trips(&backend) - before, 2, "the first does nothing");
        let ahead = "select h_since - fairlock.micros() from fairlock.lock where name = 'y'";
        assert!(number(&mut con, ahead) <= 0);
    }
}

/// By a clock that may be ten seconds too early, and is not; or by one that may not, and is. Of a row that is there, and of a new one.
#[test]
fn a_late_decision_lasts_as_long_as_was_asked() {
    let ((backend, mut con), [x, y, z], ann) = (stage(), ["x", "y", "z"].map(lock), OwnerId::new("a:1"));
    for (lock, is_there) in [(&y, true), (&z, false)] {
        for late in [SECOND * 10, Duration::ZERO] {
            only(backend.release(&[hold(&y, &ann, take(&backend, &y, &ann))])).unwrap();
            let unused = "update fairlock.lock set last = 0 where name = 'y'; delete from fairlock.lock where name = 'z'";
            con.script(unused, soon()).unwrap();
            take(&backend, &x, &ann); // which tells the clock
            let store = &backend.0;
            let asked = [(&lock.name, Command::acquire(&ask(lock, &ann, 1)))];
            let (_call, mut questions) = Call::asking(asked, soon());
            let (now, _) = store.recent.clock(Instant::now()).unwrap();
            let now = if late.is_zero() { now.saturating_sub(SECOND) } else { now };
            let clock = Clock { now, late, waited: None };
            let swap = Swap::decide(store, &lock.name, &mut questions, None, clock).unwrap().unwrap();
            let before = number(&mut con, "select fairlock.micros()");
            let statement = &swap.statements(&lock.name, Some(0))[usize::from(is_there)];
            con.flight(statement.as_slice(), soon()).unwrap();
            let ends = format!("select h_ends from fairlock.lock where name = '{}'", lock.name.as_str());
            let begins = number(&mut con, &ends) - micros(LEASE);
            let after = number(&mut con, "select fairlock.micros()");
            let expected = if late.is_zero() { micros(now)..=micros(now) } else { before..=after };
            assert!(expected.contains(&begins), "{is_there} {late:?}: {}", begins - before);
            let held = hold(&y, &ann, take(&backend, &y, &ann));
            _ = only(backend.release(&[held]));
        }
    }
}

/// A shorter lease takes nothing away, also if the clock may be that much too early.
#[test]
fn a_late_renewal_ends_no_sooner_than_before() {
    let ((backend, mut con), x, ann) = (stage(), lock("x"), OwnerId::new("a:1"));
    let held = hold(&x, &ann, take(&backend, &x, &ann));
    let store = &backend.0;
    let ends = |con: &mut _| number(con, "select h_ends from fairlock.lock");
    let before = ends(&mut con);
    let renew = Renew::Hold { hold: held, holds: 1, lease: LEASE - SECOND };
    let (_call, mut questions) = Call::asking([(&x.name, Command::renew([renew].iter()))], soon());
    let (row, _) = store.recent.row(&x.name).unwrap();
    let (now, _) = store.recent.clock(Instant::now()).unwrap();
    let clock = Clock { now, late: SECOND * 1000, waited: None };
    let swap = Swap::decide(store, &x.name, &mut questions, Some(&row), clock).unwrap().unwrap();
    con.flight(swap.statements(&x.name, Some(0))[1].as_slice(), soon()).unwrap();
    let longer = ends(&mut con) - before;
    assert!((0..micros(SECOND * 500)).contains(&longer), "{longer}");
}

/// The server forgets a release, and writes another row in its place. A client still has the row of the release.
#[test]
fn a_forgotten_revision_is_no_other_rows() {
    let (url, x, [ann, bob]) = (new_database(), lock("x"), ["a:1", "b:1"].map(OwnerId::new));
    let [ours, theirs] = [(); 2].map(|()| patient(&url).connect().unwrap());
    let mut con = session(&url);
    let held = hold(&x, &ann, take(&ours, &x, &ann));
    con.script("create table saved as select * from fairlock.lock", soon()).unwrap();
    only(ours.release(&[held])).unwrap();
    con.script("delete from fairlock.lock; insert into fairlock.lock select * from saved", soon()).unwrap();
    assert!(matches!(only(theirs.acquire(&[ask(&x, &bob, 1)])), Ok(Acquired::Queued { .. })));
    assert_eq!(only(ours.withdraw(&[Place::new(&x, &ann, RequestId::new(9))])).unwrap(), Withdrawn::Left);
    assert_eq!(ours.inspect(&x, 0..1).unwrap().queue.len(), 1, "the row is as it was written");
}

/// The row was deleted, and made again by another client.
#[test]
fn a_row_that_was_made_again_is_another_one() {
    let (url, x, [ann, bob]) = (new_database(), lock("x"), ["a:1", "b:1"].map(OwnerId::new));
    let [ours, theirs] = [(); 2].map(|()| patient(&url).connect().unwrap());
    let mut con = session(&url);
    let held = hold(&x, &ann, take(&ours, &x, &ann));
    con.script("delete from fairlock.lock", soon()).unwrap();
    take(&theirs, &x, &bob);
    only(ours.release(&[held])).unwrap();
    assert_eq!(theirs.inspect(&x, 0..0).unwrap().holders.len(), 1, "the row is as it was made");
}

/// The attempt has been executed, and waits for the disk or the standby. A read would not see it.
#[test]
fn a_withdrawal_waits_for_an_attempt_under_way() {
    let ((backend, mut con), ann) = (stage(), OwnerId::new("a:1"));
    let ([known, new, other], backend) = (["known", "new", "other"].map(lock), &backend);
    only(backend.release(&[hold(&known, &ann, take(backend, &known, &ann))])).unwrap();
    wait_for_rows(backend, SECOND * 10);
    for lock in [&known, &new] {
        let grants = "insert into fairlock.lock as l (name, rev, last, h_owner, h_request, h_token, h_count, h_since, h_ends, h_label) \
                      select $1, t, t, 'a:1', 7, t, 1, t, t + 30000000, '' from fairlock.micros() t \
                      on conflict (name) do update set (rev, last, h_owner, h_request, h_token, h_count, h_since, h_ends, h_label) \
                      = (excluded.rev, excluded.last, 'a:1', 7, excluded.last, 1, excluded.h_since, excluded.h_ends, '')";
        con.script("begin", soon()).unwrap();
        con.flight(&[Statement::new(grants, [lock.name.as_str().as_bytes().into()])], soon()).unwrap();
        let left = thread::scope(|scope| {
            let places = [lock, &other].map(|lock| Place::new(lock, &ann, RequestId::new(7)));
            let left = scope.spawn(move || backend.withdraw(&places));
            let waits = "select count(*) from pg_locks where not granted and transactionid = pg_current_xact_id()::xid";
            eventually("it waits for the attempt, or has ended", || {
                number(&mut con, waits) > 0 || left.is_finished()
            });
            con.script("commit", soon()).unwrap();
            left.join().unwrap()
        });
        assert!(matches!(left[..], [Ok(Withdrawn::WasGranted { .. }), Ok(Withdrawn::Left)]), "{left:?}");
    }
}

/// The swap that is done tells the next owner, in another process, and no other swap does.
#[test]
fn a_missed_swap_tells_nobody() {
    let ((backend, mut con), x) = (stage(), lock("x"));
    let [ann, bob] = ["a:1", "b:1"].map(OwnerId::new);
    let held: Hold<'_> = hold(&x, &ann, take(&backend, &x, &ann));
    only(backend.acquire(&[ask(&x, &bob, 1)])).unwrap();
    let channel = channel_of(bob.client());
    con.script(&format!("listen {channel}; update fairlock.lock set rev = rev + 1"), soon()).unwrap();
    let before = trips(&backend);
    only(backend.release(&[held])).unwrap();
    assert_eq!(trips(&backend) - before, 2, "the row was another one");
    let mut heard = Vec::new();
    while !heard.iter().any(|message| message == "end") {
        con.script(&format!("notify {channel}, 'end'"), soon()).unwrap();
        heard.extend(con.listen(soon()).unwrap());
    }
    assert_eq!(heard.iter().filter(|message| *message != "end").count(), 1, "{heard:?}");
}

/// Each of the first four waiters may go meanwhile, or come back, and change who is next. Under the row lock that does not matter.
#[test]
fn a_swap_looks_again_who_of_the_waiters_is_gone() {
    let (url, x, ann) = (new_database(), lock("x"), OwnerId::new("a:1"));
    let (backend, mut present, mut con) = (patient(&url).connect().unwrap(), session(&url), session(&url));
    let held = hold(&x, &ann, take(&backend, &x, &ann));
    let waiters = ["b:1", "c:1", "d:1", "e:1"].map(OwnerId::new);
    waiters.iter().for_each(|waiter| assert!(only(backend.acquire(&[ask(&x, waiter, 1)])).is_ok()));
    let keys = waiters.each_ref().map(|waiter| key_of(waiter.client()));
    let set_heads = format!("update fairlock.lock set rev = rev + 1, heads = array{keys:?}::bigint[]");
    con.script(&set_heads, soon()).unwrap();
    let renew = Renew::Hold { hold: held, holds: 1, lease: LEASE };
    for key in keys {
        present.script(&format!("select pg_advisory_lock({key})"), soon()).unwrap();
    }
    for (was_gone, is_gone, is_locked) in [
        (false, false, false),
        (false, true, false),
        (true, false, false),
        (true, true, false),
        (false, true, true),
    ] {
        for key in keys {
            let mut turn = |is_gone| {
                let how = if is_gone { "unlock" } else { "lock" };
                present.script(&format!("select pg_advisory_{how}({key})"), soon()).unwrap();
            };
            if was_gone {
                turn(true);
            }
            let read = Swap::read().statements(&x.name, Some(0)).into_iter().flatten().collect::<Vec<_>>();
            let row = con.flight(&read, soon()).unwrap().remove(0).remove(0);
            let (_call, mut questions) = Call::asking([(&x.name, Command::renew([renew].iter()))], soon());
            let now = clock_of(&row).unwrap();
            let clock = Clock { now, late: Duration::ZERO, waited: is_locked.then_some((now, false)) };
            let swap = Swap::decide(&backend.0, &x.name, &mut questions, Some(&row), clock).unwrap().unwrap();
            if is_gone != was_gone {
                turn(is_gone);
            }
            let rows = con.flight(swap.statements(&x.name, Some(0))[1].as_slice(), soon()).unwrap();
            assert_eq!(rows[0].is_empty(), was_gone != is_gone && !is_locked, "{was_gone} {is_gone}");
            if is_gone {
                turn(false);
            }
        }
    }
}

/// The clock does not move, and the row is not known any more when the lock is taken again.
#[test]
fn a_clock_that_stands_gives_no_number_twice() {
    let ((backend, mut con), x, ann) = (stage(), lock("x"), OwnerId::new("a:1"));
    con.script(STANDING_CLOCK, soon()).unwrap();
    backend.0.recent.stands.store(true, Ordering::Relaxed);
    let mut revision = || number(&mut con, "select rev from fairlock.lock");
    let numbers = [(); 2].map(|()| {
        let token = take(&backend, &x, &ann);
        let taken = revision();
        only(backend.release(&[hold(&x, &ann, token)])).unwrap();
        backend.0.recent.saw(&x.name, None);
        (token, taken, revision())
    });
    let [(token, taken, released), (next_token, next_taken, _)] = numbers;
    assert!(token < next_token && taken < released && released < next_taken, "{numbers:?}");
}

/// By a clock that runs backwards each decision is ahead. The call gives up before its time.
#[test]
fn a_row_that_is_missed_again_and_again_is_an_error() {
    let ((backend, mut con), x, ann) = (stage(), lock("x"), OwnerId::new("a:1"));
    let backwards = "create sequence fairlock.clock increment -1000000 start 1700000000000000 maxvalue 1700000000000000; \
         create or replace function fairlock.micros() returns bigint language sql volatile \
         as $$ select nextval('fairlock.clock') $$";
    con.script(backwards, soon()).unwrap();
    let error = only(backend.acquire(&[ask(&x, &ann, 1)])).unwrap_err();
    assert!(error.message().contains("changes again and again"), "{error}");
}

/// Another process, or the program, has had the row meanwhile. The lock is free again, and a request does not know.
#[test]
fn a_free_lock_is_taken_at_once_whoever_had_it() {
    let (url, x, [ann, bob]) = (new_database(), lock("x"), ["a:1", "b:1"].map(OwnerId::new));
    let [ours, theirs] = [(); 2].map(|()| patient(&url).connections(1).connect().unwrap());
    let mut con = session(&url);
    con.script(STANDING_CLOCK, soon()).unwrap();
    [&ours, &theirs].iter().for_each(|backend| backend.0.recent.stands.store(true, Ordering::Relaxed));
    let tick = |con: &mut _| {
        let now = pass(con, SECOND / 1000);
        [&ours, &theirs].iter().for_each(|backend| backend.0.recent.heard(now, Instant::now()));
    };
    let leave = |backend: &PostgresBackend, owner, token| {
        assert!(only(backend.release(&[hold(&x, owner, token)])).is_ok());
    };
    let try_lock = || {
        let mut ask = ask(&x, &ann, 1);
        ask.place.wait = Wait::No;
        only(ours.acquire(&[ask])).unwrap()
    };
    leave(&ours, &ann, take(&ours, &x, &ann));
    for meanwhile in ["cycle", "ended", "locked", "busy", "busy and old"] {
        tick(&mut con);
        let token = take(&theirs, &x, &bob);
        match meanwhile {
            "ended" => con.script("update fairlock.lock set rev = rev + 1, h_ends = 0", soon()).unwrap(),
            "locked" => {
                leave(&theirs, &bob, token);
                con.script("begin; select from fairlock.lock for share; commit", soon()).unwrap();
            }
            "cycle" => leave(&theirs, &bob, token),
            _ => {
                assert!(matches!(try_lock(), Acquired::Busy { .. }));
                leave(&theirs, &bob, token);
            }
        }
        if meanwhile == "busy and old" {
            eventually("the row is old", || ours.0.recent.row(&x.name).unwrap().1 > LATELY);
        }
        tick(&mut con);
        let before = trips(&ours);
        let token = match meanwhile {
            "busy" => match try_lock() {
                Acquired::Granted { token, .. } => token,
                other => panic!("{other:?}"),
            },
            _ => take(&ours, &x, &ann),
        };
        assert_eq!(trips(&ours) - before, 1, "{meanwhile}");
        leave(&ours, &ann, token);
    }
}
