//! A refusal that is believed for a minute: a right that is missing now may come back.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What was refused is not asked for again within this time: the server notes each refusal (ACL LOG).
const BELIEVED: Duration = Duration::from_secs(60);

/// The last refusal of one question.
#[derive(Debug, Default)]
pub(crate) struct Refusal(Mutex<Option<Instant>>);

impl Refusal {
    /// The server has refused just now.
    pub(crate) fn heard(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// Whether the server refused within the last minute.
    pub(crate) fn is_believed(&self) -> bool {
        self.0.lock().is_some_and(|at| at.elapsed() < BELIEVED)
    }

    /// Whether the refusal is no longer believed. True for one caller, who asks again: the others believe it until there is an answer.
    pub(crate) fn is_doubted(&self) -> bool {
        let mut at = self.0.lock();
        let is_old = at.is_some_and(|at| at.elapsed() >= BELIEVED);
        if is_old {
            *at = Some(Instant::now());
        }
        is_old
    }

    /// For tests: as if a minute had passed.
    #[cfg(test)]
    pub(crate) fn grow_old(&self) {
        let mut at = self.0.lock();
        *at = at.and_then(|at| at.checked_sub(BELIEVED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_believed_for_a_minute_and_doubted_once() {
        let refusal = Refusal::default();
        assert!(!refusal.is_believed() && !refusal.is_doubted());
        refusal.heard();
        assert!(refusal.is_believed() && !refusal.is_doubted());
        refusal.grow_old();
        assert!(!refusal.is_believed() && refusal.is_doubted());
        assert!(refusal.is_believed() && !refusal.is_doubted());
    }
}
