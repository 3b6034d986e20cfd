//! Work in a closure: its result, how the lock is given back, and what the caller hears of a lost hold.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairlock::CancelToken;
use fairlock::admin::LockName;
use fairlock::owner::Ownership;
use fairlock::testing::Operation;
use fairlock::{Error, Guard, Lock, LostCause, TryLock};

use crate::World;

const LOCK: &str = "closure";

/// One of the calls, around some work.
type Call<'a> = &'a dyn Fn(&dyn Fn()) -> fairlock::Result<TryLock<u64>>;

/// The three calls, with a result that says what was called.
fn each_call<O: Ownership>(lock: &Lock<O>, mut check: impl FnMut(Call<'_>)) {
    let token = |work: &dyn Fn(), guard: &Guard<O>| {
        work();
        guard.token().get()
    };
    check(&|work| lock.with(|guard| token(work, guard)).map(TryLock::Granted));
    check(&|work| lock.try_with(|guard| token(work, guard)));
    check(&|work| lock.try_with_for(Duration::from_secs(1), |guard| token(work, guard)));
}

#[test]
fn a_closure_runs_under_the_lock_and_its_result_comes_back() {
    let world = World::new();
    let (client, other) = (world.client(), world.client());
    let (lock, theirs) = (client.fair_lock(LOCK).unwrap(), other.fair_lock(LOCK).unwrap());
    let owned = lock.owned_by(&client.new_owner()).unwrap();
    let mut last = 0;
    let mut runs_under_the_lock = |call: Call<'_>| {
        let ran = Cell::new(0);
        let result = call(&|| {
            ran.set(ran.get() + 1);
            assert!(matches!(theirs.try_with(|_| ()).unwrap(), TryLock::Busy(_)));
        });
        let TryLock::Granted(token) = result.unwrap() else { panic!("the lock was free") };
        assert!(ran.get() == 1 && token > last && !theirs.is_locked().unwrap());
        last = token;
    };
    each_call(&lock, &mut runs_under_the_lock);
    each_call(&owned, &mut runs_under_the_lock);
    // A re-entry: the inner end leaves the outer hold.
    let held =
        lock.with(|_| lock.with(|_| lock.hold_count()).map(|inner| (inner, lock.hold_count()))).unwrap();
    assert_eq!(held.unwrap(), (2, 1));
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn a_panic_in_a_closure_gives_the_lock_back() {
    let world = World::new();
    let client = world.client();
    let lock = client.fair_lock(LOCK).unwrap();
    let panics = |call: Call<'_>| {
        let panic = catch_unwind(AssertUnwindSafe(|| call(&|| panic!("planned")))).expect_err("it panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"planned"));
        assert!(!lock.is_locked().unwrap() && !lock.is_held());
    };
    each_call(&lock, panics);
    each_call(&lock.owned_by(&client.new_owner()).unwrap(), panics);
}

/// A hold that is lost while the closure runs is never a success.
#[test]
fn a_hold_lost_while_the_closure_runs_is_no_success() {
    type Harm = fn(&World, &Lock);
    let harms: [(Harm, LostCause); 4] = [
        (|world, _| world.clock.jump(Duration::from_secs(31)), LostCause::NotRenewed),
        (|_, lock| assert!(lock.admin().force_unlock().unwrap()), LostCause::Taken),
        // Nothing tells the client: the release finds out.
        (|world, _| world.faults().lose_hold(LOCK), LostCause::Taken),
        (|world, _| world.clock.advance(Duration::from_secs(61)), LostCause::MaxHold),
    ];
    for (harm, cause) in harms {
        let world = World::new();
        let lock = world.client().fair_lock(LOCK).unwrap().max_hold(Duration::from_secs(60));
        each_call(&lock, |call| {
            let ran = Cell::new(false);
            let result = call(&|| {
                harm(&world, &lock);
                ran.set(true);
            });
            assert!(ran.get());
            assert!(
                matches!(&result, Err(Error::Lost(lost)) if lost.cause == cause),
                "{cause:?}: {result:?}"
            );
        });
        // Also if the closure has its own error.
        let result = lock.with(|guard| {
            harm(&world, &lock);
            guard.check().and(LockName::new("").map(drop))
        });
        assert!(matches!(&result, Err(Error::Lost(lost)) if lost.cause == cause), "{cause:?}: {result:?}");
        assert!(!lock.is_locked().unwrap());
    }
}

#[test]
fn a_closure_is_not_called_without_the_lock() {
    let world = World::new();
    let client = world.client();
    let lock = client.fair_lock(LOCK).unwrap();
    let never = || panic!("it was called");

    // The server is away: try again later.
    world.faults().fail_next(Operation::Acquire, 2);
    let error = lock.try_with(|_| never()).unwrap_err();
    assert!(error.is_transient(), "{error}");

    // Busy: the time of a wait is its own, and the place is given up.
    let holder = world.client().fair_lock(LOCK).unwrap().lock().unwrap();
    assert!(matches!(lock.try_with(|_| never()).unwrap(), TryLock::Busy(_)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_with_for(Duration::from_secs(60), |_| never()));
        world.clock.wait_for_waiters(1);
        world.clock.advance(Duration::from_secs(60));
        assert!(matches!(waiter.join().unwrap().unwrap(), TryLock::Busy(_)));
    });
    assert_eq!(lock.admin().inspect().unwrap().queue_length, 0);

    // Cancelled.
    let cancel = CancelToken::new();
    cancel.cancel();
    assert!(matches!(lock.cancelled_by(&cancel).with(|_| never()), Err(Error::Cancelled { .. })));
    drop(holder);
}

