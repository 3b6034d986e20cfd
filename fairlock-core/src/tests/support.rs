//! A client on a clock that the test moves, and calls that run while it moves.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};

use super::logger;
pub(super) use super::names::{S, ms};
use super::store::{Store, queued};
use crate::backend::{Backend, Wake, WakeSink};
use crate::claim::Claim;
use crate::config::{Config, LONGEST, Stop};
use crate::shared::{Handles, Shared, Threads};
use crate::stats::Counters;
use crate::wake::ClaimSink;
use crate::watchdog::THREADS;
use crate::{Client, ClientId, Clock, Driver, FencingToken, Lock, ManualClock, Owner, Request};

pub(super) const OUTAGE: Duration = Duration::from_secs(10);

/// What a future says to one poll.
pub(super) fn polled_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

pub(super) struct World {
    pub(super) clock: ManualClock,
    pub(super) store: Store,
    pub(super) client: Client,
    pub(super) shared: Arc<Shared>,
    /// No thread of the client runs beside the test.
    pub(super) drives: Driver,
}

/// A call that runs on its own thread. The clock waits for that thread.
pub(super) struct Running<T>(Receiver<(T, Duration)>);

impl<T> Running<T> {
    /// What it came to, and how long it took.
    pub(super) fn is_over(&self) -> Option<(T, Duration)> {
        self.0.try_recv().ok()
    }
}

impl World {
    pub(super) fn new() -> World {
        World::with(OUTAGE, THREADS.dog)
    }

    /// Its store may begin for this long what an attempt without an answer asked for.
    pub(super) fn with_late_attempts(attempt_ttl: Duration) -> World {
        World::made(OUTAGE, Some(attempt_ttl), THREADS.dog)
    }

    /// Its watchdog does nothing: only callers ask the store.
    pub(super) fn without_watchdog() -> World {
        World::with(OUTAGE, |_| ())
    }

    /// A call gives up after `outage_limit`.
    pub(super) fn with(outage_limit: Duration, watch: fn(&Weak<Shared>)) -> World {
        World::made(outage_limit, None, watch)
    }

    fn made(outage_limit: Duration, attempt_ttl: Option<Duration>, watch: fn(&Weak<Shared>)) -> World {
        logger::install();
        let clock = ManualClock::new();
        let store = Store::new(clock.clone().into());
        let id = ClientId::random();
        let label = format!("client {id}").into(); // its lines in the log are found by it
        let config = Config { outage_limit, attempt_ttl, label, ..Config::of_tests(clock.clone().into()) };
        let threads = Threads { dog: watch, ..THREADS };
        let shared = Shared::new(id, config, Arc::new(store.clone()), Counters::new(0), &threads);
        let sink: Arc<dyn WakeSink> = Arc::new(ClaimSink(Arc::downgrade(&shared)));
        *shared.subscription.lock() = Some(store.subscribe(id, sink).unwrap());
        let client = Client(Arc::new(Handles(Arc::clone(&shared))));
        World { drives: clock.drive_here(), clock, store, client, shared }
    }

    pub(super) fn label(&self) -> &str {
        &self.shared.config.label
    }

    /// A fair lock, for a new owner.
    pub(super) fn lock(&self, name: &str) -> Lock<Owner> {
        self.client.fair_lock(name).unwrap().owned_by(&self.client.new_owner()).unwrap()
    }

    /// A request for it that stands in the queue.
    pub(super) fn in_queue(&self, name: &str) -> Request<Owner> {
        self.store.plan().acquire.push_back(queued(0));
        self.lock(name).request().unwrap()
    }

    /// Drops its handles of the client, which others may keep.
    pub(super) fn without_handles(self) -> (Store, ManualClock, Weak<Shared>) {
        (self.store, self.clock, Arc::downgrade(&self.shared))
    }

    /// The claim of a lock with one owner.
    pub(super) fn claim(&self, name: &str) -> Arc<Claim> {
        self.shared.ledger.registry.any(name, |_| true).expect("the lock has a claim")
    }

    /// Tells the claim that it was granted the lock.
    pub(super) fn push(&self, claim: &Claim, token: u64) {
        let (lock, owner) = (claim.lock.name.as_str(), claim.owner.as_str());
        let token = FencingToken::new(token);
        self.store.wake(Wake::Granted { lock, owner, request: claim.request, token });
    }

    /// Tells the claim to look whether the lock is free.
    pub(super) fn recheck(&self, claim: &Claim) {
        let (lock, owner) = (claim.lock.name.as_str(), claim.owner.as_str());
        self.store.wake(Wake::Recheck { lock, owner: Some(owner) });
    }

    /// Waits until all threads of the client sleep.
    pub(super) fn settle(&self) {
        self.clock.advance(Duration::ZERO);
    }

    /// Begins a call on its own thread, and waits until it sleeps or has ended.
    pub(super) fn begin<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        let ((came, is_there), (tells, told)) = (bounded(1), bounded(1));
        let clock = self.clock.clone();
        thread::spawn(move || {
            let here = clock.attend_here();
            came.send(()).unwrap();
            let before = clock.now();
            let result = call();
            // The test may have failed, and wait no longer.
            let _ = tells.send((result, clock.now() - before));
            drop(here);
        });
        is_there.recv().unwrap();
        self.settle();
        Running(told)
    }

    /// Moves the clock until the call has ended. Returns its result, and how long it took by that clock.
    pub(super) fn finish<T>(&self, running: &Running<T>) -> (T, Duration) {
        for _ in 0..5_000 {
            let began = Instant::now();
            self.clock.step(Duration::ZERO);
            if let Some(done) = running.is_over() {
                return done;
            }
            assert!(began.elapsed() < 9 * S, "the call spins");
            self.clock.step(S);
        }
        panic!("the call does not end");
    }

    /// Both.
    pub(super) fn run<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> (T, Duration) {
        let running = self.begin(call);
        self.finish(&running)
    }
}

impl Config {
    /// What most tests run with.
    pub(crate) fn of_tests(clock: Clock) -> Config {
        let second = Duration::from_secs(1);
        Config {
            lease: 30 * second,
            max_hold: None,
            prefix: String::new(),
            place_ttl: 5 * second,
            outage_limit: 10 * second,
            slow_wait: LONGEST, // the calls of these tests are counted
            attempt_ttl: None,
            label: "worker 3".into(),
            clock,
            stop: Stop::default(),
            #[cfg(feature = "tracing")]
            traceparent: Default::default(),
        }
    }
}
