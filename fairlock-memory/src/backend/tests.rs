//! What can only be seen from inside: that nothing is left behind, and that the mutex is free when it matters.

use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use fairlock_core::backend::{RequestId, Wait, Wake, only};
use fairlock_core::{Client, Error, LockKind, LockName, Lost, LostCause, ManualClock, OwnerId};

use super::*;

const LEASE: Duration = Duration::from_secs(30);

fn lock(kind: LockKind) -> LockId {
    LockId::new(LockName::new("orders").unwrap(), kind)
}

fn owner(number: u64) -> OwnerId {
    OwnerId::new(&format!("c:{number}"))
}

fn ask<'a>(lock: &'a LockId, owner: &'a OwnerId, request: u64, wait: Wait) -> Acquire<'a> {
    let mut place = Place::new(lock, owner, RequestId::new(request));
    place.wait = wait;
    Acquire::new(place, LEASE)
}

#[test]
fn nothing_is_left_of_a_lock_that_nobody_holds_or_waits_for() {
    for kind in [LockKind::Fair, LockKind::Plain] {
        let (backend, lock, a, b) = (MemoryBackend::new(), lock(kind), owner(1), owner(2));
        let Ok(Acquired::Granted { token, .. }) = only(backend.acquire(&[ask(&lock, &a, 1, Wait::Forever)]))
        else {
            panic!("not granted");
        };
        assert!(!backend.is_empty());
        only(backend.acquire(&[ask(&lock, &b, 2, Wait::No)])).unwrap();
        let waits = ask(&lock, &b, 3, Wait::Forever);
        only(backend.acquire(&[waits])).unwrap();
        assert_eq!(only(backend.withdraw(&[waits.place])).unwrap(), Withdrawn::Left);
        let hold = Hold::new(&lock, &a, RequestId::new(1), token);
        assert_eq!(only(backend.release(&[hold])).unwrap(), Released::Released);
        assert!(backend.is_empty());
    }
}

#[test]
fn questions_about_an_unknown_lock_leave_nothing_behind() {
    let (backend, lock, a) = (MemoryBackend::new(), lock(LockKind::Fair), owner(1));
    let hold = Hold::new(&lock, &a, RequestId::new(1), fairlock_core::FencingToken::new(1));
    let place = Place::new(&lock, &a, RequestId::new(1));
    assert_eq!(only(backend.release(&[hold])).unwrap(), Released::NotHeld);
    assert!(backend.is_empty());
    assert_eq!(only(backend.withdraw(&[place])).unwrap(), Withdrawn::Left);
    assert!(backend.is_empty());
    assert_eq!(backend.force_release(&lock).unwrap(), ForceReleased::NotHeld);
    assert!(backend.is_empty());
    assert!(backend.inspect(&lock, 0..0).unwrap().holder().is_none());
    let client = Client::new(MemoryBackend::new()).unwrap().id();
    let answers = backend.renew(client, &[Renew::Place { place, lease: LEASE }]);
    assert_eq!(*answers[0].as_ref().unwrap(), Renewal::Lost);
    assert!(backend.is_empty());
}

/// A sink that uses the store whenever it is told anything, and when it is dropped.
struct Reentrant(OnceLock<MemoryBackend>);

impl Reentrant {
    fn use_the_store(&self) {
        assert!(!self.0.get().unwrap().0.is_any_locked());
    }
}

impl WakeSink for Reentrant {
    fn wake(&self, _: Wake<'_>) {
        self.use_the_store();
    }
}

impl Drop for Reentrant {
    fn drop(&mut self) {
        self.use_the_store();
    }
}

#[test]
fn sinks_are_called_and_dropped_with_the_mutex_free() {
    let backend = MemoryBackend::new();
    let client = Client::new(MemoryBackend::new()).unwrap().id();
    let sink = || Arc::new(Reentrant(OnceLock::from(backend.clone())));
    let first = backend.subscribe(client, sink()).unwrap();
    let second = backend.subscribe(client, sink()).unwrap();
    backend.faults().cut_off(client);
    backend.faults().bring_back(client);
    backend.faults().lose_reply(Operation::Subscribe, 1);
    assert!(backend.subscribe(client, sink()).is_err());
    drop((first, second));
    let third = backend.subscribe(client, sink()).unwrap();
    drop(third);
}

#[test]
fn a_call_that_is_held_up_delays_no_lock_of_another_shard() {
    let backend = MemoryBackend::new();
    let client = Client::new(backend.clone()).unwrap();
    let orders = LockName::new("orders").unwrap();
    let mut names = (0..).map(|number| format!("other:{number}"));
    let is_elsewhere =
        |name: &String| Shared::shard_of(&LockName::new(name).unwrap()) != Shared::shard_of(&orders);
    let other = client.fair_lock(names.find(is_elsewhere).unwrap()).unwrap();
    let held_up = backend.0.store_of(&orders); // as by a thread in the middle of a call
    let (sender, done) = mpsc::channel();
    std::thread::spawn(move || {
        let guard = other.lock().unwrap();
        guard.renew().unwrap();
        assert!(other.admin().inspect().unwrap().holder().is_some());
        guard.unlock().unwrap();
        sender.send(()).unwrap();
    });
    done.recv_timeout(Duration::from_secs(10)).expect("the other lock is not held up");
    drop(held_up);
}

