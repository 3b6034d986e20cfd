//! The memory backend where time stands still: tokio's paused clock jumps to the next timer as soon as no task can run, so between two
//! tasks no other thread may be needed.

use std::time::Duration;

use fairlock::testing::Operation;
use fairlock::{AsyncLock, Client, Error, MemoryBackend, TryLock};
use fairlock_tests::Alone;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};

use crate::support::{begin, in_memory, pause};

const LIMIT: Duration = Duration::from_secs(5);
const ROUNDS: usize = 200;

/// Only a runtime of one thread can be paused.
fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// A lock of each kind, whose holders exclude each other.
fn locks(client: &Client, name: &str) -> Vec<AsyncLock> {
    let rw = client.rw_lock(format!("rw:{name}")).unwrap();
    vec![
        client.fair_lock(format!("fair:{name}")).unwrap().to_async(),
        client.plain_lock(format!("plain:{name}")).unwrap().to_async(),
        rw.writer().to_async(),
        client.semaphore(format!("permit:{name}"), 1).unwrap().to_async().many(1).unwrap(),
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
