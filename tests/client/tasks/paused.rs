//! The memory backend where time stands still: tokio's paused clock jumps to the next timer as soon as no task can run, so between two
//! tasks no other thread may be needed. And a `ManualClock`, which the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fairlock::{AsyncLock, Client, Error, LostCause, ManualClock, MemoryBackend, Operation, TryLock};
use fairlock_tests::Alone;
use futures::executor::block_on;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};

use crate::support::{EXECUTORS, begin, in_memory, pause, take, task, unlock};

const LIMIT: Duration = Duration::from_secs(5);
const ROUNDS: usize = 200;

/// Only a runtime of one thread can be paused.
fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// A lock of each kind, whose holders exclude each other.
fn locks(client: &Client, name: &str) -> Vec<AsyncLock> {
    let rw = client.rw_lock(&format!("rw:{name}")).unwrap();
    vec![
        client.fair_lock(&format!("fair:{name}")).unwrap().to_async(),
        client.plain_lock(&format!("plain:{name}")).unwrap().to_async(),
        rw.writer().to_async(),
        client.semaphore(&format!("permit:{name}"), 1).unwrap().to_async().lock_of(1).unwrap(),
    ]
}

#[test]
fn a_free_lock_is_granted_while_tokios_time_is_paused() {
    let _alone = Alone::here();
    paused().block_on(async {
        let began = Instant::now();
        for round in 0..ROUNDS {
            let client = Client::new(MemoryBackend::new()).unwrap(); // each has threads of its own, which begin
            for lock in locks(&client, &round.to_string()) {
                let guard = timeout(LIMIT, lock.lock())
                    .await
                    .unwrap_or_else(|_| panic!("{round}: {lock:?}"))
                    .unwrap();
                timeout(LIMIT, guard.unlock()).await.unwrap_or_else(|_| panic!("{round}: {lock:?}")).unwrap();
                let TryLock::Granted(guard) = timeout(LIMIT, lock.try_lock()).await.unwrap().unwrap() else {
                    panic!("{round}: {lock:?}")
                };
                drop(guard);
                assert!(matches!(
                    timeout(LIMIT, lock.try_lock_for(LIMIT)).await,
                    Ok(Ok(TryLock::Granted(_)))
                ));
            }
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "no timer was waited for");
    });
}

/// By an unlock, by a drop, and by a wait that is dropped after its grant. The waiter is the same client's or another one's.
#[test]
fn a_lock_is_handed_over_while_tokios_time_is_paused() {
    let _alone = Alone::here();
    paused().block_on(async {
        let [one, other] = in_memory();
        let began = Instant::now();
        for round in 0..ROUNDS {
            let name = round.to_string();
            let theirs = locks(if round % 2 == 0 { &one } else { &other }, &name);
            for (lock, theirs) in locks(&one, &name).into_iter().zip(theirs) {
                let guard = timeout(LIMIT, lock.lock()).await.unwrap().unwrap();
                let mut left = theirs.lock();
                begin(&mut left);
                let waits = tokio::spawn(async move { timeout(LIMIT, theirs.lock()).await });
                pause().await;
                assert!(!waits.is_finished());
                if round % 3 == 0 {
                    drop(guard)
                } else {
                    guard.unlock().await.unwrap()
                }
                drop(left); // which has the lock
                let guard = waits.await.unwrap().unwrap_or_else(|_| panic!("{round}: {lock:?}")).unwrap();
                guard.unlock().await.unwrap();
            }
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "no timer was waited for");
    });
}

