//! The store on files with real processes: which take turns, are killed, and stand still.

#![cfg(unix)]
#![cfg_attr(not(feature = "night"), allow(dead_code, reason = "what only processes need"))]

mod errors;
#[cfg(feature = "night")]
mod injected;
#[cfg(feature = "night")]
mod kills;
#[cfg(feature = "night")]
mod power_cut;
#[cfg(feature = "night")]
mod processes;

use std::path::PathBuf;
use std::time::Duration;

use fairlock::{Client, FileBackend};
use fairlock_tests::{Alone, WorkDir};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
const PLACE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(10);

/// A directory of locks.
struct Locks(WorkDir, #[expect(dead_code, reason = "kept for its drop")] Alone);

impl Locks {
    fn new() -> Locks {
        Locks::for_as_long(SOON * 12)
    }

    /// For a test that may take so long.
    fn for_as_long(limit: Duration) -> Locks {
        let alone = Alone::for_as_long(limit);
        Locks(WorkDir::new(), alone)
    }

    fn dir(&self) -> PathBuf {
        self.0.file("locks")
    }

    fn client(&self) -> Client {
        Client::builder(FileBackend::open(self.dir()).unwrap()).place_ttl(PLACE).build().unwrap()
    }
}
