//! The world of one process under one seed: this library is loaded before libc (`LD_PRELOAD`), and answers the calls through which a
//! program reaches time, threads and chance. `README.md` says how to use it.
//!
//! | module | topic |
//! | --- | --- |
//! | `kernel` | whose turn it is, what time it is, and chance |
//! | `threads` | the calls for threads: their beginning, their end, and where they sleep |
//! | `clocks` | the calls for time and chance |
//! | `real` | the calls of libc itself |

mod clocks;
mod kernel;
mod real;
mod threads;

/// Run by the loader before the program's `main`.
#[used]
// SAFETY: an entry of `.init_array` is a C function without arguments that are needed.
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let Some(seed) = std::env::var("WORLD_SEED").ok().and_then(|seed| seed.parse().ok()) else { return };
    kernel::begin(seed);
    // SAFETY: `report` is a C function, and no other thread exists yet.
    unsafe { libc::atexit(report) };
}

extern "C" fn report() {
    if std::env::var_os("WORLD_REPORT").is_some() {
        eprintln!("{}", kernel::with(|world| world.report()));
    }
}
