//! What tasks want of the server, for the threads that make the first attempts.
//!
//! | a first attempt | waits for | goes beside |
//! | --- | --- | --- |
//! | release, withdrawal | an ask of the same request that a thread has in hand | all else: no release waits for another ask |
//! | ask | earlier asks for the lock, which one thread at a time has in hand; earlier cleanups of the lock | asks for other locks |
//!
//! A thread takes what may go, and is idle if nothing may. When a thread gives its batch back, more may go, and that thread looks again.
//! An attempt that is added finds a thread that will look, or wakes one: so nothing is forgotten.
//!
//! One thread asks a near server, many asks in a call, and a second thread tells of cleanups meanwhile. All threads call a far server at
//! once; the last thread asks nothing, so that a release finds a thread. Once half of them are on their way, batches are paced: the
//! answers to one batch wake a hundred tasks, and without a pause the first few of these would take all threads, and the others
//! would wait for a trip.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Cleanup;
use crate::backend::RequestId;
use crate::claim::Claim;
use crate::config::MOST_AT_ONCE;
use crate::ids::LockName;
use crate::timers::{TASK_THREADS, Timers};

/// A server is far if a call takes this long.
const FAR: Duration = Duration::from_millis(2);

/// How many threads call a near server: one asks, one tells.
const NEAR_THREADS: usize = 2;

/// While batches are paced, so many leave for a far server in the time of a call.
const PACE: u32 = 16;

/// What a task's first attempt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstAttempt {
    /// Asks for the lock.
    Ask,
    /// A release or a withdrawal whose end no task waits for: later asks for the lock wait for it.
    CleanUp(Cleanup),
    /// A release whose end its task waits for: no ask waits for it.
    Unlock,
}

#[derive(Default)]
pub(crate) struct FirstAttempts(Mutex<Inner>);

/// The client, which stands above this module.
type Client = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
struct Inner {
    cleanups: Cleanups,
    locks: HashMap<LockName, OfLock>,
    /// The locks with an ask that may go.
    ready: VecDeque<LockName>,
    /// The number of the last cleanup that asks wait for.
    last: u64,
    /// How many attempts are in no thread's hands.
    left: usize,
    /// How many batches are in threads' hands.
    in_hand: usize,
    /// When the last of them was taken.
    taken_at: Option<Instant>,
    threads: [Thread; TASK_THREADS],
    /// How many threads, the last ones, the system has refused.
    refused: usize,
    /// About how long a call takes: a stall counts little.
    trip: Option<Duration>,
    /// Lives until the last first attempt is taken, even if its task has dropped the last handle.
    client: Option<Client>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Thread {
    #[default]
    Idle,
    /// It was woken, or keeps to the pace: it looks soon.
    Called,
    /// It tells of cleanups, or wakes tasks, and looks after that.
    Tells,
    /// It looks when its asks are answered.
    Asks,
}

#[derive(Default)]
struct OfLock {
    /// Each with the number of the last cleanup before it.
    asks: VecDeque<(u64, Arc<Claim>)>,
    /// Of how many of them the tasks have left.
    gone: usize,
    /// Cleanups that asks wait for, left or in hand.
    cleanups: Vec<(u64, RequestId)>,
    /// The requests that a thread asks for.
    asked: Vec<RequestId>,
    /// Cleanups of these requests: the server has to see the ask first.
    after_the_ask: Vec<(Arc<Claim>, Cleanup)>,
    is_ready: bool,
}

impl OfLock {
    fn next_may_go(&self) -> bool {
        let first = self.asks.front();
        first.is_some_and(|(last, _)| self.cleanups.iter().all(|(number, _)| number > last))
    }
}

/// What a thread takes at once: cleanups, or asks.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) cleanups: Cleanups,
    pub(crate) asks: VecDeque<Arc<Claim>>,
}

