//! Faults on demand: tests make calls fail, replies and wake-ups get lost, and clients disappear.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::{ClientId, LockName};

use crate::backend::Shared;

/// An operation of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// [`acquire`](fairlock_core::backend::Backend::acquire).
    Acquire,
    /// [`set_hold_count`](fairlock_core::backend::Backend::set_hold_count).
    SetHoldCount,
    /// [`release`](fairlock_core::backend::Backend::release).
    Release,
    /// [`renew`](fairlock_core::backend::Backend::renew); a call fails as a whole, all its items.
    Renew,
    /// [`withdraw`](fairlock_core::backend::Backend::withdraw) and [`kick`](fairlock_core::backend::Backend::kick).
    Withdraw,
    /// [`force_release`](fairlock_core::backend::Backend::force_release).
    ForceRelease,
    /// [`inspect`](fairlock_core::backend::Backend::inspect).
    Inspect,
    /// [`subscribe`](fairlock_core::backend::Backend::subscribe).
    Subscribe,
}

/// Injects faults into a [`MemoryBackend`](crate::MemoryBackend), from
/// [`MemoryBackend::faults`](crate::MemoryBackend::faults). Clones share everything.
///
/// Plans add up. A call that is delayed can fail or lose its reply as well; one that fails has no reply to lose,
/// so a [`lose_reply`](Faults::lose_reply) waits for the first call that is carried out.
#[derive(Clone)]
pub struct Faults(Arc<Shared>);

impl Faults {
    pub(crate) fn of(shared: Arc<Shared>) -> Faults {
        Faults(shared)
    }

    /// The next calls of this operation, so many, fail with `Unavailable` and are not carried out.
    pub fn fail_next(&self, operation: Operation, times: usize) {
        self.plan(operation, Fault::Fail, times);
    }

    /// The next calls of this operation, so many, are carried out, but their callers get `Unavailable`.
    pub fn lose_reply(&self, operation: Operation, times: usize) {
        self.plan(operation, Fault::LoseReply, times);
    }

    /// The next calls of this operation, so many, sleep so long on the backend's clock before they are carried
    /// out.
    pub fn delay_next(&self, operation: Operation, times: usize, by: Duration) {
        self.plan(operation, Fault::Delay(by), times);
    }

    /// The next wake-ups, so many and of any kind, are not delivered.
    pub fn lose_wake_ups(&self, times: usize) {
        self.0.state.lock().store.wake_ups.lose_next(times);
    }

    /// The hold of this lock vanishes, as if the server had lost it: nobody is told, and the line stays. The next
    /// who looks finds the lock free.
    pub fn lose_hold(&self, name: &str) {
        // What is no name names no lock, so there is no hold to lose.
        let Ok(name) = LockName::new(name) else { return };
        let mut state = self.0.state.lock();
        let now = self.0.now();
        state.store.lose_hold(now, &name);
    }

    /// The places of all who wait for this lock vanish, as if the server had lost them: nobody is told. Those who live are
    /// back where they stood when their clients speak for them, within a third of their places' time.
    pub fn lose_line(&self, name: &str) {
        let Ok(name) = LockName::new(name) else { return };
        let mut state = self.0.state.lock();
        let now = self.0.now();
        state.store.lose_line(now, &name);
    }

    /// Every call of this client fails with `Unavailable` and no wake-up reaches it, until it is brought back. For
    /// the server nobody listens there. (`force_release` and `inspect` don't say who calls: they go on.)
    pub fn cut_off(&self, client: ClientId) {
        self.0.state.lock().store.wake_ups.cut_off(&client.to_string());
    }

    /// Ends [`cut_off`](Faults::cut_off); the client is told that there was a gap.
    pub fn bring_back(&self, client: ClientId) {
        self.0
            .then_deliver(self.0.state.lock(), |state| state.store.wake_ups.bring_back(&client.to_string()));
    }

    fn plan(&self, operation: Operation, fault: Fault, times: usize) {
        if times > 0 {
            self.0.state.lock().plans.0.push(Plan { operation, fault, times });
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faults")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Fail,
    LoseReply,
    Delay(Duration),
}

struct Plan {
    operation: Operation,
    fault: Fault,
    times: usize,
}

/// What is planned, oldest first.
#[derive(Default)]
pub(crate) struct Plans(Vec<Plan>);

/// What becomes of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) delay: Duration,
    pub(crate) fails: bool,
    pub(crate) loses_reply: bool,
}

impl Plans {
    /// Draws the fate of a call of this operation.
    pub(crate) fn draw(&mut self, operation: Operation) -> Fate {
        let mut fate = Fate::default();
        if self.0.is_empty() {
            return fate;
        }
        if let Some(Fault::Delay(by)) = self.use_up(operation, |fault| matches!(fault, Fault::Delay(_))) {
            fate.delay = by;
        }
        fate.fails = self.use_up(operation, |fault| fault == Fault::Fail).is_some();
        fate.loses_reply = !fate.fails && self.use_up(operation, |fault| fault == Fault::LoseReply).is_some();
        fate
    }

    fn use_up(&mut self, operation: Operation, is_wanted: impl Fn(Fault) -> bool) -> Option<Fault> {
        let at = self.0.iter().position(|plan| plan.operation == operation && is_wanted(plan.fault))?;
        let plan = self.0.get_mut(at)?;
        plan.times -= 1;
        let fault = plan.fault;
        if plan.times == 0 {
            self.0.remove(at);
        }
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_fails_leaves_the_lost_reply_for_the_next_one() {
        let second = Duration::from_secs(1);
        let mut plans = Plans::default();
        for (fault, times) in [(Fault::LoseReply, 1), (Fault::Fail, 1), (Fault::Delay(second), 2)] {
            plans.0.push(Plan { operation: Operation::Release, fault, times });
        }
        assert_eq!(plans.draw(Operation::Acquire), Fate::default());
        assert_eq!(plans.draw(Operation::Release), Fate { delay: second, fails: true, loses_reply: false });
        assert_eq!(plans.draw(Operation::Release), Fate { delay: second, fails: false, loses_reply: true });
        assert_eq!(plans.draw(Operation::Release), Fate::default());
        assert!(plans.0.is_empty());
    }
}
