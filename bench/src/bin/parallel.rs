//! Whether threads with a lock each disturb one another: one client on the memory backend, one thread on one lock and four threads
//! on four locks, in turns. `parallel [ROUNDS]` prints `<what> <median> [<quartiles>]`: the grants a second of both, and the
//! second divided by the first.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Lock, MemoryBackend};

const THREADS: usize = 4;
const TURN: Duration = Duration::from_millis(200);
/// Between two looks at the time.
const BATCH: u32 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(21), |rounds| rounds.parse())?;
    let client = Client::new(MemoryBackend::new())?;
    let locks: Vec<Lock> =
        (0..THREADS).map(|n| client.fair_lock(&format!("bench:parallel:{n}"))).collect::<Result<_, _>>()?;
    let mut figures = [("one", Vec::new()), ("four", Vec::new()), ("ratio", Vec::new())];
    for _ in 0..rounds {
        let one = grants_a_second(&locks[..1]);
        let four = grants_a_second(&locks);
        for ((_, all), figure) in figures.iter_mut().zip([one, four, four / one]) {
            all.push(figure);
        }
    }
    for (what, mut all) in figures {
        all.sort_by(f64::total_cmp);
        let [low, median, high] = [1, 2, 3].map(|quarter| all[(all.len() - 1) * quarter / 4]);
        println!("{what} {median:.2} [{low:.2} {high:.2}]");
    }
    Ok(())
}

/// A thread for each lock, which takes and releases it again and again.
fn grants_a_second(locks: &[Lock]) -> f64 {
    let is_over = AtomicBool::new(false);
    let start = Instant::now();
    let grants: u32 = thread::scope(|threads| {
        let work = |lock: &Lock| {
            let mut grants = 0;
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..BATCH {
                    lock.lock().and_then(|guard| guard.unlock()).expect("nothing fails");
                }
                grants += BATCH;
            }
            grants
        };
        let all: Vec<_> = locks.iter().map(|lock| threads.spawn(move || work(lock))).collect();
        thread::sleep(TURN);
        is_over.store(true, Ordering::Relaxed);
        all.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    });
    f64::from(grants) / start.elapsed().as_secs_f64()
}
