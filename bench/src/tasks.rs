//! Tasks on tokio in place of threads: each has a lock of its own (mode `apart`), or they take turns on one (`turns`).

use std::time::{Duration, Instant};

use fairlock::{AsyncClient, AsyncLock};
use rslock::LockManager;
use tokio::runtime::{Builder, Runtime};

use crate::Outcome;
use crate::say::now_ns;
use crate::workload::{Order, say_events, say_ops};

/// A client of one library.
pub enum Tasks {
    Fair(AsyncClient),
    RsLock(LockManager),
}

enum Handle {
    Fair(AsyncLock),
    RsLock(LockManager, String, Duration),
}

impl Tasks {
    fn lock(&self, name: &str, lease: Duration) -> Outcome<Handle> {
        Ok(match self {
            Tasks::Fair(client) => Handle::Fair(client.fair_lock(name)?),
            Tasks::RsLock(manager) => Handle::RsLock(manager.clone(), name.to_owned(), lease),
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
                let lock =
                    manager.acquire(name.as_bytes(), *lease).await.map_err(|error| error.to_string())?;
                held();
                manager.unlock(&lock.lock).await;
            }
        }
        Ok(())
    }
}

/// On the runtime of most programs, or on one with a single thread.
pub fn run(tasks: &Tasks, order: &Order, is_one_thread: bool) -> Outcome {
    let mut builder = if is_one_thread { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    let runtime = builder.enable_all().build()?;
    match order.mode.as_str() {
        "apart" => say_ops(order, |seconds| apart(&runtime, tasks, order, seconds)),
        "turns" => say_events(order, |seconds, _| turns(&runtime, tasks, order, seconds), || None),
        mode => Err(format!("no mode {mode} of tasks").into()),
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
