//! Wakers are the executor's code. They run on the client's threads.

use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::super::store::{Op, queued};
use super::super::support::{S, World};
use super::Wakes;
use crate::{CancelToken, Client, Clock};

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("planned: a waker");
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An executor without a queue: its waker polls the task, on whichever thread wakes it.
struct Inline {
    task: Mutex<Option<Task>>,
    this: Weak<Inline>,
    /// How often it was woken since the thread began that polls it now.
    wakes: AtomicUsize,
}

impl Inline {
    fn run(task: impl Future<Output = ()> + Send + 'static) {
        let task = Mutex::new(Some(Box::pin(task) as Task));
        let wakes = AtomicUsize::new(0);
        Waker::from(Arc::new_cyclic(|this| Inline { task, this: this.clone(), wakes })).wake();
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        if self.wakes.fetch_add(1, SeqCst) > 0 {
            return; // the thread that polls it does so once more
        }
        let waker = Waker::from(self.this.upgrade().unwrap());
        loop {
            let seen = self.wakes.load(SeqCst);
            let task = self.task.lock().take();
            if let Some(mut task) = task
                && task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
            {
                *self.task.lock() = Some(task);
            }
            if self.wakes.compare_exchange(seen, 0, SeqCst, SeqCst).is_ok() {
                return;
            }
        }
    }
}

/// They wait for one lock, and are in the queue.
fn in_queue(world: &World, name: &str, wakers: &[Waker]) -> Vec<Pin<Box<crate::LockFuture>>> {
    let lock = world.async_lock(name);
    let begin = |waker| {
        world.store.plan().acquire.push_back(queued(0));
        let mut locking = Box::pin(lock.lock());
        assert!(world.before_the_answer(|| poll_with(&mut locking, waker)).is_pending());
        world.settle();
        locking
    };
    wakers.iter().map(begin).collect()
}

fn poll_with<T>(future: &mut Pin<Box<impl Future<Output = T>>>, waker: &Waker) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

#[test]
fn a_waker_that_panics_harms_nobody_else() {
    let world = World::new();
    let panics = Waker::from(Arc::new(Panics));
    let mut pushed = in_queue(&world, "pushed", std::slice::from_ref(&panics));
    world.push(&world.claim("pushed"), 9); // on the thread of a wake-up
    let mut first = Box::pin(world.async_lock("granted").lock());
    assert!(world.before_the_answer(|| poll_with(&mut first, &panics)).is_pending()); // on the thread for tasks
    world.settle();
    let task = world.locking("granted");
    let mut lost = Box::pin(task.ended().unwrap().lost());
    assert!(poll_with(&mut lost, &panics).is_pending());
    world.store.plan().acquire.push_back(queued(0));
    let mut timed = Box::pin(world.async_lock("timed").try_lock_for(S));
    assert!(world.before_the_answer(|| poll_with(&mut timed, &panics)).is_pending()); // on the watchdog's thread
    world.clock.advance(2 * S);
    assert!(poll_with(&mut timed, &panics).is_ready() && poll_with(&mut first, &panics).is_ready());
    assert!(poll_with(&mut pushed[0], &panics).is_ready());
    assert!(world.shared.backlog.len() == 0 && !world.shared.timers.is_gone());
    drop(world.locked("after"));
}

/// A waker that stands still for longer than a lease.
struct StandsStill(Clock);

impl Wake for StandsStill {
    fn wake(self: Arc<Self>) {
        self.0.sleep(40 * S);
    }
}

/// The watchdog ends the wait of the one task, and renews the hold of the other.
#[test]
fn a_waker_that_stands_still_loses_no_hold() {
    let world = World::new();
    let guard = world.locked("held");
    let stands_still = Waker::from(Arc::new(StandsStill(world.clock.clone().into())));
    world.store.plan().acquire.push_back(queued(0));
    let mut timed = Box::pin(world.async_lock("timed").try_lock_for(S));
    assert!(world.before_the_answer(|| poll_with(&mut timed, &stands_still)).is_pending());
    world.clock.advance(60 * S);
    assert!(poll_with(&mut timed, &stands_still).is_ready());
    assert!(!guard.is_lost() && world.client.stats().lost == 0);
}

/// A waker that waits for the test, and tells whether the test went on.
struct WaitsFor(Mutex<Receiver<()>>, Sender<bool>);

impl Wake for WaitsFor {
    fn wake(self: Arc<Self>) {
        let went_on = self.0.lock().recv_timeout(9 * S).is_ok();
        self.1.send(went_on).unwrap();
    }
}