/// They take turns, and each turn takes a second of that time.
#[test]
fn a_crowd_takes_turns_while_tokios_time_is_paused() {
    let _alone = Alone::here();
    const CROWD: u64 = 100;
    paused().block_on(async {
        let [client, other] = in_memory();
        let lock = client.fair_lock("crowd").unwrap().to_async();
        let theirs = other.fair_lock("crowd").unwrap().to_async();
        let began = Instant::now();
        let tasks: Vec<_> = (0..CROWD)
            .map(|nth| {
                let lock = if nth % 2 == 0 { lock.clone() } else { theirs.clone() };
                tokio::spawn(async move {
                    let guard = lock.lock().await.unwrap();
                    assert_eq!(began.elapsed().as_secs(), nth, "in the order of the first polls");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    guard.check().unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(began.elapsed().as_secs(), CROWD);
    });
}

#[test]
fn a_timer_of_the_runtime_ends_a_wait_while_time_is_paused() {
    let _alone = Alone::here();
    paused().block_on(async {
        let [client, _] = in_memory();
        for lock in locks(&client, "held") {
            let guard = lock.lock().await.unwrap();
            let began = Instant::now();
            timeout(LIMIT, lock.lock()).await.unwrap_err();
            assert_eq!(began.elapsed(), LIMIT);
            guard.unlock().await.unwrap();
            assert!(client.waiting().is_empty(), "it has left");
            drop(timeout(LIMIT, lock.lock()).await.unwrap().unwrap());
        }
    });
}

/// A call that fails or is slow is another thread's, in real time: a timer beside it would run out.
#[test]
fn faults_do_as_ever_while_tokios_time_is_paused() {
    let _alone = Alone::here();
    let store = MemoryBackend::new();
    let client = Client::new(store.clone()).unwrap();
    let lock = client.fair_lock("faults").unwrap().to_async();
    paused().block_on(async {
        for operation in [Operation::Acquire, Operation::Release] {
            store.faults().fail_next(operation, 1);
            lock.lock().await.unwrap().unlock().await.unwrap();
            store.faults().lose_reply(operation, 1);
            lock.lock().await.unwrap().unlock().await.unwrap();
            store.faults().delay_next(operation, 1, Duration::from_millis(1));
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        store.faults().fail_next(Operation::Acquire, 2);
        assert!(matches!(lock.try_lock().await, Err(Error::Unavailable { .. })));
        lock.lock().await.unwrap().unlock().await.unwrap();
    });
    assert_eq!(client.stats().lost, 0);
}

/// A delay sleeps on another thread than the test's, which moves the clock.
#[test]
fn a_manual_clock_tells_the_time_of_tasks() {
    let _alone = Alone::here();
    for (name, executor) in EXECUTORS {
        let clock = ManualClock::new();
        let store = MemoryBackend::with_clock(clock.clone());
        let connect = || Client::builder(store.clone()).clock(clock.clone()).build().unwrap();
        let (client, other) = (connect(), connect());
        let lock = client.fair_lock("clock").unwrap().to_async();
        let theirs = other.fair_lock("clock").unwrap().to_async();
        // An hour of work, renewed on the way; and a wait of an hour.
        let guard = take(&lock);
        let mut waiting = theirs.try_lock_for(Duration::from_secs(3600));
        begin(&mut waiting);
        clock.advance(Duration::from_secs(3599));
        begin(&mut waiting);
        clock.advance(Duration::from_secs(1));
        assert!(matches!(block_on(waiting), Ok(TryLock::Busy(_))), "{name}");
        unlock(guard);
        // A hold that is lost, in a task.
        let (told, runs) = (Arc::new(AtomicUsize::new(0)), lock.clone());
        let (tells, moves) = (Arc::clone(&told), clock.clone());
        executor(vec![task(async move {
            let guard = runs.lock().await.unwrap();
            let lost = guard.lost();
            moves.jump(Duration::from_secs(60));
            assert_eq!(lost.await.cause, LostCause::NotRenewed);
            assert!(matches!(guard.unlock().await, Err(Error::Lost(_))));
            tells.fetch_add(1, SeqCst);
        })]);
        assert_eq!(told.load(SeqCst), 1, "{name}");
        // A slow call, and one behind it.
        store.faults().delay_next(Operation::Acquire, 1, Duration::from_secs(5));
        let (mut first, mut second) = (lock.lock(), theirs.lock());
        begin(&mut first);
        clock.advance(Duration::ZERO);
        begin(&mut first);
        clock.advance(Duration::from_secs(5));
        let guard = block_on(first).unwrap();
        begin(&mut second);
        unlock(guard);
        unlock(block_on(second).unwrap());
        assert_eq!(client.stats().lost, 1, "{name}");
    }
}
