//! What joins a step while its row is locked, as by the program's own transaction.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::OwnerId;
use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, Released, Wait, only,
};
use fairlock_tests::eventually;

use crate::PostgresBackend;
use crate::ask::answer;
use crate::combiner::Combiner;
use crate::command::Command;
use crate::question::Question;
use crate::step;
use crate::test_server::new_database;
use crate::tests::{
    LEASE, SECOND, ask, hold, lock, number, patient, session, soon, stage, take, trips, wait_for_rows,
};

/// Waits until a step loads, and this many have joined it.
fn until_joined(backend: &PostgresBackend, many: usize) {
    eventually("they join", || backend.0.combiner.joined().contains(&many));
}

fn acquire(backend: &PostgresBackend, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
    let (question, reply) = Question::new(&ask.place.lock.name, soon(), None, Command::acquire(ask));
    answer(&backend.0, vec![question], soon());
    reply.get()?
}

fn release(backend: &PostgresBackend, hold: &Hold<'_>, deadline: Instant) -> Result<Released, BackendError> {
    let release = Command::Release(hold.into());
    let (question, reply) = Question::new(&hold.lock.name, deadline, None, release);
    answer(&backend.0, vec![question], deadline);
    reply.get()?
}

const REVISIONS: &str = "select sum(rev)::bigint from fairlock.lock";

/// The requests that join a step are decided in order by one commit, and a lease counts from when its request asked.
#[test]
fn a_joined_step_is_decided_in_order_by_one_commit() {
    let ((backend, mut con), lock) = (stage(), lock("x"));
    let [ann, bob, carl] = ["a:1", "b:1", "c:1"].map(OwnerId::new);
    let held = hold(&lock, &ann, take(&backend, &lock, &ann));
    wait_for_rows(&backend, SECOND * 10);
    let (trips_before, revision) = (trips(&backend), number(&mut con, REVISIONS));
    con.script("begin; select from fairlock.lock for update", soon()).unwrap();
    let asked_at = thread::scope(|scope| {
        let (backend, lock) = (&backend, &lock);
        let asks = |owner| scope.spawn(move || acquire(backend, &ask(lock, owner, 1)));
        let first = scope.spawn(|| release(backend, &held, soon()));
        until_joined(backend, 0);
        thread::sleep(Duration::from_millis(100)); // the others are late by this
        let asked_at = number(&mut con, "select fairlock.micros()");
        let second = asks(&bob);
        until_joined(backend, 1);
        let third = asks(&carl);
        until_joined(backend, 2);
        con.script("rollback", soon()).unwrap();
        assert!(matches!(first.join().unwrap(), Ok(Released::Released)));
        let granted = second.join().unwrap();
        assert!(matches!(granted, Ok(Acquired::Granted { lease, .. }) if lease == LEASE), "{granted:?}");
        assert!(matches!(third.join().unwrap(), Ok(Acquired::Queued { rank: 0, .. })));
        asked_at
    });
    assert_eq!((trips(&backend) - trips_before, number(&mut con, REVISIONS) - revision), (2, 1));
    let ends = number(&mut con, "select h_ends from fairlock.lock where h_owner = 'b:1'");
    assert!(Duration::from_micros((ends - asked_at).cast_unsigned()) >= LEASE);
}

/// A step that fails fails for all calls that joined it, and a call that ends sooner does not join.
#[test]
fn a_failed_step_fails_for_all_who_joined_it() {
    let ((backend, mut con), lock) = (stage(), lock("x"));
    let [ann, bob] = ["a:1", "b:1"].map(OwnerId::new);
    let held = hold(&lock, &ann, take(&backend, &lock, &ann));
    wait_for_rows(&backend, SECOND * 3);
    con.script("begin; select from fairlock.lock for update", soon()).unwrap();
    backend.0.recent.is_busy(&lock.name); // so there is no fast attempt
    thread::scope(|scope| {
        let asked = scope.spawn(|| only(backend.acquire(&[ask(&lock, &bob, 1)])));
        until_joined(&backend, 0);
        let sooner = release(&backend, &held, Instant::now() + SECOND / 10).unwrap_err();
        assert!(sooner.message().contains("connections are in use"), "{sooner}");
        let joined = release(&backend, &held, soon()).unwrap_err();
        assert!(joined.message().contains("55P03"), "{joined}");
        assert!(asked.join().unwrap().unwrap_err().message().contains("55P03"));
    });
    con.script("rollback", soon()).unwrap();
    assert!(backend.0.combiner.joined().is_empty());
    assert!(matches!(only(backend.release(&[held])), Ok(Released::Released)));
}

