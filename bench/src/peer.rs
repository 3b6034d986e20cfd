//! What a workload needs from any lock.

use crate::Outcome;

/// A client of one library.
pub trait Peer: Sync {
    type Lock: Lock + Send + Sync;

    /// A handle, as a program makes one for each lock it uses.
    fn lock(&self, name: &str) -> Outcome<Self::Lock>;

    /// How many grants were found without a message, if the library counts them.
    fn polled(&self) -> Option<u64> {
        None
    }
}

pub trait Lock {
    /// Takes the lock, runs `held`, releases the lock.
    fn hold(&self, held: &mut dyn FnMut()) -> Outcome;

    /// Takes the lock and keeps it.
    fn keep(&self) -> Outcome;

    /// Finds that another owner has the lock.
    fn find_held(&self) -> Outcome {
        Err("this library is not asked for that".into())
    }
}
