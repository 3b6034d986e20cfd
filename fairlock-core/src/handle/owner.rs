//! Who holds or waits: a thread, or an identity apart from threads.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::{ClientId, OwnerId};

/// Who owns the holds and waits of a [`Lock`](crate::Lock): [`ThisThread`], or an [`Owner`]. No other type can implement it.
pub trait Ownership: Identity {}

/// Not exported, so that [`Ownership`] is sealed.
pub trait Identity: Clone + Debug + UnwindSafe + RefUnwindSafe {
    /// A marker that decides whether guards and requests are `Send`.
    type Mobility: Debug + UnwindSafe + RefUnwindSafe;

    /// The id of this owner at `client`.
    fn owner_id(&self, client: ClientId) -> OwnerId;
}

/// The thread that makes a call is the owner. Guards and requests stay on their thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThisThread;

impl Ownership for ThisThread {}

impl Identity for ThisThread {
    type Mobility = StaysOnItsThread;

    fn owner_id(&self, client: ClientId) -> OwnerId {
        this_thread(client)
    }
}

/// Makes a type `!Send`, and nothing else, without unsafe code.
#[derive(Debug)]
pub struct StaysOnItsThread(
    PhantomData<
        dyn BoundToItsThread_in_a_task_use_to_async_else_an_Owner + Sync + Unpin + UnwindSafe + RefUnwindSafe,
    >,
);

/// Never implemented. The compiler's error begins with this name when a guard or request is sent to another thread.
#[allow(
    non_camel_case_types,
    reason = "the compiler shows it in place of an explanation, which has names of this crate"
)]
trait BoundToItsThread_in_a_task_use_to_async_else_an_Owner {}

/// An identity that is not a thread, for [`Lock::owned_by`](crate::Lock::owned_by): its guards and requests may move
/// between threads. Made by [`Client::new_owner`](crate::Client::new_owner), and good for that client only. Clones are
/// one owner.
#[derive(Clone, Debug)]
pub struct Owner(OwnerId);

impl Owner {
    pub(crate) fn new(client: ClientId) -> Owner {
        Owner(OwnerId::of(client, next_number()))
    }

    /// The id as it stands at the server.
    pub fn id(&self) -> &OwnerId {
        &self.0
    }
}

impl Ownership for Owner {}

impl Identity for Owner {
    type Mobility = ();

    fn owner_id(&self, _: ClientId) -> OwnerId {
        self.0.clone()
    }
}

fn this_thread(client: ClientId) -> OwnerId {
    // Without a destructor, so that it can be used while a thread ends. Never reused, unlike the system's thread ids.
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    let number = match NUMBER.get() {
        0 => {
            let number = next_number();
            NUMBER.set(number);
            number
        }
        number => number,
    };
    // Spelled out once: most threads lock again and again with one client. While a thread ends the cache is already
    // gone, and the id is spelled out each time.
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
    static NEXT: AtomicU64 = AtomicU64::new(1); // 0 is a thread that has none yet
    NEXT.fetch_add(1, Ordering::Relaxed)
}
