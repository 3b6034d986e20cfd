//! What programs use: a client, its locks, guards and requests, and what operators call.

mod admin;
mod client;
mod guard;
mod hand_over;
mod kinds;
mod lock;
mod tasks;

pub use admin::{Admin, AsyncAdmin};
pub use client::{AsyncClient, Client, ClientBuilder, connecting};
pub use guard::{AllGuard, Guard, Hold, Owner, Ownership, ThisThread, TryLock};
pub use hand_over::HandOver;
pub use kinds::{AsyncRwLock, AsyncSemaphore, RwLock, Semaphore, UnlessCrowded, UnlessGranted};
pub use lock::{Lock, Request, Term};
pub use tasks::{AsyncGuard, AsyncHold, AsyncLock, LockFuture, TryLockFuture};

#[cfg(test)]
mod tests {
    use std::panic::{RefUnwindSafe, UnwindSafe};

    use super::*;

    /// The compiler says so, or this is not built.
    #[test]
    fn a_program_may_use_its_handles_after_a_panic_that_it_caught() {
        fn may<T: UnwindSafe + RefUnwindSafe>() {}
        fn may_all_of<O: Ownership>() {
            let _ = [may::<Lock<O>>, may::<RwLock<O>>, may::<Guard<O>>, may::<Request<O>>];
        }
        let _ = [may_all_of::<ThisThread>, may_all_of::<Owner>];
        let _ = [may::<Client>, may::<Semaphore>, may::<AllGuard>, may::<crate::CancelToken>];
        let _ = [may::<ClientBuilder>, may::<crate::Clock>, may::<crate::ManualClock>];
        let _ = [may::<AsyncClient>, may::<AsyncLock>, may::<AsyncGuard>];
    }

    /// As `tokio::spawn` wants it: the compiler says so, or this is not built.
    #[test]
    fn work_under_a_lock_is_a_future_that_borrows_no_handle() {
        fn spawn(_: impl Future<Output: Send> + Send + 'static) {}
        fn all(lock: &AsyncLock, permits: &AsyncSemaphore) {
            spawn(lock.with(async |hold| hold.token()));
            spawn(lock.try_with_for(std::time::Duration::ZERO, async |hold| hold.token()));
            spawn(permits.with(async |hold| hold.token()));
            spawn(permits.try_with(async |hold| hold.token()));
        }
        let _ = all;
    }
}
