//! The peers that are made for tokio, and fairlock's form for tasks. Threads each block on the runtime, as with the other peers; with
//! `-tasks` at the end of a peer's name the same work is done by tasks: each has a lock of its own (mode `apart`), or they take turns on
//! one (`turns`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_redis_lock::Locker;
use async_redis_lock::options::Options;
use distkit::DistkitRedisKey;
use distkit::lock::{LockOptions, Mutex};
use fairlock::{AsyncClient, AsyncLock};
use redis::aio::ConnectionManager;
use rslock::LockManager;
use tokio::runtime::{Builder, Runtime};

use crate::Outcome;
use crate::fair::Fair;
use crate::peer::{Lock, Peer};
use crate::say::now_ns;
use crate::workload::{self, Order, say_events, say_ops};

/// A client of one library.
pub enum Tasks {
    Fair(AsyncClient),
    RsLock(LockManager),
    AsyncRedisLock(Locker),
    DistKit(ConnectionManager),
}

enum Handle {
    Fair(AsyncLock),
    RsLock(LockManager, String, Duration),
    AsyncRedisLock(Locker, String, Options),
    DistKit(Arc<Mutex>),
}

impl Tasks {
    /// Inside of a runtime: the clients of some libraries start tasks.
    async fn connect(library: &str, url: &str, order: &Order) -> Outcome<Tasks> {
        Ok(match library {
            "memory" => Tasks::Fair(fairlock::Client::new(fairlock::MemoryBackend::new())?.to_async()),
            "fairlock" => Tasks::Fair(Fair::connect(url, order, None)?.0.to_async()),
            "rslock" => Tasks::RsLock(LockManager::new(vec![url])),
            "async-redis-lock" => Tasks::AsyncRedisLock(Locker::from_redis_url(url).await?),
            "distkit" => Tasks::DistKit(redis::Client::open(url)?.get_connection_manager().await?),
            _ => return Err(format!("no peer {library}").into()),
        })
    }

    fn lock(&self, name: &str, lease: Duration) -> Outcome<Handle> {
        Ok(match self {
            Tasks::Fair(client) => Handle::Fair(client.fair_lock(name)?),
            Tasks::RsLock(manager) => Handle::RsLock(manager.clone(), name.to_owned(), lease),
            Tasks::AsyncRedisLock(locker) => {
                // By default a wait ends after a second.
                let options = Options::new().ttl(lease).extend(lease / 3).timeout(None);
                Handle::AsyncRedisLock(locker.clone(), name.to_owned(), options)
            }
            Tasks::DistKit(connection) => {
                let key = DistkitRedisKey::try_sanitize(name.to_owned())?;
                Handle::DistKit(Mutex::new(LockOptions::builder(key, connection.clone()).ttl(lease).build()))
            }
        })
    }
}

impl Handle {
    async fn hold(&self, held: impl FnOnce()) -> Outcome {
        match self {
            Handle::Fair(lock) => {
                let guard = lock.lock().await?;
                held();
                guard.unlock().await?;
            }
            Handle::RsLock(manager, name, lease) => {
                let lock = manager.acquire(name.as_bytes(), *lease).await.map_err(|error| error.to_string())?;
                held();
                manager.unlock(&lock.lock).await;
            }
            Handle::AsyncRedisLock(locker, name, options) => {
                let lock = locker.clone().acquire_with_options(options, name).await?;
                held();
                lock.release()?;
            }
            Handle::DistKit(mutex) => {
                let guard = mutex.lock().await?;
                held();
                guard.release().await?;
            }
        }
        Ok(())
    }

    /// Takes the lock for good: no guard is dropped.
    async fn keep(&self) -> Outcome {
        match self {
            Handle::Fair(lock) => std::mem::forget(lock.lock().await?),
            Handle::RsLock(manager, name, lease) => {
                let kept = manager.acquire(name.as_bytes(), *lease).await.map_err(|error| error.to_string())?;
                std::mem::forget(kept);
            }
            Handle::AsyncRedisLock(locker, name, options) => {
                std::mem::forget(locker.clone().acquire_with_options(options, name).await?);
            }
            Handle::DistKit(mutex) => std::mem::forget(mutex.lock().await?),
        }
        Ok(())
    }
}

/// A library for tokio that is used by threads.
struct Blocking {
    runtime: Arc<Runtime>,
    tasks: Tasks,
    lease: Duration,
}

struct BlockingHandle {
    runtime: Arc<Runtime>,
    handle: Handle,
}

impl Peer for Blocking {
    type Lock = BlockingHandle;

    fn lock(&self, name: &str) -> Outcome<BlockingHandle> {
        Ok(BlockingHandle { runtime: Arc::clone(&self.runtime), handle: self.tasks.lock(name, self.lease)? })
    }
}

impl Lock for BlockingHandle {
    fn hold(&self, held: &mut dyn FnMut()) -> Outcome {
        self.runtime.block_on(self.handle.hold(held))
    }

    fn keep(&self) -> Outcome {
        self.runtime.block_on(self.handle.keep())
    }
}

/// On the runtime that most programs have; `-tasks-1` is one with a single thread.
pub fn run(peer: &str, url: &str, order: &Order) -> Outcome {
    let (library, is_by_tasks, is_one_thread) = match peer.split_once("-tasks") {
        Some((library, rest)) => (library, true, rest == "-1"),
        None => (peer, false, false),
    };
    let mut builder = if is_one_thread { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    let runtime = Arc::new(builder.enable_all().build()?);
    let tasks = runtime.block_on(Tasks::connect(library, url, order))?;
    match order.mode.as_str() {
        "apart" if is_by_tasks => say_ops(order, |seconds| apart(&runtime, &tasks, order, seconds)),
        "turns" if is_by_tasks => say_events(order, |seconds, _| turns(&runtime, &tasks, order, seconds), || None),
        _ => workload::run(&Blocking { runtime, tasks, lease: order.lease }, order),
    }
}

/// The time of each cycle, in ns.
fn apart(runtime: &Runtime, tasks: &Tasks, order: &Order, seconds: f64) -> Outcome<Vec<u128>> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let times = in_tasks(runtime, order.count, |task| {
        let lock = tasks.lock(&format!("{}:{task}", order.name), order.lease);
        async move {
            let (lock, mut times) = (lock?, Vec::new());
            while Instant::now() < end {
                let began = Instant::now();
                lock.hold(|| ()).await?;
                times.push(began.elapsed().as_nanos());
            }
            Ok(times)
        }
    })?;
    Ok(times.concat())
}

/// A line for each turn.
fn turns(runtime: &Runtime, tasks: &Tasks, order: &Order, seconds: f64) -> Outcome<Vec<String>> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    in_tasks(runtime, order.count, |task| {
        let lock = tasks.lock(&order.name, order.lease);
        async move {
            let (lock, mut lines) = (lock?, String::new());
            while Instant::now() < end {
                let (asked, mut granted) = (now_ns(), 0);
                lock.hold(|| granted = now_ns()).await?;
                lines += &format!("e {task} {asked} {granted} {granted}\n");
            }
            Ok(lines)
        }
    })
}

fn in_tasks<T: Send + 'static, W: Future<Output = Outcome<T>> + Send + 'static>(
    runtime: &Runtime,
    count: usize,
    work: impl Fn(usize) -> W,
) -> Outcome<Vec<T>> {
    runtime.block_on(async {
        let all: Vec<_> = (0..count).map(|task| tokio::spawn(work(task))).collect();
        let mut results = Vec::new();
        for one in all {
            results.push(one.await??);
        }
        Ok(results)
    })
}