#[test]
fn a_call_renews_locks_of_all_shards_and_answers_in_their_order() {
    let (backend, a) = (MemoryBackend::new(), owner(1));
    let name = |number: u64| LockName::new(&number.to_string()).unwrap();
    let locks: Vec<LockId> = (0..200).map(|n| LockId::new(name(n), LockKind::Fair)).collect();
    let mut items = Vec::new();
    for (number, lock) in (0..).zip(&locks) {
        let Acquired::Granted { token, .. } =
            only(backend.acquire(&[ask(lock, &a, number, Wait::No)])).unwrap()
        else {
            panic!("not granted");
        };
        let hold = Hold::new(lock, &a, RequestId::new(number), token);
        if number % 3 == 0 {
            only(backend.release(&[hold])).unwrap();
        }
        items.push(Renew::Hold { hold, holds: 1, lease: LEASE });
    }
    let client = Client::new(MemoryBackend::new()).unwrap().id();
    for (number, answer) in backend.renew(client, &items).into_iter().enumerate() {
        let expected = if number % 3 == 0 { Renewal::Lost } else { Renewal::Renewed };
        assert_eq!(answer.unwrap(), expected, "item {number}");
    }
}

#[test]
fn a_subscription_does_not_keep_the_store() {
    let backend = MemoryBackend::new();
    let client = Client::new(MemoryBackend::new()).unwrap().id();
    struct Nothing;
    impl WakeSink for Nothing {
        fn wake(&self, _: Wake<'_>) {}
    }
    let subscription = backend.subscribe(client, Arc::new(Nothing)).unwrap();
    let weak = Arc::downgrade(&backend.0);
    drop(backend);
    assert!(weak.upgrade().is_none());
    drop(subscription);
}

#[test]
fn a_client_whose_clock_is_not_the_stores_is_refused() {
    let clock = ManualClock::new();
    let (manual, system) = (MemoryBackend::with_clock(clock.clone()), MemoryBackend::new());
    let refused = [
        (Client::builder(system.clone()).clock(ManualClock::new()), "the client has a manual clock, but its"),
        (Client::builder(manual.clone()), "the store has a manual clock and the client has not"),
        (Client::builder(manual.clone()).clock(ManualClock::new()), "have different manual clocks"),
        (Client::builder(Arc::new(manual.clone())), "the store has a manual clock"),
    ];
    for (builder, part) in refused {
        let Err(Error::InvalidConfig { reason, .. }) = builder.build() else { panic!("{part}") };
        assert!(reason.contains(part), "{reason}");
    }
    Client::builder(manual).clock(clock).build().unwrap();
    Client::builder(system).clock(Clock::system()).build().unwrap();
}

#[test]
fn a_prefix_keeps_clients_apart_on_all_calls() -> fairlock_core::Result<()> {
    let store = MemoryBackend::new();
    let [shop, blog] = ["shop:", "blog:"].map(|prefix| Client::builder(store.clone()).prefix(prefix));
    let (shop, blog, plain) = (shop.build()?, blog.build()?, Client::new(store)?);
    let (_guard, _both) = (shop.semaphore("x", 1)?.acquire()?, shop.lock_all(&["a", "b"])?);
    assert!(blog.semaphore("x", 1)?.try_acquire()?.granted().is_some());
    assert!(blog.try_lock_all(&["a", "b"])?.granted().is_some());
    let names = ["shop:x", "shop:a", "shop:b"];
    assert!(plain.semaphore(names[0], 1)?.try_acquire()?.is_busy());
    assert!(plain.try_lock_all(&names[1..])?.is_busy());
    assert!(plain.rw_lock("blog:x")?.try_write()?.granted().is_some());
    let refused = Client::builder(MemoryBackend::new()).prefix("x".repeat(512)).build().unwrap_err();
    assert_eq!(refused.setting(), Some("prefix"));
    Ok(())
}

#[test]
fn a_clients_longest_hold_ends_those_of_all_handles() -> fairlock_core::Result<()> {
    let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    let builder = Client::builder(MemoryBackend::with_clock(clock.clone())).clock(clock.clone());
    let client = builder.max_hold(60 * second).build()?;
    let (lock, permits) = (client.fair_lock("x")?, client.semaphore("y", 2)?);
    let (guard, permit) = (lock.lock()?, permits.acquire()?);
    let longer = client.fair_lock("z")?.max_hold(120 * second).lock()?;
    clock.advance(61 * second);
    let is_over = |lost: Option<Lost>| lost.map(|lost| lost.cause) == Some(LostCause::MaxHold);
    assert!(is_over(guard.lost().recv().ok()) && is_over(permit.lost().recv().ok()));
    assert!(!longer.is_lost());
    let short = Client::builder(MemoryBackend::new()).max_hold(Duration::ZERO).build().unwrap_err();
    assert_eq!(short.setting(), Some("max_hold"));
    Ok(())
}
