//! An orderly end, in memory and on Redis: jobs under way are finished under their locks, and nothing is left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Error, Lock, MemoryBackend, RedisBackend, TryLock};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

/// The limit for anything here, on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const JOB: Duration = Duration::from_millis(300);

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Warnings;

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            WARNINGS.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

fn warnings() -> Vec<String> {
    std::mem::take(&mut *WARNINGS.lock().unwrap())
}

/// Runs the test on each store, which it gets clients of.
fn on_each_store(test: impl Fn(&dyn Fn() -> Client)) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Warnings).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
    });
    let _alone = Alone::here();
    warnings();
    let store = MemoryBackend::new();
    test(&|| Client::new(store.clone()).unwrap());
    let server = RedisServer::start();
    test(&|| Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap());
    assert_no_residue(&server, &[]);
}

#[test]
fn a_job_is_finished_and_the_next_client_has_the_lock_after_it() {
    on_each_store(|connect| {
        let (client, other) = (connect(), connect());
        let (lock, theirs) = (client.fair_lock("job").unwrap(), other.fair_lock("job").unwrap());
        let (has_begun, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let guard = lock.lock().unwrap();
                has_begun.store(true, Ordering::SeqCst);
                thread::sleep(JOB); // the work
                guard.check().unwrap();
                is_done.store(true, Ordering::SeqCst);
                guard.unlock().unwrap();
            });
            eventually(SOON, "the job has begun", || has_begun.load(Ordering::SeqCst));
            scope.spawn(|| {
                let _guard = theirs.lock().unwrap();
                assert!(is_done.load(Ordering::SeqCst), "two jobs at once");
            });
            eventually(SOON, "the other waits", || !other.waiting().is_empty());
            assert_eq!(client.drain(SOON).unwrap(), []);
            assert!(is_done.load(Ordering::SeqCst));
        });
        assert_eq!((client.stats().lost, warnings()), (0, vec![]));
        other.shutdown().unwrap();
    });
}

#[test]
fn a_job_that_takes_too_long_is_named_and_its_lock_is_free() {
    on_each_store(|connect| {
        let (client, other) = (connect(), connect());
        let guard = client.fair_lock("long").unwrap().lock().unwrap();
        let begun = Instant::now();
        let cut_off = client.drain(Duration::from_millis(400)).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(400));
        assert_eq!(
            cut_off.iter().map(|held| (held.lock.as_str(), held.token)).collect::<Vec<_>>(),
            [("long", guard.token())]
        );
        assert!(guard.is_lost());
        assert_eq!((client.stats().lost, warnings().len()), (1, 1));
        let TryLock::Granted(next) = other.fair_lock("long").unwrap().try_lock().unwrap() else {
            panic!("it is taken")
        };
        next.unlock().unwrap();
    });
}

