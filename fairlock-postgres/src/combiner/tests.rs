//! Steps while rows are locked, as by the program's own transaction; and what is committed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::OwnerId;
use fairlock_core::backend::{Acquired, Backend, BackendError, Wait, only};
use fairlock_tests::{Proxy, eventually};

use crate::combiner::{Call, Combiner};
use crate::command::Command;
use crate::step;
use crate::test_server::{SERVER, new_database};
use crate::tests::{SECOND, ask, hold, lock, number, patient, session, soon, stage, take};

const REVISIONS: &str = "select sum(rev)::bigint from fairlock.lock";

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

/// A repeat that finds its grant changes nothing, nor does a busy answer behind it. What the repeat promises is committed.
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
        let asks = [ask(&locks[0], &ann, 1), busy, ask(&locks[0], &ann, 1)];
        let asked = asks.iter().map(|ask| (&ask.place.lock.name, Command::acquire(ask)));
        let (call, questions) = Call::asking(asked, soon());
        let revisions = number(&mut con, REVISIONS);
        assert!(step::make(&backend.0, questions, None, false).is_empty());
        let answers = call.answers().into_iter().map(|answer| Acquired::try_from(answer.unwrap()).unwrap());
        let answers: Vec<_> = answers.collect();
        assert!(
            matches!(
                answers[..],
                [Acquired::Granted { .. }, Acquired::Busy { .. }, Acquired::Granted { .. }]
            ),
            "{answers:?}"
        );
        assert!(number(&mut con, REVISIONS) > revisions, "{}: it is written", other.name);
    }
}

/// A question that was left unanswered when its time was over gets no step, which would cost a connection.
#[test]
fn a_question_whose_time_is_over_is_asked_no_more() {
    let (lock, deadline, asked) = (lock("x"), Instant::now() + SECOND / 20, AtomicUsize::new(0));
    let (call, questions) = Call::asking([(&lock.name, Command::ForceRelease(lock.clone()))], deadline);
    Combiner::new(1, Duration::ZERO).operation(&call, questions, |questions, _| {
        thread::sleep(deadline.saturating_duration_since(Instant::now()));
        if asked.fetch_add(1, Ordering::AcqRel) == 0 { questions } else { Vec::new() }
    });
    assert_eq!(asked.into_inner(), 1);
    let error = BackendError::from(call.answers().remove(0).err().unwrap());
    assert!(error.message().contains("no answer in time"), "{error}");
}

/// Its step hears nothing. Another call about the lock waits for that step, but not for its whole time.
#[test]
fn a_silent_step_keeps_its_lock_from_others_for_a_while() {
    let ((url, lock), [ann, bob]) = ((new_database(), lock("x")), ["a:1", "b:1"].map(OwnerId::new));
    let proxy = Proxy::start(SERVER.port());
    let url = url.replace(&SERVER.address(), &format!("127.0.0.1:{}", proxy.port()));
    let backend = patient(&url).connect().unwrap();
    only(backend.release(&[hold(&lock, &ann, take(&backend, &lock, &ann))])).unwrap();
    proxy.forget_connections();
    let (began, combiner) = (Instant::now(), &backend.0.combiner);
    thread::scope(|scope| {
        let silent = scope.spawn(|| only(backend.acquire(&[ask(&lock, &ann, 2)])));
        eventually("its step has begun", || combiner.state.lock().is_in_step(&lock.name));
        take(&backend, &lock, &bob);
        assert!(began.elapsed() >= SECOND * 10 / 4, "no other step was about the lock");
        assert!(!silent.is_finished());
        proxy.cut();
        silent.join().unwrap().unwrap_err();
    });
}