/// The result of work that is done survives a release without an answer.
#[test]
fn the_result_of_work_survives_an_unanswered_release() {
    let world = World::new();
    let client = world.client();
    let lock = client.fair_lock(LOCK).unwrap();
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            lock.with(|_| {
                world.faults().cut_off(client.id());
                done.send(()).unwrap();
                "done"
            })
        });
        is_done.recv().unwrap();
        while !worker.is_finished() {
            world.clock.advance(Duration::from_millis(100));
            thread::yield_now();
        }
        assert_eq!(worker.join().unwrap().unwrap(), "done");
    });
    assert!(lock.is_locked().unwrap(), "the server has not heard of the release");
    world.faults().bring_back(client.id());
    world.clock.advance(Duration::from_secs(2));
    assert!(!lock.is_locked().unwrap(), "the release is repeated");
}

/// A check says that the hold is lost as soon as the guard does, and asks no server.
#[test]
fn a_check_says_lost_with_the_guard_and_asks_no_server() {
    let world = World::new();
    let client = world.client();
    let (lost, losses) = mpsc::channel();
    client.on_lost(move |loss| lost.send(loss.clone()).unwrap());
    let lock = client.fair_lock(LOCK).unwrap();
    let (guard, again) = (lock.lock().unwrap(), lock.lock().unwrap());
    world.faults().cut_off(client.id());
    let start = world.clock.now();
    let is_lost_after = (0..400).find_map(|_| {
        let checked = guard.check();
        assert_eq!(checked.is_err(), guard.is_lost());
        world.clock.advance(Duration::from_millis(100));
        checked.is_err().then(|| world.clock.now() - start)
    });
    let lasted = is_lost_after.expect("a lease lasts for 30 s");
    assert!((Duration::from_secs(29)..=Duration::from_secs(30)).contains(&lasted), "{lasted:?}");
    // It stays lost, every guard says the same, and it was reported once.
    world.faults().bring_back(client.id());
    world.clock.advance(Duration::from_secs(1));
    let told = losses.recv_timeout(Duration::from_secs(10)).unwrap();
    for error in [guard.check(), again.check(), again.unlock(), guard.unlock()] {
        assert!(matches!(&error, Err(Error::Lost(lost)) if *lost == told), "{error:?}");
    }
    client.shutdown().unwrap(); // all callbacks have run
    assert!(losses.try_recv().is_err(), "it was reported twice");
}
