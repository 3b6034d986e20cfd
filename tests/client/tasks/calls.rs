//! What a client does besides waits, awaited: no call blocks a task, and a dropped call does what its page says.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlock::backend::Backend;
use fairlock::testing::Operation;
use fairlock::{AsyncClient, AsyncGuard, AsyncLock, Client, Error, LostCause, MemoryBackend, TryLock};
use fairlock_tests::{Alone, eventually};
use futures::executor::block_on;
use smol::unblock;

use crate::support::{EXECUTORS, SOON, begin, in_memory, take, task, unlock};

#[track_caller]
fn granted<T>(outcome: TryLock<T>) -> T {
    let TryLock::Granted(granted) = outcome else { panic!("it is free") };
    granted
}

fn is_busy<T>(outcome: &TryLock<T>) -> bool {
    matches!(outcome, TryLock::Busy(_))
}

/// What an operator does with a lock of any kind, which the guard holds and the other client waits for.
macro_rules! operate {
    ($client:expr, $lock:expr, $guard:expr, $other:expr, $waiting:expr) => {
        let (guard, mut waiting) = ($guard, $waiting);
        let admin = $client.admin($lock.name())?;
        assert_eq!(admin.inspect().await?.holder().map(|holder| &holder.owner), Some(guard.owner()));
        begin(&mut waiting);
        // Not a timed wait from before, which leaves in the background.
        let owner = $other.waiting()[0].owner.clone();
        while !admin.inspect_queue(0..10).await?.queue.iter().any(|waiter| waiter.owner == owner) {}
        assert!(admin.force_unlock_of(guard.owner()).await?);
        assert_eq!(guard.lost().await.cause, LostCause::Taken);
        assert!(matches!(guard.check(), Err(Error::Lost(_))));
        let guard = waiting.await?;
        assert!(admin.force_unlock().await?);
        assert_eq!(guard.lost().await.cause, LostCause::Taken);
    };
}

/// Each call of a client and its handles, one after the other in one task.
async fn makes_every_call(client: AsyncClient, other: AsyncClient) -> fairlock::Result<()> {
    const MOMENT: Duration = Duration::from_millis(20);
    let (lock, theirs) = (client.fair_lock("calls")?, other.fair_lock("calls")?);
    let guard = lock.max_hold(SOON).lock().await?;
    assert!(guard.renew().await? > Duration::ZERO);
    assert!(is_busy(&theirs.try_lock().await?) && is_busy(&theirs.try_lock_for(MOMENT).await?));
    assert_eq!((client.held().len(), client.stats().holding, client.id() == other.id()), (1, 1, false));
    assert!(theirs.is_locked().await?);
    operate!(client, &lock, guard, other, theirs.lock());
    theirs.lock().await?.unlock().await?;
    let terms = AtomicUsize::new(0);
    let led = lock.lead(async |_| {
        if terms.fetch_add(1, SeqCst) == 0 {
            theirs.admin().force_unlock().await?;
            pending::<()>().await;
        }
        Ok::<(), Error>(())
    });
    led.await?.expect("no drain")?;
    assert_eq!(terms.load(SeqCst), 2);

    let prices = client.rw_lock("calls:prices")?;
    let (one, two) = (prices.read().await?, granted(prices.try_read().await?));
    assert!(is_busy(&prices.try_write().await?) && is_busy(&prices.try_write_for(MOMENT).await?));
    assert!(prices.admin().force_unlock_of(one.owner()).await?);
    assert_eq!(one.lost().await.cause, LostCause::Taken);
    assert!(one.is_lost() && !two.is_lost());
    two.unlock().await?;
    let theirs = other.rw_lock(prices.name())?;
    operate!(client, &prices, prices.write().await?, other, theirs.write());
    granted(prices.try_read_for(SOON).await?).unlock().await?;

    let mails = client.semaphore("calls:mails", 3)?;
    let (one, two) = (mails.acquire().await?, mails.acquire_many(2).await?);
    assert!(is_busy(&mails.try_acquire().await?) && is_busy(&mails.try_acquire_for(MOMENT).await?));
    assert!(matches!(mails.acquire_many(4).await, Err(Error::InvalidConfig { .. })));
    assert_eq!(mails.admin().inspect().await?.taken(), mails.permits());
    one.unlock().await?;
    two.unlock().await?;
    let two = granted(mails.try_acquire_many(2).await?);
    assert!(is_busy(&mails.try_acquire_many_for(2, MOMENT).await?));
    two.unlock().await?;
    let (three, theirs) = (mails.many(3)?.lock().await?, other.semaphore(mails.name(), 3)?);
    operate!(client, &mails, three, other, Box::pin(theirs.acquire_many(2)));
    granted(mails.try_acquire_many_for(3, SOON).await?).unlock().await?;

    let names = ["calls:b", "calls:a", "calls:b"];
    let all = client.lock_all(&names).await?;
    assert_eq!(all.names().collect::<Vec<_>>(), ["calls:a", "calls:b"]);
    assert!(all.token("calls:b").is_some() && all.renew().await? > Duration::ZERO);
    assert!(is_busy(&other.try_lock_all(&names).await?));
    assert!(is_busy(&other.try_lock_all_for(&names, MOMENT).await?));
    assert!(!other.fair_lock("calls:c")?.is_locked().await?, "nobody has it");
    all.check()?;
    all.unlock().await?;
    granted(other.try_lock_all_for(&names, SOON).await?).unlock().await?;
    granted(other.try_lock_all(&names).await?).unlock().await?;
    let none: [&str; 0] = [];
    assert!(matches!(client.lock_all(&none).await, Err(Error::InvalidConfig { .. })));

    assert!(client.drain(SOON).await?.is_empty());
    assert!(matches!(lock.lock().await, Err(Error::Shutdown { .. })));
    client.shutdown().await?;
    other.shutdown_within(SOON).await
}

