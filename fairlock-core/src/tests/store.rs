//! A store that answers as a test tells it, and notes what it was asked.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard, ReentrantMutex, ReentrantMutexGuard};

use crate::backend::{
    Acquire, Acquired, Answer, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, LockId,
    LockState, Place, Released, Renew, Renewal, Subscription, Wake, WakeSink, Withdrawn, one_by_one,
};
use crate::{ClientId, Clock, FencingToken, LockKind};

/// A call of the store. A renewal of many is one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Acquire,
    Release,
    Renew,
    Withdraw,
    TakeHold,
}

/// What the store was asked, and when the call began.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) op: Op,
    pub(super) at: Duration,
    pub(super) lock: String,
    /// The hold count, the lease of a kept hold in milliseconds, the token, or the number of items, whichever the call has; else 0.
    pub(super) number: u64,
    /// The name of the thread that asked.
    pub(super) by: Option<String>,
}

/// The next answers of each call; then come the usual ones: a lock is granted, a hold is renewed, a place is kept, a release
/// and a withdrawal are carried out.
#[derive(Default)]
pub(super) struct Plans {
    pub(super) acquire: VecDeque<Answer<Acquired>>,
    pub(super) release: VecDeque<Answer<Released>>,
    /// One for each item.
    pub(super) renew: VecDeque<Answer<Renewal>>,
    pub(super) withdraw: VecDeque<Answer<Withdrawn>>,
    delays: HashMap<Op, VecDeque<Duration>>,
    delays_about: HashMap<String, Duration>,
    down: HashSet<Op>,
    cut: HashSet<String>,
    denied: HashSet<String>,
    panics: HashMap<Op, u32>,
    tokens: u64,
    /// The store keeps read-write locks and semaphores, too.
    pub(super) keeps_shared: bool,
    /// Its places are named by their owners.
    pub(super) keeps_place_by_owner: bool,
    /// For how long it may begin what an attempt asks for.
    pub(super) attempt_ttl: Option<Duration>,
    /// What it shows of each lock.
    pub(super) state: LockState,
    /// The parts of queues that it was asked to show.
    pub(super) inspected: Vec<Range<u64>>,
}

#[derive(Clone)]
pub(super) struct Store(Arc<Inner>);

struct Inner {
    clock: Clock,
    start: Instant,
    plans: Mutex<Plans>,
    asked: Mutex<Vec<Asked>>,
    sink: Mutex<Option<Arc<dyn WakeSink>>>,
    /// A thread that has it is the only one that is answered.
    answering: ReentrantMutex<()>,
    /// It says that its calls do not block.
    is_non_blocking: AtomicBool,
}

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Not answered.
pub(crate) fn down<T>() -> Answer<T> {
    Err(BackendError::new(BackendErrorKind::Unavailable, "planned: down"))
}

pub(crate) fn denied<T>() -> Answer<T> {
    Err(BackendError::new(BackendErrorKind::Denied, "planned: denied"))
}

/// In the queue, this many behind the first, and nothing to look for before the next heartbeat.
pub(super) fn queued(rank: u64) -> Answer<Acquired> {
    Ok(Acquired::Queued { rank, recheck_in: Duration::MAX, ticket: 1, latest: 1 })
}

pub(super) fn granted(token: u64) -> Answer<Acquired> {
    Ok(Acquired::Granted { token: FencingToken::new(token), lease: LEASE })
}

pub(crate) fn busy() -> Answer<Acquired> {
    Ok(Acquired::Busy { recheck_in: Duration::MAX })
}

pub(super) fn was_granted(token: u64) -> Answer<Withdrawn> {
    Ok(Withdrawn::WasGranted { token: FencingToken::new(token), lease: LEASE })
}

impl Store {
    pub(super) fn new(clock: Clock) -> Store {
        let start = clock.now();
        let (plans, asked, sink) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (answering, is_non_blocking) = (ReentrantMutex::new(()), AtomicBool::new(false));
        Store(Arc::new(Inner { clock, start, plans, asked, sink, answering, is_non_blocking }))
    }

