//! Executors, locks of all kinds, and a resource that sees who uses it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use fairlock::{AsyncGuard, AsyncLock, Client, MemoryBackend, TryLock};
use fairlock_tests::RedisServer;
use fairlock_tests::locks::patient;
use futures::executor::{LocalPool, ThreadPool};
use futures::task::{LocalSpawnExt, SpawnExt};
use tokio::runtime::{Builder, Runtime};

/// The limit for anything immediate, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs each of the futures as a task until all have ended. A panic of one is one here.
pub(crate) type Executor = fn(Vec<Task>);

pub(crate) const EXECUTORS: [(&str, Executor); 5] = [
    ("tokio, multi-thread", |tasks| on_tokio(&multi(), tasks)),
    ("tokio, current-thread", |tasks| on_tokio(&current(), tasks)),
    ("smol", |tasks| {
        let tasks: Vec<_> = tasks.into_iter().map(smol::spawn).collect();
        smol::block_on(async {
            for task in tasks {
                task.await;
            }
        });
    }),
    ("futures, thread pool", |tasks| {
        let pool = ThreadPool::builder().pool_size(2).create().unwrap();
        let tasks: Vec<_> = tasks.into_iter().map(|task| pool.spawn_with_handle(task).unwrap()).collect();
        futures::executor::block_on(async {
            for task in tasks {
                task.await;
            }
        });
    }),
    ("futures, local pool", |tasks| {
        let mut pool = LocalPool::new();
        tasks.into_iter().for_each(|task| pool.spawner().spawn_local(task).unwrap());
        pool.run();
    }),
];

pub(crate) fn multi() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn current() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn on_tokio(runtime: &Runtime, tasks: Vec<Task>) {
    let tasks: Vec<_> = tasks.into_iter().map(|task| runtime.spawn(task)).collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

pub(crate) fn task(work: impl Future<Output = ()> + Send + 'static) -> Task {
    Box::pin(work)
}

/// Lets other tasks run, on any executor.
pub(crate) async fn pause() {
    let mut was_polled = false;
    poll_fn(|context| {
        if std::mem::replace(&mut was_polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls the future once; it must not be ready.
#[track_caller]
pub(crate) fn begin<F: Future + Unpin>(future: &mut F)
where
    F::Output: std::fmt::Debug,
{
    let polled = futures::FutureExt::now_or_never(future);
    assert!(polled.is_none(), "{polled:?}");
}

pub(crate) fn in_memory() -> [Client; 2] {
    let store = MemoryBackend::new();
    [store.clone(), store].map(|store| Client::new(store).unwrap())
}

pub(crate) fn on_redis(server: &RedisServer) -> [Client; 2] {
    [(), ()].map(|()| Client::new(patient(&server.url()).connect().unwrap()).unwrap())
}

/// What a lock protects: this many units at most.
#[derive(Debug)]
pub(crate) struct Resource {
    units: u32,
    in_use: AtomicU32,
    uses: AtomicU32,
}

impl Resource {
    pub(crate) fn new(units: u32) -> Arc<Resource> {
        Arc::new(Resource { units, in_use: AtomicU32::new(0), uses: AtomicU32::new(0) })
    }

    /// Uses this many of them while other tasks run.
    pub(crate) async fn work(&self, units: u32) {
        let before = self.in_use.fetch_add(units, SeqCst);
        assert!(before + units <= self.units, "{} of {} units are in use", before + units, self.units);
        pause().await;
        pause().await;
        self.in_use.fetch_sub(units, SeqCst);
        self.uses.fetch_add(1, SeqCst);
    }

    pub(crate) fn uses(&self) -> u32 {
        self.uses.load(SeqCst)
    }
}

/// A turn of a task. Some turns end by a drop.
pub(crate) async fn turn(lock: &AsyncLock, resource: &Resource, units: u32, nth: usize) {
    let guard = lock.lock().await.unwrap();
    resource.work(units).await;
    guard.check().unwrap();
    if nth.is_multiple_of(3) { drop(guard) } else { guard.unlock().await.unwrap() }
}

/// Waits for the lock and gives it back: what was told to the server before has arrived.
#[track_caller]
pub(crate) fn is_free_soon(lock: &AsyncLock) {
    let waiting = lock.try_lock_for(SOON);
    let TryLock::Granted(guard) = futures::executor::block_on(waiting).unwrap() else {
        panic!("{} is not free for {SOON:?}", lock.name())
    };
    unlock(guard);
}

#[track_caller]
pub(crate) fn take(lock: &AsyncLock) -> AsyncGuard {
    let TryLock::Granted(guard) = futures::executor::block_on(lock.try_lock()).unwrap() else {
        panic!("{} is free", lock.name())
    };
    guard
}

#[track_caller]
pub(crate) fn unlock(guard: AsyncGuard) {
    futures::executor::block_on(guard.unlock()).unwrap();
}