/// The thread that delivers a wake-up has more of them.
#[test]
fn a_waker_that_blocks_delays_no_other_wake_up() {
    let world = World::new();
    let ((go_on, goes_on), (tells, told)) = (channel(), channel());
    let blocks = Waker::from(Arc::new(WaitsFor(Mutex::new(goes_on), tells)));
    let mut blocked = in_queue(&world, "blocked", std::slice::from_ref(&blocks));
    world.push(&world.claim("blocked"), 9);
    go_on.send(()).unwrap();
    world.settle();
    assert!(told.recv().unwrap(), "the wake-up was delivered while the waker waited");
    assert!(poll_with(&mut blocked[0], &blocks).is_ready());
}

/// It takes the guard, drops it and asks for the next lock, all within the wake-up.
#[test]
fn a_waker_may_poll_take_release_and_ask_inline() {
    let world = World::new();
    let (client, done) = (world.client.clone(), Arc::new(Wakes::default()));
    let tells = Waker::from(Arc::clone(&done));
    let lock = |client: &Client, name: &str| client.fair_lock(name).unwrap().to_async();
    Inline::run(async move {
        for round in 0..50 {
            let guard = lock(&client, &format!("inline:{round}")).lock().await.unwrap();
            if round % 2 == 0 {
                guard.unlock().await.unwrap();
            } else {
                drop(guard);
            }
        }
        tells.wake();
    });
    world.clock.advance(S);
    assert_eq!(done.0.load(SeqCst), 1);
    assert_eq!(world.store.times(Op::Release).len(), 50);
    assert!(world.client.held().is_empty());
}

/// On the thread of the push, of the watchdog that loses the hold, and of the one that cancels.
#[test]
fn a_waker_may_poll_inline_wherever_it_is_woken() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(0)]);
    let (client, done) = (world.client.clone(), Arc::new(Wakes::default()));
    let cancel = CancelToken::new();
    let (tells, ends) = (Waker::from(Arc::clone(&done)), cancel.clone());
    Inline::run(async move {
        let lock = client.fair_lock("pushed").unwrap().fixed_lease(3 * S).to_async();
        let guard = lock.lock().await.unwrap();
        let lost = guard.lost().await;
        drop(guard);
        assert!(client.held().is_empty() && lost.lock.as_str() == "pushed");
        let waits = client.fair_lock("cancelled").unwrap().cancelled_by(&ends).to_async();
        waits.lock().await.unwrap_err();
        tells.wake();
    });
    world.settle();
    world.push(&world.claim("pushed"), 9);
    world.clock.advance(10 * S);
    cancel.cancel();
    world.settle();
    assert_eq!(done.0.load(SeqCst), 1);
    assert!(world.client.waiting().is_empty());
    assert_eq!((world.client.stats().lost, world.client.stats().holds.count), (1, 1));
}

#[test]
fn the_task_that_polled_last_is_woken() {
    let world = World::new();
    let tasks = [(); 3].map(|()| Arc::new(Wakes::default()));
    let wakers = tasks.each_ref().map(|task| Waker::from(Arc::clone(task)));
    let mut waits = in_queue(&world, "moves", &wakers[..1]);
    for waker in [&wakers[1], &wakers[2], &wakers[1], &wakers[1]] {
        assert!(poll_with(&mut waits[0], waker).is_pending());
    }
    world.push(&world.claim("moves"), 9);
    world.settle();
    let woken = tasks.each_ref().map(|task| task.0.load(SeqCst));
    assert_eq!(woken, [0, 1, 0]);
    assert!(poll_with(&mut waits[0], &wakers[0]).is_ready());
}

/// How many references to a task there are while its future waits, and after that was dropped.
fn kept<T: Send + 'static>(world: &World, future: impl Future<Output = T> + Send + 'static) -> [usize; 2] {
    let mut task = world.task(future);
    world.settle();
    let waits = Arc::strong_count(&task.wakes);
    task.future = Box::pin(std::future::pending());
    [waits, Arc::strong_count(&task.wakes)]
}

#[test]
fn a_future_that_is_gone_keeps_no_task() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(0)]);
    assert_eq!(kept(&world, world.async_lock("waits").lock()), [2, 1]);
    assert_eq!(kept(&world, world.async_lock("timed").try_lock_for(9 * S)), [2, 1]);
    let guard = world.locked("held");
    assert_eq!(kept(&world, guard.lost()), [2, 1]);
    world.store.take_down(Op::Release);
    assert_eq!(kept(&world, guard.unlock()), [2, 1]);
}
