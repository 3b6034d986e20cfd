//! Who holds or waits: a thread, or an identity of its own.

use std::cell::{Cell, RefCell};
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
    // Spelled out once: a thread locks again and again, as a rule with one client. While the thread ends the cache is
    // gone, and it is spelled out each time.
    thread_local!(static LATEST: RefCell<Option<(ClientId, OwnerId)>> = const { RefCell::new(None) });
    let spell = || OwnerId::of(client, number);
    let cached = LATEST.try_with(|latest| {
        let mut latest = latest.borrow_mut();
        match &*latest {
            Some((of, owner)) if *of == client => owner.clone(),
            _ => latest.insert((client, spell())).1.clone(),
        }
    });
    cached.unwrap_or_else(|_| spell())
}

/// Threads and owners share one counter for the whole process.
fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
