//! An orderly end in the middle of all that a client does, in memory and on Redis: jobs under way are finished under their locks, and
//! nothing is left behind.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use fairlock::{Client, Error, Lock, MemoryBackend, RedisBackend, TryLock};
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

/// The limit for anything here, on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const ROUNDS: usize = 10;

/// Runs the test on each store, which it gets clients of.
fn on_each_store(test: impl Fn(&dyn Fn() -> Client)) {
    let _alone = Alone::here();
    keep_log_lines(log::LevelFilter::Warn);
    let store = MemoryBackend::new();
    test(&|| Client::new(store.clone()).unwrap());
    let server = RedisServer::start();
    test(&|| Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap());
    assert_no_residue(&server, &[]);
}

/// The jobs that were done, each alone under one of three locks.
#[derive(Default)]
struct Jobs {
    done: AtomicUsize,
    inside: [AtomicUsize; 3],
}

impl Jobs {
    fn locks(client: &Client) -> [Lock; 3] {
        [0, 1, 2].map(|n| client.fair_lock(&format!("swing:{n}")).unwrap())
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    fn begin(&self, at: usize) {
        assert_eq!(self.inside[at % 3].fetch_add(1, Ordering::SeqCst), 0, "two at once");
    }

    fn end(&self, at: usize) {
        self.done.fetch_add(1, Ordering::SeqCst);
        self.inside[at % 3].fetch_sub(1, Ordering::SeqCst);
    }

    fn until(&self, done: usize) {
        eventually("jobs are done", || self.done() >= done);
    }
}

/// The client has ended in order: nothing is lost, nothing is logged, and the server knows no request of it.
fn assert_ended(client: &Client, other: &Client) {
    assert_eq!((client.stats().lost, log_lines("")), (0, vec![]));
    let id = client.id().to_string();
    for state in Jobs::locks(other).map(|lock| lock.inspect().unwrap()) {
        let holders = state.holders.iter().map(|holder| &holder.owner);
        let mut owners = holders.chain(state.queue.iter().map(|waiter| &waiter.owner));
        assert!(owners.all(|owner| owner.client() != id), "{state:?}");
    }
}

/// Threads and requests of two clients.
#[test]
fn workers_in_full_swing_end_in_order_and_leave_nothing() {
    const THREADS: usize = 8;
    on_each_store(|connect| {
        for round in 0..ROUNDS {
            let (client, other, jobs) = (connect(), connect(), Jobs::default());
            // Until the client ends.
            let work = |lock: &Lock, at: usize| {
                loop {
                    let granted = match (at + jobs.done()) % 3 {
                        0 => lock.lock(),
                        1 => lock.request().and_then(|request| request.wait()),
                        _ => match lock.try_lock_for(Duration::from_millis(1)) {
                            Ok(TryLock::Busy(_)) => continue,
                            Ok(TryLock::Granted(guard)) => Ok(guard),
                            Err(error) => Err(error),
                        },
                    };
                    let guard = match granted {
                        Err(Error::Shutdown { .. }) => return,
                        granted => granted.unwrap(),
                    };
                    jobs.begin(at);
                    thread::yield_now();
                    jobs.end(at);
                    // By its drop, or by an unlock, which knows of a loss.
                    if at.is_multiple_of(2) { drop(guard) } else { guard.unlock().unwrap() }
                }
            };
            let [locks, theirs] = [&client, &other].map(Jobs::locks);
            thread::scope(|scope| {
                let work = &work;
                for at in 0..THREADS {
                    let locks = if at < THREADS / 2 { &locks } else { &theirs };
                    scope.spawn(move || work(&locks[at % 3], at));
                }
                jobs.until(30 * (round + 1));
                assert_eq!(client.drain(SOON).unwrap(), [], "round {round}");
                assert_ended(&client, &other);
                jobs.until(jobs.done() + 10);
                assert_eq!(other.drain(SOON).unwrap(), [], "round {round}");
            });
            assert_ended(&other, &connect());
        }
    });
}

/// As a service's tasks end, among which are guards that are dropped and grants that no poll has taken.
#[test]
fn tasks_in_full_swing_end_in_order_and_leave_nothing() {
    const TASKS: usize = 100;
    on_each_store(|connect| {
        for round in 0..ROUNDS {
            let (client, jobs) = (connect(), Arc::new(Jobs::default()));
            let locks = Jobs::locks(&client).map(|lock| lock.to_async());
            let work = |at: usize| {
                let (lock, jobs) = (locks[at % 3].clone(), Arc::clone(&jobs));
                async move {
                    loop {
                        if (at + jobs.done()).is_multiple_of(5) {
                            // Polled once and dropped, it leaves the queue, or passes the lock on.
                            let mut left = lock.lock();
                            poll_fn(|context| Poll::Ready(_ = Pin::new(&mut left).poll(context))).await;
                            tokio::task::yield_now().await;
                        }
                        let guard = match lock.lock().await {
                            Err(Error::Shutdown { .. }) => return,
                            granted => granted.unwrap(),
                        };
                        jobs.begin(at);
                        tokio::task::yield_now().await;
                        jobs.end(at);
                        if at.is_multiple_of(2) { drop(guard) } else { guard.unlock().await.unwrap() }
                    }
                }
            };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let cut_off = runtime.block_on(async {
                let tasks: Vec<_> = (0..TASKS).map(|at| tokio::spawn(work(at))).collect();
                let (draining, counted) = (client.clone(), Arc::clone(&jobs));
                let drained = tokio::task::spawn_blocking(move || {
                    counted.until(50 * (round + 1));
                    draining.drain(SOON)
                });
                for task in tasks {
                    task.await.unwrap();
                }
                drained.await.unwrap().unwrap()
            });
            assert_eq!(cut_off, [], "round {round}");
            assert_ended(&client, &connect());
        }
    });
}