/// Two clients make every call on each executor.
fn makes_every_call_on_every_executor(store: Arc<dyn Backend>) {
    for (name, executor) in EXECUTORS {
        let (ended, store) = (Arc::new(AtomicUsize::new(0)), store.clone());
        let tells = Arc::clone(&ended);
        executor(vec![task(async move {
            let client = AsyncClient::new(Arc::clone(&store)).await.unwrap();
            makes_every_call(client, AsyncClient::new(store).await.unwrap()).await.unwrap();
            tells.fetch_add(1, SeqCst);
        })]);
        assert_eq!(ended.load(SeqCst), 1, "{name}");
    }
}

#[test]
fn every_call_is_awaited_on_every_executor_in_memory() {
    let _alone = Alone::here();
    makes_every_call_on_every_executor(Arc::new(MemoryBackend::new()));
}

/// The program has filled the pool of threads that smol shares with other crates: 500, all of which wait for the holder of the lock.
#[test]
fn a_full_pool_of_the_program_delays_no_call() {
    let _alone = Alone::here();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let waiting: Vec<_> =
        (0..600).map(|_| Arc::clone(&gate)).map(|gate| unblock(move || drop(gate.lock()))).collect();
    block_on(async {
        let client = AsyncClient::new(MemoryBackend::new()).await?;
        let lock = client.fair_lock("full")?;
        let guard = lock.lock().await?;
        assert!(guard.renew().await? > Duration::ZERO);
        assert_eq!(
            lock.admin().inspect().await?.holder().map(|holder| holder.token),
            Some(Some(guard.token()))
        );
        guard.unlock().await?;
        client.drain(SOON).await
    })
    .unwrap();
    assert!(!waiting.iter().any(|waits| waits.is_finished()));
    drop(closed);
    waiting.into_iter().for_each(block_on);
}

/// As with threads: to wait on without the first lock could deadlock, and would be of no use.
#[test]
fn a_loss_ends_the_wait_of_a_tasks_lock_all() {
    let _alone = Alone::here();
    let [client, other] = in_memory().map(|client| client.to_async());
    let [first, second] = ["loss:a", "loss:b"].map(|name| other.fair_lock(name).unwrap());
    let held = take(&second);
    let mut waiting = Box::pin(client.lock_all(&["loss:a", "loss:b"]));
    begin(&mut waiting);
    assert!(block_on(first.admin().force_unlock()).unwrap());
    let Err(Error::Lost(lost)) = block_on(waiting) else { panic!("it was lost") };
    assert_eq!((lost.lock.as_str(), lost.cause), ("loss:a", LostCause::Taken));
    unlock(held);
    for lock in [first, second] {
        unlock(take(&lock));
    }
    let all = block_on(client.lock_all(&["loss:a", "loss:b"])).unwrap();
    let lost = all.lost();
    assert!(block_on(client.fair_lock("loss:b").unwrap().admin().force_unlock()).unwrap());
    assert_eq!(block_on(lost).lock.as_str(), "loss:b");
    assert!(all.is_lost() && matches!(block_on(all.unlock()), Err(Error::Lost(_))));
}

/// A call that has begun goes on without its future.
#[test]
fn a_dropped_call_goes_on() {
    let _alone = Alone::here();
    let store = MemoryBackend::new();
    let client = Client::new(store.clone()).unwrap().to_async();
    let other = Client::new(store.clone()).unwrap();
    let lock: AsyncLock = client.fair_lock("dropped").unwrap();
    let guard: AsyncGuard = take(&lock);
    store.faults().delay_next(Operation::Release, 1, Duration::from_millis(50));
    let mut unlocks = Box::pin(guard.unlock());
    begin(&mut unlocks);
    drop(unlocks);
    eventually("it is released", || !other.fair_lock("dropped").unwrap().is_locked().unwrap());
    let mut drains = Box::pin(client.drain(SOON));
    begin(&mut drains);
    drop(drains);
    eventually("it is drained", || matches!(block_on(lock.try_lock()), Err(Error::Shutdown { .. })));
}
