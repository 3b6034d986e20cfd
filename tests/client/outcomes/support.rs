//! A store, its clock, and clients of it.

use fairlock::{Client, ClientBuilder, Faults, ManualClock, MemoryBackend};

pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: MemoryBackend,
}

impl World {
    pub(crate) fn new() -> World {
        let clock = ManualClock::new();
        World { store: MemoryBackend::with_clock(clock.clone()), clock }
    }

    /// With the default settings.
    pub(crate) fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder(self.store.clone()).clock(self.clock.clone())
    }

    pub(crate) fn faults(&self) -> Faults {
        self.store.faults()
    }
}