/// Threads and requests of two clients, in the middle of all that they do.
#[test]
fn workers_in_full_swing_end_in_order_and_leave_nothing() {
    const ROUNDS: usize = 10;
    const THREADS: usize = 8;
    on_each_store(|connect| {
        for round in 0..ROUNDS {
            let (client, other) = (connect(), connect());
            let (jobs, inside) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 3]);
            // Until the client ends.
            let work = |lock: &Lock, at: usize| {
                loop {
                    let granted = match (at + jobs.load(Ordering::SeqCst)) % 3 {
                        0 => lock.lock(),
                        1 => lock.request().and_then(|request| request.wait()),
                        _ => match lock.try_lock_for(Duration::from_millis(1)) {
                            Ok(TryLock::Busy) => continue,
                            Ok(TryLock::Granted(guard)) => Ok(guard),
                            Err(error) => Err(error),
                        },
                    };
                    let guard = match granted {
                        Err(Error::Shutdown { .. }) => return,
                        granted => granted.unwrap(),
                    };
                    let inside = &inside[at % inside.len()];
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    jobs.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    // By its drop, or by an unlock, which knows of a loss.
                    if at.is_multiple_of(2) { drop(guard) } else { guard.unlock().unwrap() }
                }
            };
            let [locks, theirs] = [&client, &other]
                .map(|client| [0, 1, 2].map(|n| client.fair_lock(&format!("swing:{n}")).unwrap()));
            let id = client.id().to_string();
            thread::scope(|scope| {
                let work = &work;
                for at in 0..THREADS {
                    let locks = if at < THREADS / 2 { &locks } else { &theirs };
                    scope.spawn(move || work(&locks[at % locks.len()], at));
                }
                let go_on = |many| {
                    let from = jobs.load(Ordering::SeqCst);
                    eventually(SOON, "jobs are done", || jobs.load(Ordering::SeqCst) >= from + many);
                };
                go_on(30 * (round + 1));
                assert_eq!(client.drain(SOON).unwrap(), [], "round {round}");
                for state in theirs.iter().map(|lock| lock.inspect().unwrap()) {
                    let mut owners = state
                        .holders
                        .iter()
                        .map(|holder| &holder.owner)
                        .chain(state.line.iter().map(|waiter| &waiter.owner));
                    assert!(owners.all(|owner| owner.client() != id), "round {round}: {state:?}");
                }
                go_on(10);
                assert_eq!(other.drain(SOON).unwrap(), [], "round {round}");
            });
            assert_eq!([client.stats().lost, other.stats().lost], [0; 2]);
            assert_eq!(warnings(), Vec::<String>::new());
        }
    });
}

/// As a service's tasks end, among which are guards that are dropped and grants that no poll has taken.
#[test]
fn tasks_in_full_swing_end_in_order_and_leave_nothing() {
    const ROUNDS: usize = 10;
    const TASKS: usize = 100;
    on_each_store(|connect| {
        for round in 0..ROUNDS {
            let client = connect();
            let (jobs, inside) =
                (Arc::new(AtomicUsize::new(0)), Arc::new([const { AtomicUsize::new(0) }; 3]));
            let locks = [0, 1, 2].map(|n| client.fair_lock(&format!("tasks:{n}")).unwrap().to_async());
            let work = |at: usize| {
                let (lock, jobs, inside) = (locks[at % 3].clone(), Arc::clone(&jobs), Arc::clone(&inside));
                async move {
                    loop {
                        if (at + jobs.load(Ordering::SeqCst)).is_multiple_of(5) {
                            // Polled once and dropped, it leaves the line, or passes the lock on.
                            let mut left = lock.lock();
                            poll_fn(|context| Poll::Ready(_ = Pin::new(&mut left).poll(context))).await;
                            tokio::task::yield_now().await;
                        }
                        let guard = match lock.lock().await {
                            Err(Error::Shutdown { .. }) => return,
                            granted => granted.unwrap(),
                        };
                        assert_eq!(inside[at % 3].fetch_add(1, Ordering::SeqCst), 0, "two at once");
                        tokio::task::yield_now().await;
                        jobs.fetch_add(1, Ordering::SeqCst);
                        inside[at % 3].fetch_sub(1, Ordering::SeqCst);
                        if at.is_multiple_of(2) { drop(guard) } else { guard.unlock().await.unwrap() }
                    }
                }
            };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let cut_off = runtime.block_on(async {
                let tasks: Vec<_> = (0..TASKS).map(|at| tokio::spawn(work(at))).collect();
                let draining = client.clone();
                let (counted, enough) = (Arc::clone(&jobs), 50 * (round + 1));
                let drained = tokio::task::spawn_blocking(move || {
                    eventually(SOON, "jobs are done", || counted.load(Ordering::SeqCst) >= enough);
                    draining.drain(SOON)
                });
                for task in tasks {
                    task.await.unwrap();
                }
                drained.await.unwrap().unwrap()
            });
            assert_eq!(cut_off, [], "round {round}");
            assert_eq!((client.stats().lost, warnings()), (0, vec![]));
            let other = connect();
            for lock in [0, 1, 2].map(|n| other.fair_lock(&format!("tasks:{n}")).unwrap()) {
                let state = lock.inspect().unwrap();
                assert!(state.holders.is_empty() && state.line.is_empty(), "round {round}: {state:?}");
            }
        }
    });
}
