//! Who holds or waits: a thread, or an identity of its own.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{ClientId, OwnerId};

/// An identity that is not a thread: its holds are [`OwnedGuard`](crate::OwnedGuard)s, which may move between
/// threads. Made by [`Client::new_owner`](crate::Client::new_owner), and good for that client only.
#[derive(Clone, Debug)]
pub struct Owner(OwnerId);

impl Owner {
    pub(crate) fn new(client: ClientId) -> Owner {
        Owner(OwnerId::of(client, next_number()))
    }

    /// As the server spells it.
    pub fn id(&self) -> &OwnerId {
        &self.0
    }

    pub(crate) fn belongs_to(&self, client: ClientId) -> bool {
        self.0.client() == client.to_string()
    }
}

/// The owner that the calling thread is.
pub(crate) fn this_thread(client: ClientId) -> OwnerId {
    // No destructor, so that it can be used while a thread ends; never reused, unlike the system's numbers.
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    let number = match NUMBER.get() {
        0 => {
            let number = next_number();
            NUMBER.set(number);
            number
        }
        number => number,
    };
    OwnerId::of(client, number)
}

/// Threads and owners share one counter for the whole process.
fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
