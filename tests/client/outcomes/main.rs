//! What calls say when replies get lost, holds end and clients stop, in memory on a manual clock. Core's own tests have each step.

mod closures;
mod ends;

use fairlock::testing::{Faults, ManualClock};
use fairlock::{Client, MemoryBackend};

/// A store, its clock, and clients of it.
struct World {
    clock: ManualClock,
    store: MemoryBackend,
}

impl World {
    fn new() -> World {
        let clock = ManualClock::new();
        World { store: MemoryBackend::with_clock(clock.clone()), clock }
    }

    /// With the default settings.
    fn client(&self) -> Client {
        Client::builder(self.store.clone()).clock(self.clock.clone()).build().unwrap()
    }

    fn faults(&self) -> Faults {
        self.store.faults()
    }
}
