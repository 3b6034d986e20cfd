//! The memory backend beside the locks of `parking_lot` and `std`, in one process.
//!
//! One line per round: `<what> <lock> <figure>`. `uncontended` is the time of lock and unlock in ns, the median of
//! many batches. `gap` is the time from the unlock of one thread to the grant of another in ns, the median. `turns`
//! are grants a second, `hand-offs` those to another thread than before. `shares` is the most grants of a thread
//! divided by the fewest. `apart` is how many times in a second threads of one client take a lock each.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, MemoryBackend};
use parking_lot::{FairMutex, ReentrantMutex};

use crate::Outcome;
use crate::say::say;

/// A client with one lock for each thread.
const APART: [usize; 2] = [1, 4];
const APART_BATCHES: u32 = 5;

/// Takes a lock, runs the closure under it, and releases it.
type With<'a> = &'a (dyn Fn(&mut dyn FnMut()) + Sync);

const BATCH: u32 = 100;
const THREADS: [usize; 2] = [2, 8];

/// What concerns the memory backend only.
pub fn alone(seconds: f64) -> Outcome {
    let client = Client::new(MemoryBackend::new())?;
    let lock = client.fair_lock("bench:memory")?;
    let fairlock = |held: &mut dyn FnMut()| {
        if let Ok(guard) = lock.lock() {
            held();
            let _ = guard.unlock();
        }
    };
    say(&format!("uncontended fairlock-memory {:.1}", uncontended(&fairlock, seconds)))?;
    apart(&client, seconds)
}

/// In turns, since the machine's speed varies.
fn apart(client: &Client, seconds: f64) -> Outcome {
    let mut cycles = APART.map(|_| 0);
    for _ in 0..APART_BATCHES {
        for (threads, cycles) in APART.iter().zip(&mut cycles) {
            *cycles += apart_once(client, *threads, seconds / f64::from(APART_BATCHES))?;
        }
    }
    for (threads, cycles) in APART.iter().zip(cycles) {
        say(&format!("apart-{threads} fairlock-memory {:.0}", cycles as f64 / seconds))?;
    }
    Ok(())
}

fn apart_once(client: &Client, count: usize, seconds: f64) -> Outcome<usize> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    thread::scope(|threads| {
        let work = |number: usize| -> Outcome<usize> {
            let lock = client.fair_lock(&format!("bench:apart:{number}"))?;
            let mut cycles = 0;
            while Instant::now() < end {
                for _ in 0..BATCH {
                    lock.lock()?.unlock()?;
                }
                cycles += BATCH as usize;
            }
            Ok(cycles)
        };
        let all: Vec<_> = (0..count).map(|number| threads.spawn(move || work(number))).collect();
        all.into_iter().map(|one| one.join().map_err(|_| "a thread has panicked")?).sum()
    })
}

pub fn run(seconds: f64) -> Outcome {
    let client = Client::new(MemoryBackend::new())?;
    let ours = client.fair_lock("bench:memory")?;
    let (fair, reentrant, std) = (FairMutex::new(()), ReentrantMutex::new(()), Mutex::new(()));
    let fairlock = |held: &mut dyn FnMut()| {
        if let Ok(guard) = ours.lock() {
            held();
            let _ = guard.unlock();
        }
    };
    let fair_mutex = |held: &mut dyn FnMut()| {
        let _guard = fair.lock();
        held();
    };
    let reentrant_mutex = |held: &mut dyn FnMut()| {
        let _guard = reentrant.lock();
        held();
    };
    let std_mutex = |held: &mut dyn FnMut()| {
        let _guard = std.lock();
        held();
    };
    let all: [(&str, With<'_>); 4] = [
        ("fairlock-memory", &fairlock),
        ("FairMutex", &fair_mutex),
        ("ReentrantMutex", &reentrant_mutex),
        ("std::sync::Mutex", &std_mutex),
    ];
    for (name, with) in all {
        say(&format!("uncontended {name} {:.1}", uncontended(with, seconds)))?;
    }
    apart(&client, seconds)?;
    for threads in THREADS {
        for (name, with) in all {
            let Figures { gap, hand_offs, turns, shares } = turns(with, threads, seconds);
            say(&format!("gap-{threads} {name} {gap}"))?;
            say(&format!("hand-offs-{threads} {name} {hand_offs:.0}"))?;
            say(&format!("turns-{threads} {name} {turns:.0}"))?;
            say(&format!("shares-{threads} {name} {shares:.3}"))?;
        }
    }
    Ok(())
}

fn uncontended(with: With<'_>, seconds: f64) -> f64 {
    let mut batches = Vec::new();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        let start = Instant::now();
        for _ in 0..BATCH {
            with(&mut || {});
        }
        batches.push(start.elapsed().as_nanos());
    }
    median(&mut batches) as f64 / f64::from(BATCH)
}

struct Figures {
    gap: u128,
    hand_offs: f64,
    turns: f64,
    shares: f64,
}

/// Threads that always want the lock and hold it for no time.
fn turns(with: With<'_>, count: usize, seconds: f64) -> Figures {
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let events: Vec<Vec<(Instant, Instant)>> = thread::scope(|threads| {
        let work = || {
            let mut mine = Vec::with_capacity(1 << 20);
            while Instant::now() < end {
                with(&mut || {
                    let granted = Instant::now();
                    mine.push((granted, Instant::now()));
                });
            }
            mine
        };
        let all: Vec<_> = (0..count).map(|_| threads.spawn(work)).collect();
        all.into_iter().map(|one| one.join().unwrap_or_default()).collect()
    });
    let grants: usize = events.iter().map(Vec::len).sum();
    let most = events.iter().map(Vec::len).max().unwrap_or(0);
    let fewest = events.iter().map(Vec::len).min().unwrap_or(0);
    let mut by_time: Vec<(Instant, Instant, usize)> = events
        .into_iter()
        .enumerate()
        .flat_map(|(thread, events)| events.into_iter().map(move |(from, to)| (from, to, thread)))
        .collect();
    by_time.sort_unstable();
    let between = by_time.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    let mut gaps: Vec<u128> = between.map(|pair| (pair[1].0 - pair[0].1).as_nanos()).collect();
    Figures {
        hand_offs: gaps.len() as f64 / seconds,
        gap: median(&mut gaps),
        turns: grants as f64 / seconds,
        shares: most as f64 / fewest.max(1) as f64,
    }
}

fn median(times: &mut [u128]) -> u128 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}
