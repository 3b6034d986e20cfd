//! What a decision on an old row, by an old reading of the clock, must not do.

use std::thread;
use std::time::Instant;

use fairlock_core::OwnerId;
use fairlock_core::backend::{Acquired, Backend, Hold, Place, RequestId, Withdrawn, only};
use fairlock_tests::eventually;

use crate::clients::channel_of;
use crate::combiner::Call;
use crate::command::Command;
use crate::net::Statement;
use crate::row::{Clock, Swap, micros};
use crate::test_server::new_database;
use crate::tests::{
    LEASE, SECOND, ask, hold, lock, number, patient, session, soon, stage, take, trips, wait_for_rows,
};

/// The server's clock is set back by a minute.
#[test]
fn a_decision_is_never_ahead_of_the_clock() {
    let ((backend, mut con), [x, y], ann) = (stage(), ["x", "y"].map(lock), OwnerId::new("a:1"));
    only(backend.release(&[hold(&y, &ann, take(&backend, &y, &ann))])).unwrap();
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

/// By a clock that may be ten seconds too early, and is not.
#[test]
fn a_late_decision_lasts_as_long_as_was_asked() {
    let ((backend, mut con), [x, y], ann) = (stage(), ["x", "y"].map(lock), OwnerId::new("a:1"));
    only(backend.release(&[hold(&y, &ann, take(&backend, &y, &ann))])).unwrap();
    take(&backend, &x, &ann);
    let store = &backend.0;
    let asked = [(&y.name, Command::acquire(&ask(&y, &ann, 1)))];
    let (_call, mut questions) = Call::asking(asked, soon());
    let (now, _) = store.recent.clock(Instant::now()).unwrap();
    let clock = Clock { now, late: SECOND * 10, waited: None };
    let swap = Swap::decide(store, &y.name, &mut questions, None, clock).unwrap().unwrap();
    let before = number(&mut con, "select fairlock.micros()");
    con.flight(swap.statements(&y.name, Some(0))[1].as_slice(), soon()).unwrap();
    let ends = number(&mut con, "select h_ends from fairlock.lock where name = 'y'");
    let after = number(&mut con, "select fairlock.micros()");
    assert!((before..=after).contains(&(ends - micros(LEASE))), "{}", ends - before);
}

/// A shorter lease takes nothing away, also if the clock may be that much too early.
#[test]
fn a_late_renewal_ends_no_sooner_than_before() {
    let ((backend, mut con), x, ann) = (stage(), lock("x"), OwnerId::new("a:1"));
    let held = hold(&x, &ann, take(&backend, &x, &ann));
    let store = &backend.0;
    let ends = |con: &mut _| number(con, "select h_ends from fairlock.lock");
    let before = ends(&mut con);
    let renew = fairlock_core::backend::Renew::Hold { hold: held, holds: 1, lease: LEASE - SECOND };
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
