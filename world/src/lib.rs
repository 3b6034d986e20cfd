//! The world of one process under one seed: this library is loaded before libc (`LD_PRELOAD`), and answers the calls through which a
//! program reaches time, threads, chance and sockets. `README.md` says how to use it.
//!
//! | module | topic |
//! | --- | --- |
//! | `kernel` | whose turn it is, what time it is, and chance |
//! | `threads` | the calls for threads: their beginning, their end, and where they sleep |
//! | `clocks` | the calls for time and chance |
//! | `sockets` | the calls for sockets |
//! | `net` | the network behind the sockets, and its faults |
//! | `redis`, `store` | the server there: its sessions and scripts; its keys and commands |
//! | `real` | the calls of libc itself |

mod clocks;
mod kernel;
mod net;
mod real;
mod redis;
mod sockets;
mod store;
mod threads;

/// Run by the loader before the program's `main`.
#[used]
// SAFETY: an entry of `.init_array` is a C function without arguments that are needed.
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    if let Some(clock) = std::env::var_os("WORLD_CLOCK") {
        let _ = clocks::SHOWN.set(std::fs::File::open(clock).expect("the clock's file"));
    }
    let Some(seed) = std::env::var("WORLD_SEED").ok().and_then(|seed| seed.parse().ok()) else { return };
    kernel::begin(seed);
    // SAFETY: `report` is a C function, and no other thread exists yet.
    unsafe { libc::atexit(report) };
}

extern "C" fn report() {
    if std::env::var_os("WORLD_REPORT").is_some() {
        eprintln!("{}", kernel::with(|world| world.report()));
    }
    let record = kernel::with(|world| world.net.redis.record.take());
    if let (Ok(folder), Ok(seed), Some(record)) =
        (std::env::var("WORLD_RECORD"), std::env::var("WORLD_SEED"), record)
        && let Err(error) = std::fs::write(format!("{folder}/{seed}"), record)
    {
        eprintln!("no record: {error}");
    }
}