    /// The answers that are to come.
    pub(super) fn plan(&self) -> MutexGuard<'_, Plans> {
        self.0.plans.lock()
    }

    /// As long as this lives, it answers no other thread.
    pub(super) fn silence(&self) -> ReentrantMutexGuard<'_, ()> {
        self.0.answering.lock()
    }

    /// From now on its calls do not block.
    pub(super) fn is_quick(&self) {
        self.0.is_non_blocking.store(true, SeqCst);
    }

    /// The next call of this kind sleeps before it is carried out.
    pub(super) fn delay(&self, op: Op, by: Duration) {
        self.plan().delays.entry(op).or_default().push_back(by);
    }

    /// The next call about this lock sleeps before it is carried out.
    pub(super) fn delay_about(&self, lock: &str, by: Duration) {
        self.plan().delays_about.insert(lock.to_owned(), by);
    }

    /// No call of this kind is answered.
    pub(super) fn take_down(&self, op: Op) {
        self.plan().down.insert(op);
    }

    pub(super) fn bring_up(&self, op: Op) {
        self.plan().down.remove(&op);
    }

    /// No call about this lock is answered: another server keeps it.
    pub(super) fn cut(&self, lock: &str) {
        self.plan().cut.insert(lock.to_owned());
    }

    /// All calls about this lock are refused: a right is missing.
    pub(super) fn deny(&self, lock: &str) {
        self.plan().denied.insert(lock.to_owned());
    }

    pub(super) fn restore(&self, lock: &str) {
        let plans = &mut *self.plan();
        plans.cut.remove(lock);
        plans.denied.remove(lock);
    }

    /// The next calls of this kind panic, this many.
    pub(super) fn panic_next(&self, op: Op, times: u32) {
        self.plan().panics.insert(op, times);
    }

    /// What the store was asked since the last call of this.
    pub(super) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.0.asked.lock())
    }

    /// The same, without the details.
    pub(super) fn ops(&self) -> Vec<Op> {
        self.asked().into_iter().map(|asked| asked.op).collect()
    }

    /// When the calls of this kind came, from the first on. It forgets nothing.
    pub(super) fn times(&self, op: Op) -> Vec<Duration> {
        self.0.asked.lock().iter().filter(|asked| asked.op == op).map(|asked| asked.at).collect()
    }

    /// How many calls of this kind came about this lock. It forgets nothing.
    pub(super) fn calls_about(&self, lock: &str, op: Op) -> usize {
        self.0.asked.lock().iter().filter(|asked| asked.op == op && asked.lock == lock).count()
    }

    /// Delivers a wake-up to the client that subscribed last.
    pub(super) fn wake(&self, wake: Wake<'_>) {
        let sink = self.0.sink.lock().clone();
        sink.expect("a client has subscribed").wake(wake);
    }

    /// Notes the call, and does to it what is planned for calls of its kind.
    fn admit(&self, op: Op, lock: &LockId, number: u64) -> Answer<()> {
        let Inner { clock, start, asked, .. } = &*self.0;
        let lock = lock.name.as_str().to_owned();
        let by = std::thread::current().name().map(str::to_owned);
        asked.lock().push(Asked { op, at: clock.now() - *start, lock: lock.clone(), number, by });
        drop(self.silence());
        let of_op = self.plan().delays.get_mut(&op).and_then(VecDeque::pop_front);
        let of_lock = self.plan().delays_about.remove(&lock);
        if let Some(delay) = of_op.or(of_lock) {
            clock.sleep(delay);
        }
        let mut plans = self.plan();
        if let Some(left) = plans.panics.get_mut(&op).filter(|left| **left > 0) {
            *left -= 1;
            drop(plans);
            panic!("planned: {op:?} of {lock}");
        }
        if plans.down.contains(&op) || plans.cut.contains(&lock) {
            return down();
        }
        if plans.denied.contains(&lock) { denied() } else { Ok(()) }
    }

    fn next_token(&self) -> FencingToken {
        let mut plans = self.plan();
        plans.tokens += 1;
        FencingToken::new(1000 + plans.tokens)
    }
}

impl Backend for Store {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Answer<Acquired>> {
        one_by_one(asks, |ask| {
            self.admit(Op::Acquire, ask.place.lock, ask.place.ticket)?;
            let planned = self.plan().acquire.pop_front();
            planned.unwrap_or_else(|| Ok(Acquired::Granted { token: self.next_token(), lease: ask.lease }))
        })
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Answer<Released>> {
        one_by_one(holds, |hold| {
            self.admit(Op::Release, hold.lock, hold.token.get())?;
            self.plan().release.pop_front().unwrap_or(Ok(Released::Released))
        })
    }

    fn renew(&self, _: ClientId, items: &[Renew<'_>]) -> Vec<Answer<Renewal>> {
        let lock = |item: &Renew<'_>| match item {
            Renew::Hold { hold, .. } => hold.lock.clone(),
            Renew::Place { place, .. } => place.lock.clone(),
        };
        let Some(first) = items.first() else { return Vec::new() };
        if let Err(error) = self.admit(Op::Renew, &lock(first), items.len() as u64)
            && self.plan().down.contains(&Op::Renew)
        {
            return vec![Err(error); items.len()];
        }
        let mut plans = self.plan();
        let answer = |item: &Renew<'_>| {
            if plans.denied.contains(lock(item).name.as_str()) {
                return denied();
            }
            if plans.cut.contains(lock(item).name.as_str()) {
                return down();
            }
            let usual = match item {
                Renew::Hold { .. } => Renewal::Renewed,
                Renew::Place { .. } => Renewal::Waiting { rank: 0, recheck_in: Duration::MAX, latest: 1 },
            };
            plans.renew.pop_front().unwrap_or(Ok(usual))
        };
        items.iter().map(answer).collect()
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Answer<Withdrawn>> {
        one_by_one(places, |place| {
            self.admit(Op::Withdraw, place.lock, 0)?;
            self.plan().withdraw.pop_front().unwrap_or(Ok(Withdrawn::Left))
        })
    }

    fn force_release(&self, _: &LockId) -> Answer<ForceReleased> {
        Ok(ForceReleased::NotHeld)
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Answer<ForceReleased> {
        self.admit(Op::TakeHold, hold.lock, hold.token.get())?;
        Ok(ForceReleased::Taken)
    }

    fn inspect(&self, _: &LockId, part: Range<u64>) -> Answer<LockState> {
        self.plan().inspected.push(part);
        Ok(self.plan().state.clone())
    }

    fn subscribe(&self, _: ClientId, sink: Arc<dyn WakeSink>) -> Answer<Subscription> {
        *self.0.sink.lock() = Some(sink);
        Ok(Subscription::new(()))
    }

    fn supports(&self, kind: LockKind) -> bool {
        !kind.is_shared() || self.plan().keeps_shared
    }

    fn keeps_place_by_owner(&self, _: &LockId) -> bool {
        self.plan().keeps_place_by_owner
    }

    fn is_non_blocking(&self) -> bool {
        self.0.is_non_blocking.load(SeqCst)
    }

    fn attempt_ttl(&self) -> Option<Duration> {
        self.plan().attempt_ttl
    }

    fn store_clock(&self) -> Option<Clock> {
        Some(self.0.clock.clone())
    }
}
