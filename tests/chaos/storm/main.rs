//! Storms: seeded random programs over the whole public interface, under faults that follow from the seed too, and an
//! oracle that knows the promises. `tests/chaos/storm/README.md` says how to use it.
//!
//! | module | topic |
//! | --- | --- |
//! | `program`, `generate` | what a run does, and how it follows from a seed |
//! | `weather` | the faults, and what becomes of one call |
//! | `world`, `life` | what all threads of a run share; one client from its making to its end |
//! | `link`, `ear` | the backend of one client: its calls and its wake-ups suffer the faults |
//! | `arrival`, `late` | what arrives at the server, in time or long after, and the record of it |
//! | `actor`, `handles`, `in_hand`, `judge` | a thread of the program, what it has, and whether what its calls return is true |
//! | `task` | a thread of the program waits as tasks do |
//! | `server`, `holds`, `look` | the oracle: order and tokens; losses; everything else, at each moment |
//! | `exclusion`, `liveness`, `bounds` | its parts: who believes in a hold; who has to be served; how long a call may take |
//! | `run`, `post`, `noise` | the clock is moved from one moment to the next; late wake-ups; calls and lines are counted |
//! | `real`, `keeper` | the same on a real server; its store |
//! | `small` | the server of a world |
//! | `order` | on a real server: who was passed, and tokens that do not grow |
//! | `files` | on files: sockets that are removed, and processes that are killed |
//! | `rows`, `crowd` | on PostgreSQL: rows that others lock; a client with hundreds of locks |
//! | `turns` | processes that take turns on one lock without a pause, and are killed or stopped |
//! | `logs` | counts the lines of the log |
//! | `finding`, `shrink`, `report`, `show` | what was found; a failing program is made smaller, and shown |
#![allow(unreachable_pub, reason = "the modules of a test program")]
#![cfg_attr(not(feature = "night"), allow(dead_code, unused_imports, reason = "what is for real stores"))]

mod actor;
mod arrival;
mod bounds;
mod crowd;
mod ear;
mod exclusion;
mod files;
mod finding;
mod generate;
mod handles;
mod holds;
mod in_hand;
mod judge;
mod keeper;
mod late;
mod life;
mod link;
mod liveness;
mod logs;
mod look;
mod noise;
mod order;
mod post;
mod program;
mod real;
mod report;
mod rows;
mod run;
mod server;
mod show;
mod shrink;
mod small;
mod task;
#[cfg(feature = "night")]
mod turns;
mod weather;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_tests::{Alone, Bound, PostgresServer};

use program::Program;
use run::Outcome;

/// How long it goes on if nothing else is said.
const SECONDS: u64 = 1;
/// The first seed if nothing else is said: seed 1, with short leases on 35 threads, takes as long as forty others.
const FIRST: u64 = 5;
/// How much memory storms may use (kB): what one call or one run leaves behind adds up.
const MEMORY: u64 = 512 * 1024;
/// A run in memory takes a tenth of a second, one on a server half a minute; one that takes so long hangs.
const HANGS: Duration = Duration::from_secs(240);

/// In memory, on a clock that is moved from one moment to the next: hours in seconds.
#[test]
fn no_storm_breaks_a_promise() {
    storms(&Kind { run: &run::run, make: generate::generate, option: "" });
}

/// The same programs, scaled down to seconds, on a real server under its own clock.
#[cfg(feature = "night")]
#[test]
fn no_storm_on_redis_breaks_a_promise() {
    let run = |program: &Program| run::run_on(program, real::Real::redis());
    storms(&Kind { run: &run, make: real::on_redis, option: " --store redis" });
}

/// The same on PostgreSQL: one server, with a database for each program.
#[cfg(feature = "night")]
#[test]
fn no_storm_on_postgres_breaks_a_promise() {
    let server = Arc::new(PostgresServer::start());
    let run = |program: &Program| run::run_on(program, real::Real::postgres(&server));
    storms(&Kind { run: &run, make: real::on_postgres, option: " --store postgres" });
}

/// The same on files, of one directory for each program.
#[cfg(feature = "night")]
#[test]
fn no_storm_on_file_breaks_a_promise() {
    let run = |program: &Program| run::run_on(program, real::Real::files());
    storms(&Kind { run: &run, make: real::on_files, option: " --store file" });
}

/// How programs are made and run.
pub struct Kind<'a> {
    make: fn(u64) -> Program,
    run: &'a dyn Fn(&Program) -> Outcome,
    /// Of `tests/chaos/storm/run`.
    option: &'static str,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn storms(kind: &Kind<'_>) {
    // Threads are counted, and lines of the log.
    let _alone = Alone::for_as_long(Duration::MAX);
    logs::install();
    // In a world (`world/in`), where the same happens again, the seed is the world's.
    if let Some(seed) = number("WORLD_SEED").or_else(|| number("FAIRLOCK_STORM_SEED")) {
        for _ in 0..number("FAIRLOCK_STORM_TIMES").unwrap_or(1) {
            let (program, outcome) = one(kind, seed);
            report::judge(kind, &program, outcome);
        }
        return;
    }
    let seconds = number("FAIRLOCK_STORM_SECONDS").unwrap_or(SECONDS);
    let first = number("FAIRLOCK_STORM_FROM").unwrap_or(FIRST);
    let keeps_going = number("FAIRLOCK_STORM_KEEP_GOING").is_some_and(|yes| yes > 0);
    println!("storm: seeds from {first} on, for {seconds} s");
    let start = Instant::now();
    let (mut sum, mut failed) = (report::Sum::default(), 0);
    for seed in first.. {
        if start.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        let (program, outcome) = one(kind, seed);
        sum.add(&outcome);
        if let (Some(finding), true) = (outcome.findings.first(), keeps_going) {
            failed += 1;
            println!("seed {seed}: {finding}");
        } else {
            report::judge(kind, &program, outcome);
        }
    }
    let memory = memory();
    println!("{sum}; memory {} MB", memory / 1024);
    assert!(memory < MEMORY, "{memory} kB");
    assert_eq!(failed, 0, "seeds that break a promise");
}

/// What this process uses (kB); 0 where `/proc` is not.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let used =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    used.unwrap_or(0)
}

fn one(kind: &Kind<'_>, seed: u64) -> (Program, Outcome) {
    let _bound = Bound::here(HANGS);
    report::about(seed);
    let program = (kind.make)(seed);
    let outcome = (kind.run)(&program);
    (program, outcome)
}