/// They ask again and again, and each attempt would wait for half a second, on a connection, if it could.
#[test]
fn callers_at_a_blocked_row_leave_others_their_connections() {
    let (url, ann, blocked) = (new_database(), OwnerId::new("a:1"), lock("blocked"));
    let (backend, mut con) = (patient(&url).connect().unwrap(), session(&url));
    only(backend.release(&[hold(&blocked, &ann, take(&backend, &blocked, &ann))])).unwrap();
    con.script("begin; select from fairlock.lock for update", soon()).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..100 {
            let (backend, blocked, is_over) = (&backend, &blocked, &is_over);
            scope.spawn(move || {
                let owner = OwnerId::new(&format!("b:{n}"));
                while !is_over.load(Ordering::Acquire) {
                    only(backend.acquire(&[ask(blocked, &owner, n)])).unwrap_err();
                }
            });
        }
        let waits =
            "select count(*) from pg_locks where not granted and transactionid = pg_current_xact_id()::xid";
        eventually("a row is waited for", || number(&mut con, waits) > 0);
        let began = Instant::now();
        let turns = (0..).map(|n| lock(&format!("free {n}"))).take_while(|_| began.elapsed() < SECOND * 2);
        let failed = turns.filter(|free| only(backend.acquire(&[ask(free, &ann, 1)])).is_err()).count();
        is_over.store(true, Ordering::Release);
        assert_eq!(failed, 0);
    });
}

/// A repeat that finds its grant writes nothing, nor does a busy answer behind it. What the repeat promises is committed.
#[test]
fn a_step_commits_what_any_answer_promises() {
    let ((backend, mut con), [ann, bob]) = (stage(), ["a:1", "b:1"].map(OwnerId::new));
    let locks = ["a", "b"].map(lock);
    for lock in &locks {
        take(&backend, lock, &ann);
    }
    for other in &locks {
        let mut busy = ask(other, &bob, 2);
        busy.place.wait = Wait::No;
        let asks = [ask(&locks[0], &ann, 1), busy];
        let question =
            |ask: Acquire<'_>| Question::new(&ask.place.lock.name, soon(), None, Command::acquire(&ask));
        let (questions, replies): (Vec<_>, Vec<_>) = asks.map(question).into_iter().unzip();
        let revisions = number(&mut con, REVISIONS);
        assert!(step::make(&backend.0, questions, None, false).is_empty());
        let answers: Vec<_> = replies.into_iter().map(|reply| reply.get().unwrap().unwrap()).collect();
        assert!(matches!(answers[..], [Acquired::Granted { .. }, Acquired::Busy { .. }]), "{answers:?}");
        let committed = "select count(*) from fairlock.lock where name = 'a' and pg_xact_status(xmax::text::xid8) = 'committed'";
        assert_eq!(number(&mut con, committed), 1, "{}", other.name);
        assert_eq!(number(&mut con, REVISIONS), revisions, "and nothing is written");
    }
}

/// A question that was left unanswered when its time was over gets no step, which would cost a connection.
#[test]
fn a_question_whose_time_is_over_is_asked_no_more() {
    let (lock, deadline, asked) = (lock("x"), Instant::now() + SECOND / 20, AtomicUsize::new(0));
    let (question, reply) = Question::new(&lock.name, deadline, None, Command::ForceRelease(lock.clone()));
    Combiner::new(1, Duration::ZERO).operation(vec![question], deadline, |questions, _| {
        thread::sleep(deadline.saturating_duration_since(Instant::now()));
        if asked.fetch_add(1, Ordering::AcqRel) == 0 { questions } else { Vec::new() }
    });
    assert_eq!(asked.into_inner(), 1);
    assert!(reply.get::<ForceReleased>().unwrap_err().is_of_blocked_row());
}