/// The claims to release, and those to withdraw: see [`Cleanup::ALL`].
pub(crate) type Cleanups = [VecDeque<Arc<Claim>>; 2];

/// What a thread does next.
pub(crate) enum Next {
    /// Makes these attempts. The other thread, if any, is to look as well.
    Make(Batch, Option<usize>),
    /// Looks again at this time: another batch has just left for a far server.
    LookAt(Instant),
    /// Sleeps until it is woken: nothing may go, or another thread will look.
    Sleep,
}

impl FirstAttempts {
    /// Returns the thread that is to look.
    pub(crate) fn add(&self, claim: &Arc<Claim>, attempt: FirstAttempt, client: Client) -> Option<usize> {
        let inner = &mut *self.0.lock();
        inner.client.get_or_insert(client);
        inner.left += 1;
        let name = &claim.lock.name;
        match attempt {
            FirstAttempt::Ask => {
                let asks = &mut inner.locks.entry(name.clone()).or_default().asks;
                asks.push_back((inner.last, Arc::clone(claim)));
                inner.look_at(name);
            }
            FirstAttempt::CleanUp(cleanup) => {
                inner.last += 1;
                let of_lock = inner.locks.entry(name.clone()).or_default();
                of_lock.cleanups.push((inner.last, claim.request));
                inner.clean_up(claim, cleanup);
            }
            FirstAttempt::Unlock => inner.clean_up(claim, Cleanup::Release),
        }
        inner.wake()
    }

    /// After [`FirstAttempts::add`]: has this thread look.
    ///
    /// A client that ends takes all that was added, and the threads look no more. The end is read here after the attempt was added. So
    /// the ending client takes the attempt; or the end is seen here, and the list lets go of the client, which it would keep for ever.
    pub(crate) fn added(&self, timers: &Timers, now: Instant, mut wakes: Option<usize>) {
        if timers.is_told_to_end() {
            drop(self.take_client());
            timers.signal().raise();
            return;
        }
        while let Some(thread) = wakes.take() {
            let sleeper = &timers.tasks[thread];
            match timers.start(sleeper) {
                Ok(()) => sleeper.due_by(now),
                Err(_) => wakes = self.there_is_no(thread),
            }
        }
    }

    /// The system gives no such thread: the threads before it do its work. Returns which of them is to look.
    pub(crate) fn there_is_no(&self, thread: usize) -> Option<usize> {
        let inner = &mut *self.0.lock();
        inner.threads[thread] = Thread::Idle;
        inner.refused = TASK_THREADS - thread.max(1); // the first one runs: the task would have failed without it
        inner.wake()
    }

    pub(crate) fn take_client(&self) -> Option<Client> {
        self.0.lock().client.take()
    }

    /// Whether no first attempt is left or in a thread's hands: another thread that makes one now overtakes none.
    pub(crate) fn is_idle(&self) -> bool {
        let inner = self.0.lock();
        inner.left == 0 && inner.in_hand == 0
    }

