//! Steps, connections and polls that fail, and grants that are known already.

use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use fairlock_core::backend::{LockId, Place, Renew, Renewal};
use fairlock_core::{LockKind, LockName};

use super::*;
use crate::clients::key_of;
use crate::net::Statement;
use crate::tests::{LEASE, stage, trips};
use crate::wake_ups::look_for;

/// A backend that looks when it is told to, for as long as that takes.
fn looking(url: &str) -> PostgresBackend {
    let builder = PostgresBackend::builder(url).connections(1).wake_ups(WakeUps::Poll(SECOND * 60));
    let backend = builder.response_timeout(SECOND * 10).connect().unwrap();
    backend.0.pool.lend(soon(), |con| con.script("set lock_timeout = 0", soon())).unwrap();
    backend
}

/// A waiter of the same process is told of its grant. If the write fails it has to look: nobody knows whether there is a grant.
#[test]
fn a_hand_over_that_fails_is_told_as_a_question() {
    let ((backend, mut con), ann) = (stage(), OwnerId::new("ann:1"));
    let (bob, heard, _subscription) = subscribed(&backend);
    let refuses = "create function refuse() returns trigger language plpgsql as $$ begin raise 'not now'; end $$; \
                   create trigger refuse before update on fairlock.lock for each row execute function refuse()";
    for (is_done, expected) in [(true, "Granted"), (false, "Recheck")] {
        let lock = lock(expected);
        let held = hold(&lock, &ann, take(&backend, &lock, &ann));
        only(backend.acquire(&[ask(&lock, &bob, 2)])).unwrap();
        con.script(if is_done { "" } else { refuses }, soon()).unwrap();
        assert_eq!(only(backend.release(&[held])).is_ok(), is_done);
        let told = heard.recv_timeout(SECOND * 60).unwrap();
        assert!(told.starts_with(expected), "{told}");
    }
}

/// Its former session has not ended yet, when another one listens.
#[test]
fn presence_is_asked_for_until_the_former_session_ends() {
    let (url, lock) = (new_database(), lock("x"));
    let backend = listening(&url);
    let (bob, _heard, _subscription) = subscribed(&backend);
    let mut former = session(&url);
    former.row(Statement::new("select pg_advisory_lock($1)", [key_of(bob.client()).into()]), soon()).unwrap();
    take(&backend, &lock, &OwnerId::new("ann:1"));
    only(backend.acquire(&[ask(&lock, &bob, 2)])).unwrap();
    let is_present = || backend.0.clients.is_present(bob.client());
    assert_eq!((is_present(), present(&url)), (Some(false), 1));
    drop(former);
    until("it is present", || is_present() == Some(true) && present(&url) == 1);
}

/// Neither the connection for wake-ups nor polls are tried without a pause.
#[test]
fn what_fails_again_and_again_is_tried_after_pauses() {
    let (url, lock) = (new_database(), lock("x"));
    let closing = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let elsewhere = format!("postgres://fairlock@{}/x?sslmode=disable", closing.local_addr().unwrap());
    let listens = patient(&url).listen_on(&elsewhere).connect().unwrap();
    let polls = patient(&url).connections(1).wake_ups(WakeUps::Poll(SECOND / 500)).connect().unwrap();
    take(&polls, &lock, &OwnerId::new("ann:1"));
    let ((bob, ..), (carl, ..)) = &(subscribed(&listens), subscribed(&polls));
    closing.set_nonblocking(true).unwrap();
    let connects = thread::scope(|scope| {
        scope.spawn(|| only(listens.acquire(&[ask(&lock, bob, 1)])).unwrap());
        only(polls.acquire(&[ask(&lock, carl, 2)])).unwrap();
        let (began, mut connects) = (Instant::now(), 0);
        while connects < 2 || began.elapsed() < SECOND {
            connects += u32::from(closing.accept().is_ok()); // and closes it
            thread::sleep(SECOND / 1000);
        }
        f64::from(connects) / began.elapsed().as_secs_f64()
    });
    assert!(connects < 60.0, "{connects} connections a second: without pauses there would be hundreds");
    session(&url).script("alter table fairlock.lock rename to gone", soon()).unwrap();
    let (began, before) = (Instant::now(), trips(&polls));
    eventually("it looks", || trips(&polls) > before + 1 && began.elapsed() > SECOND / 2);
    let looks = (trips(&polls) - before) as f64 / began.elapsed().as_secs_f64();
    assert!(looks < 120.0, "{looks} looks a second");
}

/// A grant is told once: a look that was under way while another message came tells nothing more.
#[test]
fn a_look_tells_no_grant_that_is_known() {
    let (url, lock) = (new_database(), lock("x"));
    let (ours, theirs, ann) = (looking(&url), listening(&url), OwnerId::new("ann:1"));
    let (bob, heard, _subscription) = subscribed(&ours);
    let token = take(&theirs, &lock, &ann);
    only(ours.acquire(&[ask(&lock, &bob, 2)])).unwrap();
    only(theirs.release(&[hold(&lock, &ann, token)])).unwrap();
    let client = ours.0.clients.get(bob.client()).unwrap();
    let mut con = session(&url);
    con.script("begin; lock table fairlock.lock", soon()).unwrap();
    thread::scope(|scope| {
        let look = scope.spawn(|| look_for(&ours.0, &client).unwrap());
        let waits = "select count(*) from pg_locks where not granted and relation = 'fairlock.lock'::regclass \
                     and database = (select oid from pg_database where datname = current_database())";
        until("the look waits", || number(&mut con, waits) > 0);
        client.link.waits_no_longer(&client.link.waiting()[0].0);
        con.script("commit", soon()).unwrap();
        look.join().unwrap();
    });
    assert!(heard.try_recv().is_err());
}

/// Else its client would listen, or poll, until the place's time is over.
#[test]
fn a_request_that_has_its_answer_is_known_to_wait_no_more() {
    let url = new_database();
    let (ours, theirs, ann) = (looking(&url), listening(&url), OwnerId::new("ann:1"));
    let (bob, _heard, _subscription) = subscribed(&ours);
    for (kind, end) in
        [(LockKind::Plain, "asked"), (LockKind::Fair, "renewed"), (LockKind::Fair, "withdrawn")]
    {
        let lock = LockId::new(LockName::new(end).unwrap(), kind);
        let place: Place<'_> = ask(&lock, &bob, 2).place;
        let waiting = || ours.0.clients.get(bob.client()).unwrap().link.waiting().len();
        let token = take(&theirs, &lock, &ann);
        only(ours.acquire(&[ask(&lock, &bob, 2)])).unwrap();
        assert_eq!(waiting(), 1, "{end}");
        only(theirs.release(&[hold(&lock, &ann, token)])).unwrap();
        match end {
            "asked" => {
                assert!(matches!(only(ours.acquire(&[ask(&lock, &bob, 2)])), Ok(Acquired::Granted { .. })))
            }
            "renewed" => {
                let renewed = ours.renew(ClientId::random(), &[Renew::Place { place, lease: LEASE }]);
                assert!(matches!(renewed[..], [Ok(Renewal::Granted { .. })]), "{renewed:?}");
            }
            _ => drop(only(ours.withdraw(&[place])).unwrap()),
        }
        assert_eq!(waiting(), 0, "{end}");
    }
}
