//! The workloads, the same for every peer. The workers in other languages have the same ones.

use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::peer::{Lock, Peer};
use crate::say::{handshake, hear, now_ns, say};

/// More cycles add nothing.
const MOST_CYCLES: usize = 200_000;

/// The driver's order.
pub struct Order {
    pub mode: String,
    pub name: String,
    pub count: usize,
    seconds: f64,
    hold: Duration,
    pub lease: Duration,
    warm: f64,
}

impl Order {
    pub fn new(mode: &str, name: &str, numbers: [&str; 5]) -> Outcome<Order> {
        let [count, seconds, hold, lease, warm] = numbers;
        Ok(Order {
            mode: mode.to_owned(),
            name: name.to_owned(),
            count: count.parse()?,
            seconds: seconds.parse()?,
            hold: Duration::from_secs_f64(hold.parse::<f64>()? / 1e3),
            lease: Duration::from_millis(lease.parse()?),
            warm: warm.parse()?,
        })
    }

    /// Runs a cycle repeatedly and prints each time.
    pub fn cycles(&self, mut cycle: impl FnMut() -> Outcome) -> Outcome {
        self.timed_cycles(|| {
            let start = Instant::now();
            cycle()?;
            Ok(start.elapsed())
        })
    }

    /// The same for a cycle that measures its own time.
    pub fn timed_cycles(&self, mut cycle: impl FnMut() -> Outcome<Duration>) -> Outcome {
        cycles_for(self.warm, &mut cycle)?;
        handshake()?;
        let times = cycles_for(self.seconds, &mut cycle)?;
        let mut line = "ns".to_owned();
        times.iter().for_each(|time| line.extend([" ", &time.to_string()]));
        say(&line)?;
        hear().map(drop)
    }
}

pub fn run<P: Peer>(peer: &P, order: &Order) -> Outcome {
    let lock = peer.lock(&order.name)?;
    match order.mode.as_str() {
        "uncontended" => order.cycles(|| lock.hold(&mut || {})),
        "reentry" => {
            lock.keep()?;
            order.cycles(|| lock.hold(&mut || {}))
        }
        "new" => {
            let mut number = 0_u64;
            order.cycles(|| {
                number += 1;
                peer.lock(&format!("{}:{number}", order.name))?.hold(&mut || {})
            })
        }
        "busy" => {
            thread::scope(|threads| drop(threads.spawn(|| lock.keep().is_ok()))); // another owner
            order.cycles(|| lock.find_held())
        }
        "turns" => say_events(order, |seconds, hold| turns(peer, order, seconds, hold), || peer.polled()),
        "hold" => {
            handshake()?;
            let mut leaving = 0;
            lock.hold(&mut || {
                let _ = say(&format!("granted {}", now_ns())).and_then(|()| hear());
                leaving = now_ns();
            })?;
            say(&format!("released {leaving}"))
        }
        "idle" => thread::scope(|threads| {
            lock.keep()?;
            for _ in 0..order.count {
                let lock = peer.lock(&order.name)?;
                threads.spawn(move || lock.keep());
            }
            handshake()?;
            std::process::exit(0)
        }),
        mode @ ("many" | "apart") => {
            let work = if mode == "many" { many } else { apart };
            say_ops(order, |seconds| work(peer, order, seconds))
        }
        "renew" => {
            for n in 0..order.count {
                peer.lock(&format!("{}:{n}", order.name))?.keep()?;
            }
            handshake()
        }
        mode => Err(format!("no mode {mode}").into()),
    }
}

/// Runs the work twice, to warm up and for its events, and prints these.
pub fn say_events(
    order: &Order,
    work: impl Fn(f64, Duration) -> Outcome<Vec<String>>,
    polled: impl Fn() -> Option<u64>,
) -> Outcome {
    work(order.warm, Duration::ZERO)?;
    handshake()?;
    let events = work(order.seconds, order.hold)?;
    let polled = polled().map(|count| format!(" {count}")).unwrap_or_default();
    say(&format!("{}done{polled}", events.concat()))
}

/// Runs the work twice, to warm up and for its times, and prints how many there are, the p50 and the p99.
pub fn say_ops(order: &Order, work: impl Fn(f64) -> Outcome<Vec<u128>>) -> Outcome {
    work(order.warm)?;
    handshake()?;
    let mut times = work(order.seconds)?;
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or(0);
    say(&format!("ops {} {} {}", times.len(), at(50), at(99)))?;
    hear().map(drop)
}

pub fn cycles_for(seconds: f64, cycle: &mut impl FnMut() -> Outcome<Duration>) -> Outcome<Vec<u128>> {
    let mut times = Vec::new();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end && times.len() < MOST_CYCLES {
        times.push(cycle()?.as_nanos());
    }
    Ok(times)
}

/// Threads that take turns on one lock. Returns a line for each turn.
fn turns<P: Peer>(peer: &P, order: &Order, seconds: f64, hold: Duration) -> Outcome<Vec<String>> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    in_threads(order.count, |thread| {
        let lock = peer.lock(&order.name)?;
        let mut times = Vec::new();
        while Instant::now() < end {
            let (asked, mut granted, mut leaving) = (now_ns(), 0, 0);
            lock.hold(&mut || {
                granted = now_ns();
                if !hold.is_zero() {
                    thread::sleep(hold);
                }
                leaving = now_ns();
            })?;
            times.push((asked, granted, leaving));
        }
        let line = |(asked, granted, leaving)| format!("e {thread} {asked} {granted} {leaving}\n");
        Ok(times.into_iter().map(line).collect::<String>())
    })
}

/// The time of each cycle, in ns.
fn many<P: Peer>(peer: &P, order: &Order, seconds: f64) -> Outcome<Vec<u128>> {
    const NAMES: usize = 10_000;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let times = in_threads(order.count, |thread| {
        // As far apart as can be, so that no thread meets another one's names.
        let mut n = thread * (NAMES / order.count);
        let mut times = Vec::new();
        while Instant::now() < end {
            let began = Instant::now();
            peer.lock(&format!("{}:{}", order.name, n % NAMES))?.hold(&mut || {})?;
            times.push(began.elapsed().as_nanos());
            n += 1;
        }
        Ok(times)
    })?;
    Ok(times.concat())
}

/// The same with one name a thread.
fn apart<P: Peer>(peer: &P, order: &Order, seconds: f64) -> Outcome<Vec<u128>> {
    let times = in_threads(order.count, |thread| {
        let lock = peer.lock(&format!("{}:{thread}", order.name))?;
        cycles_for(seconds, &mut || {
            let began = Instant::now();
            lock.hold(&mut || {})?;
            Ok(began.elapsed())
        })
    })?;
    Ok(times.concat())
}

fn in_threads<T: Send>(count: usize, work: impl Fn(usize) -> Outcome<T> + Sync) -> Outcome<Vec<T>> {
    let work = &work;
    thread::scope(|threads| {
        let all: Vec<_> = (0..count).map(|n| threads.spawn(move || work(n))).collect();
        all.into_iter().map(|one| one.join().map_err(|_| "a thread has panicked")?).collect()
    })
}