    /// What this thread does next. `now` is for the pace: without it no batch waits. The caller owns the client, too.
    pub(crate) fn next(&self, thread: usize, now: Option<Instant>) -> Next {
        let inner = &mut *self.0.lock();
        inner.threads[thread] = Thread::Idle; // its former asks are answered
        let cleanups = inner.cleanups_left();
        let asks = if inner.may_ask() { inner.ready.len() } else { 0 };
        if cleanups + asks == 0 {
            return Next::Sleep;
        }
        if let Some(at) = inner.leaves_at().filter(|at| now.is_some_and(|now| now < *at)) {
            if inner.will_look() {
                return Next::Sleep;
            }
            inner.threads[thread] = Thread::Called;
            return Next::LookAt(at);
        }
        let mut next = Batch::default();
        // Far away the larger part goes first, and the other part with the next thread, if there is one.
        if cleanups == 0 || (inner.is_far() && cleanups < asks && inner.idle() > 1) {
            while next.asks.len() < MOST_AT_ONCE
                && let Some(name) = inner.ready.pop_front()
            {
                let Some(of_lock) = inner.locks.get_mut(&name) else { continue };
                of_lock.is_ready = false;
                while next.asks.len() < MOST_AT_ONCE
                    && of_lock.next_may_go()
                    && let Some((_, claim)) = of_lock.asks.pop_front()
                {
                    of_lock.asked.push(claim.request);
                    next.asks.push_back(claim);
                }
                if of_lock.asked.is_empty() {
                    inner.look_at(&name); // all have left
                }
            }
            inner.threads[thread] = Thread::Asks;
        } else {
            let first = |list: &mut VecDeque<_>| list.drain(..list.len().min(MOST_AT_ONCE)).collect();
            next.cleanups = inner.cleanups.each_mut().map(first);
            inner.threads[thread] = Thread::Tells;
        }
        if next.len() == 0 {
            inner.threads[thread] = Thread::Idle;
            return Next::Sleep;
        }
        inner.left -= next.len();
        if inner.left == 0 {
            inner.client = None;
        }
        inner.in_hand += 1;
        inner.taken_at = now;
        Next::Make(next, inner.wake())
    }

    /// The task of an ask that no thread has taken has left. Once such asks are more than half of a lock's, they leave the list: while the
    /// server is silent, a task may ask and leave a million times.
    pub(crate) fn left(&self, claim: &Claim) {
        let mut inner = self.0.lock();
        let Some(of_lock) = inner.locks.get_mut(&claim.lock.name) else { return };
        of_lock.gone += 1;
        if 2 * of_lock.gone <= of_lock.asks.len() {
            return;
        }
        let asks = std::mem::take(&mut of_lock.asks).into_iter();
        let (asks, gone): (VecDeque<_>, VecDeque<_>) = asks.partition(|(_, claim)| claim.is_waiting());
        (of_lock.asks, of_lock.gone) = (asks, 0);
        inner.left -= gone.len();
        if inner.left == 0 {
            inner.client = None; // the caller owns the client, too
        }
        drop(inner);
        drop(gone); // without the mutex: the end of a span is the program's code
    }

    /// This thread has made the attempts of a batch, by calls that took so long each, and looks next.
    pub(crate) fn made(&self, thread: usize, batch: &Batch, call: Option<Duration>) {
        let inner = &mut *self.0.lock();
        inner.in_hand -= 1;
        // After a panic the thread pauses, and others look meanwhile.
        inner.threads[thread] = if thread::panicking() { Thread::Idle } else { Thread::Tells };
        if let Some(call) = call {
            let longest = |trip: Duration| trip + trip / 4 + Duration::from_micros(1);
            inner.trip = Some(inner.trip.map_or(call, |trip| call.min(longest(trip))));
        }
        for claim in batch.cleanups.iter().flatten() {
            if let Some(of_lock) = inner.locks.get_mut(&claim.lock.name) {
                of_lock.cleanups.retain(|(_, request)| *request != claim.request);
                inner.look_at(&claim.lock.name);
            }
        }
        for claim in &batch.asks {
            if let Some(of_lock) = inner.locks.get_mut(&claim.lock.name) {
                of_lock.asked.clear();
                for (claim, cleanup) in std::mem::take(&mut of_lock.after_the_ask) {
                    inner.cleanups[cleanup as usize].push_front(claim);
                }
                inner.look_at(&claim.lock.name);
            }
        }
    }

    /// All cleanups that are left at a client's end, whose claims are no longer asked for. The caller owns the client, too.
    pub(crate) fn take_all(&self) -> Cleanups {
        let inner = &mut *self.0.lock();
        (inner.client, inner.left) = (None, 0);
        inner.ready.clear();
        let mut all = std::mem::take(&mut inner.cleanups);
        for (claim, cleanup) in inner.locks.drain().flat_map(|(_, of_lock)| of_lock.after_the_ask) {
            all[cleanup as usize].push_back(claim);
        }
        all
    }
}

