//! Ends waits from another thread.

use std::panic::RefUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::time::Raise;

/// Ends the waits of every handle from [`Lock::cancelled_by`](crate::Lock::cancelled_by). Clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    cancelled: AtomicBool,
    listeners: Mutex<Vec<Weak<dyn Raise>>>,
}

impl Cancel {
    /// Makes one that is not cancelled.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Ends all waits, those under way and all later ones, with [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn cancel(&self) {
        // The flag first: a wait that begins to listen after the list was taken reads the flag afterwards.
        self.0.cancelled.store(true, Ordering::SeqCst);
        let listeners = std::mem::take(&mut *self.0.listeners.lock());
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.raise());
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Raises the listener's signal at `cancel`, until the result is dropped.
    pub(crate) fn listen(&self, listener: &Arc<impl Raise + 'static>) -> Listening {
        let listener: Weak<dyn Raise> = Arc::downgrade(listener) as _;
        self.0.listeners.lock().push(Weak::clone(&listener));
        Listening { cancel: self.clone(), listener }
    }
}

pub(crate) struct Listening {
    cancel: Cancel,
    listener: Weak<dyn Raise>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listeners = self.cancel.0.listeners.lock();
        if let Some(at) = listeners.iter().position(|other| other.ptr_eq(&self.listener)) {
            listeners.swap_remove(at);
        }
    }
}

impl RefUnwindSafe for Inner {} // see `Shared`

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Waiting {
        is_raised: AtomicBool,
    }

    impl Raise for Waiting {
        fn raise(&self) {
            self.is_raised.store(true, Ordering::SeqCst);
        }
    }

    /// A wait that is over is told nothing, and leaves nothing behind.
    #[test]
    fn a_wait_that_is_over_is_told_nothing() {
        let cancel = Cancel::new();
        let waits = [(); 3].map(|()| Arc::new(Waiting::default()));
        let [one, two, three] = waits.each_ref().map(|wait| cancel.listen(wait));
        drop(two);
        assert_eq!(cancel.0.listeners.lock().len(), 2);
        cancel.cancel();
        assert_eq!(waits.map(|wait| wait.is_raised.load(Ordering::SeqCst)), [true, false, true]);
        drop((one, three));
        assert!(cancel.0.listeners.lock().is_empty());
    }
}
