//! The calls of tasks that are no waits: the client's own threads make them.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use super::super::store::{Op, down};
use super::super::support::{OUTAGE, S, World, ms};
use super::{Polled, is_by_tasks};
use crate::{AsyncGuard, Error, LostCause, ManualClock, Result};

fn renewals(world: &World, guard: AsyncGuard, count: usize) -> Vec<Polled<Result<Duration>>> {
    let guard = Arc::new(guard);
    let renewal = |guard: Arc<AsyncGuard>| async move { guard.renew().await };
    (0..count).map(|_| world.task(renewal(Arc::clone(&guard)))).collect()
}

/// Not a pool that the program uses too: its threads may all wait for this very lock.
#[test]
fn the_clients_threads_make_the_calls_of_tasks() {
    let world = World::new();
    let guard = world.locked("renewed");
    world.store.asked();
    let renewals = renewals(&world, guard, 100);
    world.settle();
    let asked = world.store.asked();
    assert!(asked.len() == 100 && asked.iter().all(is_by_tasks), "{asked:?}");
    for renewal in renewals {
        assert_eq!(renewal.ended().unwrap(), ms(29_698));
    }
}

/// There are eight threads, whose calls take six seconds each.
#[test]
fn a_call_behind_many_slow_ones_ends_in_time() {
    let world = World::new();
    let guard = world.locked("slow");
    world.settle();
    (0..16).for_each(|_| world.store.delay(Op::Renew, 6 * S));
    let renewals = renewals(&world, guard, 24);
    world.clock.advance(12 * S);
    let (made, late): (Vec<_>, Vec<_>) =
        renewals.into_iter().map(Polled::ended).partition(|renewed| renewed.is_ok());
    assert_eq!((made.len(), late.len()), (16, 8));
    for renewed in late {
        let Err(Error::Unavailable { source, .. }) = renewed else { panic!("{renewed:?}") };
        assert_eq!(source.to_string(), "the call had to wait too long to be made");
    }
}

/// The watchdog ends its pauses: no thread sleeps for it. A shutdown ends them too.
#[test]
fn a_leader_that_pauses_needs_no_thread() {
    let world = World::new();
    let lock = world.async_lock("office");
    world.store.plan().acquire.extend((0..8).map(|_| down()));
    let mut leads = world.task(async move { lock.lead(async |term| term.token().get()).await });
    for _ in 0..8 {
        world.clock.advance(OUTAGE);
        if let Poll::Ready(token) = leads.poll() {
            return assert_eq!(token.unwrap(), Some(1001));
        }
    }
    panic!("it does not lead");
}

/// An idle connection that was closed is no reason for a pause.
#[test]
fn a_leader_pauses_from_the_second_failure_on() {
    let world = World::new();
    let lock = world.async_lock("office");
    world.store.plan().acquire.extend((0..1000).map(|_| down()));
    let mut leads = world.task(async move { lock.lead(async |_| ()).await });
    for pauses in [false, true] {
        world.clock.advance(OUTAGE);
        world.store.asked();
        assert!(world.before_the_answer(|| leads.poll()).is_pending());
        world.settle();
        assert_eq!(world.store.asked().is_empty(), pauses);
    }
}

/// The leader sleeps by the client's clock, for the whole time.
#[test]
fn a_leader_sleeps_for_as_long_as_it_says() {
    let world = World::new();
    let lock = world.lock("sleeps");
    let leads = world.begin(move || lock.lead(|term| term.sleep(5 * S)));
    world.clock.advance(5 * S - ms(1));
    assert!(leads.is_over().is_none());
    world.clock.advance(ms(1));
    let (slept, after) = leads.is_over().expect("it has slept");
    assert_eq!((slept.unwrap().unwrap().unwrap(), after), ((), 5 * S));
}

/// By one client: the end, by either call, the losses, and what a lock's handle and an operator's handle tell.
#[test]
fn handles_of_tasks_do_what_those_of_threads_do() {
    for has_limit in [false, true] {
        let world = World::new();
        let (client, lost) = (world.client.to_async(), Arc::new(AtomicU64::new(0)));
        let losses = Arc::clone(&lost);
        client.on_lost(move |_| _ = losses.fetch_add(1, Ordering::Relaxed));
        let lock = world.async_lock("twins");
        assert_eq!(lock.admin().name(), "twins");
        assert!(lock.stats().is_none(), "no locks are counted by themselves");
        let guard = world.locked("twins");
        let ends = async move {
            match has_limit {
                true => client.shutdown_within(S).await,
                false => client.shutdown().await,
            }
        };
        let mut ends = Polled::new(ends);
        assert!(world.before_the_answer(|| ends.poll()).is_pending());
        world.settle();
        ends.ended().unwrap();
        assert!(matches!(guard.check(), Err(Error::Lost(lost)) if lost.cause == LostCause::Shutdown));
        assert_eq!(lost.load(Ordering::Relaxed), 1);
    }
}

/// For two minutes, if it has once had the right.
#[test]
fn a_leader_that_is_denied_campaigns_on() {
    let world = World::new();
    let (lock, terms) = (world.async_lock("office"), Arc::new(AtomicU64::new(0)));
    let led = Arc::clone(&terms);
    let mut leads = world.task(async move {
        lock.lead(async |_| {
            led.fetch_add(1, Ordering::Relaxed);
            pending::<()>().await;
        })
        .await
    });
    let mut after = |seconds: u32| {
        let mut polls = (0..seconds).map(|_| {
            world.clock.advance(S);
            leads.poll()
        });
        polls.find(Poll::is_ready).unwrap_or(Poll::Pending)
    };
    assert!(after(1).is_pending());
    for (terms_before, denied_for) in [(1, 90), (2, 120)] {
        world.store.deny("office");
        assert!(after(denied_for).is_pending());
        world.store.restore("office");
        assert!(after(5).is_pending());
        assert_eq!(terms.load(Ordering::Relaxed), terms_before + 1);
    }
    world.store.deny("office");
    assert!(matches!(after(160), Poll::Ready(Err(Error::Denied { .. }))));
}

/// A waker that has another thread move the clock, and says whether the clock moved.
struct Moves(ManualClock, Sender<bool>);

impl Wake for Moves {
    fn wake(self: Arc<Self>) {
        let (clock, (moves, moved)) = (self.0.clone(), channel());
        thread::spawn(move || {
            clock.advance(S);
            let _ = moves.send(());
        });
        let _ = self.1.send(moved.recv_timeout(ms(50)).is_ok());
    }
}

/// Else a task that waits on that clock finds its time over, though its call took no time.
#[test]
fn a_manual_clock_waits_until_the_task_is_woken() {
    let world = World::new();
    let (client, (says, said)) = (world.client.to_async(), channel());
    let guard = world.lock("held").lock().unwrap();
    drop(world.drives); // the test waits on a channel
    let mut drain = Box::pin(async move { client.drain(S).await });
    let waker = Waker::from(Arc::new(Moves(world.clock.clone(), says)));
    let context = &mut Context::from_waker(&waker);
    assert!(drain.as_mut().poll(context).is_pending());
    drop(guard);
    assert!(!said.recv_timeout(10 * S).unwrap(), "it moved before the task was woken");
    assert!(matches!(drain.as_mut().poll(context), Poll::Ready(Ok(cut_off)) if cut_off.is_empty()));
}
