//! Tasks: waits, work, terms and the calls of a client as futures, which this thread polls.

use std::cell::Cell;
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use fairlock_core::{AsyncLock, Error, LockKind, TryLock};

use super::{
    Harness, LEASE, PATIENCE, Promise, SLACK, client, client_to_be_told, lock, until, until_in_queue,
};

/// Each poll of this thread but the first follows a wake-up.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs the future to its end. Time stands still unless only a renewal can end the future.
pub(super) fn run<F: Future>(harness: &impl Harness, future: F) -> F::Output {
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(Instant::now() < give_up_at, "no wake-up in {PATIENCE:?}");
        if harness.tells_unasked() {
            thread::park_timeout(give_up_at.saturating_duration_since(Instant::now()));
        } else {
            thread::park_timeout(Duration::from_millis(20));
            harness.pass(SLACK);
        }
    }
}

/// Polls it once. What it is ready with is dropped.
fn begin<F: Future + Unpin>(future: &mut F) {
    let _ = Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
}

fn task_lock(harness: &impl Harness, name: &str) -> AsyncLock {
    lock(harness, name).to_async()
}

/// Each poll of a new future takes a place.
pub fn tasks_get_the_lock_in_the_order_of_their_first_polls(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "tasks"), task_lock(harness, "tasks"));
    let guard = ours.lock().unwrap();
    assert!(run(harness, theirs.try_lock()).unwrap().granted().is_none());
    let mut waits = theirs.try_lock_for(SLACK);
    begin(&mut waits);
    until_in_queue(harness, &ours, 1);
    harness.pass(SLACK);
    assert!(run(harness, waits).unwrap().granted().is_none());
    until_in_queue(harness, &ours, 0);
    let waiters = if harness.promises(Promise::Order) { 3 } else { 1 };
    let waits: Vec<_> = (1..=waiters)
        .map(|n| {
            let mut wait = theirs.lock();
            begin(&mut wait);
            until_in_queue(harness, &ours, n);
            wait
        })
        .collect();
    let mut last = guard.token();
    guard.unlock().unwrap();
    for wait in waits {
        let guard = run(harness, wait).unwrap();
        assert!(guard.token() > last && ours.is_locked().unwrap());
        last = guard.token();
        run(harness, guard.unlock()).unwrap();
    }
    harness.assert_nothing_is_left("tasks");
}

/// While it waits, when the lock was granted and no poll took it, and with the guard.
pub fn a_dropped_future_of_a_task_leaves_nothing(harness: &impl Harness) {
    let (ours, theirs) = (lock(harness, "drops"), task_lock(harness, "drops"));
    let guard = ours.lock().unwrap();
    let mut waits = theirs.lock();
    begin(&mut waits);
    until_in_queue(harness, &ours, 1);
    drop(waits);
    until_in_queue(harness, &ours, 0);
    guard.unlock().unwrap();
    for _ in 0..20 {
        begin(&mut theirs.lock());
    }
    drop(run(harness, theirs.lock()).unwrap());
    until("it is given back", || ours.try_lock().unwrap().granted().is_some());
    harness.assert_nothing_is_left("drops");
}

/// Then the lock is free for others.
pub fn work_of_a_task_is_dropped_when_its_hold_is_lost(harness: &impl Harness) {
    let client = client_to_be_told(harness);
    let ours = client.lock_of("work", harness.kind()).unwrap().to_async();
    let theirs = task_lock(harness, "work");
    let work = ours.with(async |_| {
        assert!(theirs.admin().force_unlock().await.unwrap());
        pending::<()>().await
    });
    assert!(matches!(run(harness, work), Err(Error::Lost(_))));
    // Also work that awaits nothing after the loss.
    let blocking = lock(harness, "work");
    let late = ours.with(async |_| blocking.admin().force_unlock().unwrap());
    assert!(matches!(run(harness, late), Err(Error::Lost(_))));
    let held = run(harness, theirs.try_lock()).unwrap().granted().expect("it was taken");
    assert!(matches!(run(harness, ours.try_with(async |_| ())), Ok(TryLock::Busy(_))));
    run(harness, held.unlock()).unwrap();
    assert!(matches!(run(harness, ours.try_with_for(LEASE * 100, async |_| 7)), Ok(TryLock::Granted(7))));
    harness.assert_nothing_is_left("work");
}

/// Its next term has a larger token.
pub fn a_task_that_leads_asks_again_after_a_loss(harness: &impl Harness) {
    let client = client_to_be_told(harness);
    let ours = client.lock_of("leads", harness.kind()).unwrap().to_async();
    let theirs = task_lock(harness, "leads");
    let former = Cell::new(None);
    let led = ours.lead(async |term| {
        if former.get().is_none() {
            former.set(Some(term.token()));
            assert!(theirs.admin().force_unlock().await.unwrap());
            pending::<()>().await;
        }
        term.token()
    });
    assert!(run(harness, led).unwrap() > former.get());
    harness.assert_nothing_is_left("leads");
}

/// Or takes all. They are fair locks, so a store of plain locks has nothing to show here.
pub fn a_dropped_lock_all_of_a_task_gives_all_back(harness: &impl Harness) {
    if harness.kind() != LockKind::Fair {
        return;
    }
    let (ours, names) = (client(harness).to_async(), ["task:b", "task:a"]);
    let [second, first] = names.map(|name| lock(harness, name));
    let busy = second.lock().unwrap();
    assert!(run(harness, ours.try_lock_all(&names)).unwrap().granted().is_none());
    let mut waits = Box::pin(ours.lock_all(&names));
    until("it waits for the second lock", || {
        second.admin().inspect().unwrap().queue_length == 1 || {
            begin(&mut waits);
            false
        }
    });
    assert!(first.try_lock().unwrap().granted().is_none());
    drop(waits);
    until("it is given back", || first.try_lock().unwrap().granted().is_some());
    until_in_queue(harness, &second, 0);
    busy.unlock().unwrap();
    let all = run(harness, ours.lock_all(&names)).unwrap();
    assert!(all.token("task:a").is_some() && !run(harness, all.renew()).unwrap().is_zero());
    run(harness, all.unlock()).unwrap();
    names.iter().for_each(|name| harness.assert_nothing_is_left(name));
}

/// What is awaited of a client and of an operator does what it does for threads.
pub fn a_task_looks_and_ends_its_client(harness: &impl Harness) {
    let (leaver, theirs) = (client(harness).to_async(), lock(harness, "ends"));
    let ours = leaver.lock_of("ends", harness.kind()).unwrap();
    let guard = run(harness, ours.lock()).unwrap();
    assert_eq!(run(harness, ours.admin().inspect()).unwrap().holder().unwrap().owner, *guard.owner());
    if harness.promises(Promise::Order) {
        let request = theirs.request().unwrap();
        until_in_queue(harness, &theirs, 1);
        assert_eq!(run(harness, ours.admin().inspect()).unwrap().queue.len(), 1);
        drop(request);
    }
    let mut drains = Box::pin(leaver.drain(LEASE * 100));
    begin(&mut drains);
    until("it is drained", || matches!(run(harness, ours.try_lock()), Err(Error::Shutdown { .. })));
    guard.check().unwrap();
    run(harness, guard.unlock()).unwrap();
    assert!(run(harness, drains).unwrap().is_empty());
    run(harness, leaver.shutdown()).unwrap();
    theirs.try_lock().unwrap().granted().unwrap().unlock().unwrap();
    harness.assert_nothing_is_left("ends");
}
