//! Work under a lock: dropped when its hold is lost, its term is over, or its future is dropped.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fairlock::CancelToken;
use fairlock::testing::Operation;
use fairlock::{AsyncLock, Client, FencingToken, Lock, MemoryBackend, TryLock};
use fairlock_tests::{Alone, RedisServer, eventually};
use futures::executor::block_on;

use crate::support::{SOON, begin, in_memory, is_free_soon, on_redis, take, unlock};

/// Counts the works that have ended, or were dropped.
#[derive(Clone, Default)]
struct Ends(Arc<AtomicUsize>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A fresh count, and what counts in it.
fn ends() -> (Arc<AtomicUsize>, impl Fn() -> Ends) {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    (count, move || Ends(Arc::clone(&counts)))
}

/// While it waits, while it works, and while it releases.
#[test]
fn a_dropped_with_gives_the_lock_back_after_its_work() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    for [client, other] in [in_memory(), on_redis(&server)] {
        let [lock, theirs] = [client, other].map(|client| client.to_async().fair_lock("drops").unwrap());
        let held = take(&theirs);
        assert!(matches!(block_on(lock.try_with(async |_| ())), Ok(TryLock::Busy(_))));
        let mut waiting = Box::pin(lock.with(async |_| ()));
        begin(&mut waiting);
        drop(waiting);
        eventually("it left", || block_on(theirs.admin().inspect()).unwrap().queue_length == 0);
        unlock(held);
        is_free_soon(&theirs);

        let ((count, ends), started) = (ends(), AtomicUsize::new(0));
        let mut working = Box::pin(lock.with(async |_| {
            let _ends = ends();
            started.store(1, SeqCst);
            pending::<()>().await
        }));
        eventually("it works", || {
            begin(&mut working);
            started.load(SeqCst) == 1
        });
        drop(working);
        assert_eq!(count.load(SeqCst), 1, "the work ends first");
        is_free_soon(&theirs);
    }
    let store = MemoryBackend::new();
    let lock = Client::new(store.clone()).unwrap().to_async().fair_lock("drops").unwrap();
    store.faults().fail_next(Operation::Release, 5); // the repeats come after pauses
    let mut releasing = Box::pin(lock.with(async |_| ()));
    begin(&mut releasing);
    drop(releasing);
    is_free_soon(&lock);
}

/// A candidate, by either twin: leads until its term is over, and says which terms it had.
#[derive(Clone)]
enum Candidate {
    Task(AsyncLock),
    Thread(Lock),
}

impl Candidate {
    fn both(client: &Client, name: &str, stop: &CancelToken) -> [Candidate; 2] {
        let lock = client.fair_lock(name).unwrap().cancelled_by(stop);
        [Candidate::Task(lock.to_async()), Candidate::Thread(lock)]
    }

    /// Acts under each term until `resigns` says so.
    fn leads(&self, terms: &Terms, resigns: impl Fn() -> bool + Sync) -> fairlock::Result<Option<()>> {
        match self {
            Candidate::Task(lock) => block_on(lock.lead(async |term| {
                terms.begins(term.token());
                while !resigns() {
                    crate::support::pause().await;
                }
            })),
            Candidate::Thread(lock) => lock
                .lead(|term| -> fairlock::Result<()> {
                    terms.begins(term.token());
                    while !resigns() {
                        term.sleep(Duration::from_millis(1))?;
                    }
                    term.check()
                })
                .and_then(Option::transpose),
        }
    }
}

#[derive(Default)]
struct Terms(Mutex<Vec<FencingToken>>);

impl Terms {
    fn begins(&self, token: FencingToken) {
        self.0.lock().unwrap().push(token);
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn are(&self, n: usize) {
        eventually("the term begins", || self.count() == n);
    }
}

/// A leader has no end of its own, so a drain would wait for it to the limit.
#[test]
fn a_leader_steps_down_in_a_drain_and_a_candidate_ends() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    {
        for nth in 0..2 {
            for [client, other] in [in_memory(), on_redis(&server)] {
                let leader = Candidate::both(&client, "drained", &CancelToken::new())[nth].clone();
                let second = Candidate::both(&client, "drained", &CancelToken::new())[1 - nth].clone();
                let (terms, none) = (Terms::default(), Terms::default());
                thread::scope(|scope| {
                    let leads = scope.spawn(|| leader.leads(&terms, || false));
                    terms.are(1);
                    let waits = scope.spawn(|| second.leads(&none, || false));
                    let lock = other.fair_lock("drained").unwrap();
                    eventually("it waits", || lock.admin().inspect().unwrap().queue_length == 1);
                    assert!(client.drain(SOON * 10).unwrap().is_empty(), "nothing is cut off");
                    for ended in [leads, waits] {
                        let ended = ended.join().unwrap();
                        assert!(matches!(ended, Ok(None)), "{ended:?}");
                    }
                    assert!(!lock.is_locked().unwrap());
                });
                assert_eq!(none.count(), 0);
            }
        }
    }
}

/// A campaign outlasts a server that does not answer, and pauses between its requests; and it outlasts a loss.
#[test]
fn a_candidate_asks_again_after_an_outage_and_a_loss() {
    let _alone = Alone::here();
    for nth in 0..2 {
        let store = MemoryBackend::new();
        let limit = Duration::from_millis(50);
        let client = Client::builder(store.clone()).outage_limit(limit).build().unwrap();
        let candidate = Candidate::both(&client, "outage", &CancelToken::new())[nth].clone();
        store.faults().fail_next(Operation::Acquire, 8);
        let (terms, resigns) = (Terms::default(), AtomicUsize::new(0));
        thread::scope(|scope| {
            let leads = scope.spawn(|| candidate.leads(&terms, || resigns.load(SeqCst) > 0));
            terms.are(1);
            assert!(client.fair_lock("outage").unwrap().admin().force_unlock().unwrap());
            terms.are(2);
            resigns.store(1, SeqCst);
            leads.join().unwrap().unwrap();
        });
        assert!(client.stats().not_granted.fair.unavailable >= 2, "{:?}", client.stats().not_granted);
    }
}

/// A dropped campaign leaves the queue, or resigns after its work has ended.
#[test]
fn a_dropped_campaign_leaves_nothing() {
    let _alone = Alone::here();
    let [client, other] = in_memory();
    let [lock, theirs] = [client, other].map(|client| client.to_async().fair_lock("leaves").unwrap());
    let held = take(&theirs);
    let (count, ends) = ends();
    let leads = || {
        Box::pin(lock.lead(async |_| {
            let _ends = ends();
            pending::<()>().await
        }))
    };
    let mut waiting = leads();
    begin(&mut waiting);
    drop(waiting);
    eventually("it left", || block_on(theirs.admin().inspect()).unwrap().queue_length == 0);
    unlock(held);
    let mut leading = leads();
    begin(&mut leading);
    assert!(block_on(theirs.is_locked()).unwrap());
    drop(leading);
    assert_eq!(count.load(SeqCst), 1);
    is_free_soon(&theirs);
}