impl Inner {
    /// A thread that asks for this request puts its cleanup into the list afterwards, see [`FirstAttempts::made`]. No other thread of
    /// these begins to ask for a request that is over.
    fn clean_up(&mut self, claim: &Arc<Claim>, cleanup: Cleanup) {
        let claim_of = Arc::clone(claim);
        match self.locks.get_mut(&claim.lock.name).filter(|of_lock| of_lock.asked.contains(&claim.request)) {
            Some(of_lock) => of_lock.after_the_ask.push((claim_of, cleanup)),
            None => self.cleanups[cleanup as usize].push_back(claim_of),
        }
    }

    fn cleanups_left(&self) -> usize {
        self.cleanups.iter().map(VecDeque::len).sum()
    }

    /// Something about this lock has changed: an ask of it may go now, or nothing is left of it.
    fn look_at(&mut self, name: &LockName) {
        let Some(of_lock) = self.locks.get_mut(name) else { return };
        if of_lock.is_ready || !of_lock.asked.is_empty() {
            return;
        }
        if of_lock.next_may_go() {
            of_lock.is_ready = true;
            self.ready.push_back(name.clone());
        } else if of_lock.asks.is_empty() && of_lock.cleanups.is_empty() {
            self.locks.remove(name);
        }
    }

    /// How many threads there may be.
    fn most(&self) -> usize {
        TASK_THREADS - self.refused
    }

    fn idle(&self) -> usize {
        self.threads[..self.most()].iter().filter(|thread| **thread == Thread::Idle).count()
    }

    fn is_far(&self) -> bool {
        self.trip.is_some_and(|trip| trip >= FAR)
    }

    fn at_once(&self) -> usize {
        if self.is_far() { self.most() } else { self.most().min(NEAR_THREADS) }
    }

    /// Whether one more thread may ask: the last one is for cleanups.
    fn may_ask(&self) -> bool {
        let asking = self.threads.iter().filter(|thread| **thread == Thread::Asks).count();
        asking < (self.at_once() - 1).max(1)
    }

    /// When the next batch may leave for a far server, if batches are paced.
    fn leaves_at(&self) -> Option<Instant> {
        let is_paced = self.is_far() && 2 * self.in_hand >= self.at_once();
        if is_paced { Some(self.taken_at? + self.trip? / PACE) } else { None }
    }

    /// Whether a thread is going to look, which wakes the next thread if it leaves something.
    fn will_look(&self) -> bool {
        self.threads.contains(&Thread::Called)
    }

    /// Which thread is to look for what may go, if none will.
    fn wake(&mut self) -> Option<usize> {
        let is_told = !self.is_far() && self.threads.contains(&Thread::Tells);
        let tells = self.cleanups_left() > 0 && !is_told;
        let is_free = self.is_far() || self.threads == [Thread::Idle; TASK_THREADS];
        let asks = !self.ready.is_empty() && self.may_ask() && is_free;
        if !(tells || asks) || self.will_look() {
            return None;
        }
        let idle = self.threads[..self.most()].iter().position(|thread| *thread == Thread::Idle)?;
        self.threads[idle] = Thread::Called;
        Some(idle)
    }
}

impl Batch {
    pub(crate) fn of(claim: &Arc<Claim>, attempt: FirstAttempt) -> Batch {
        let mut batch = Batch::default();
        let list = match attempt {
            FirstAttempt::Ask => &mut batch.asks,
            FirstAttempt::CleanUp(cleanup) => &mut batch.cleanups[cleanup as usize],
            FirstAttempt::Unlock => &mut batch.cleanups[Cleanup::Release as usize],
        };
        list.push_back(Arc::clone(claim));
        batch
    }

    fn len(&self) -> usize {
        self.cleanups.iter().map(VecDeque::len).sum::<usize>() + self.asks.len()
    }
}
