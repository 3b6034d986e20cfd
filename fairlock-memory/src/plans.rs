//! The faults that tests have planned, and which of them the next call suffers.

use std::time::Duration;

/// An operation of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// [`acquire`](fairlock_core::backend::Backend::acquire).
    Acquire,
    /// [`release`](fairlock_core::backend::Backend::release).
    Release,
    /// [`adopt`](fairlock_core::backend::Backend::adopt).
    Adopt,
    /// [`renew`](fairlock_core::backend::Backend::renew); a call fails as a whole, all its items.
    Renew,
    /// [`withdraw`](fairlock_core::backend::Backend::withdraw).
    Withdraw,
    /// [`force_release`](fairlock_core::backend::Backend::force_release) and
    /// [`take_hold`](fairlock_core::backend::Backend::take_hold).
    ForceRelease,
    /// [`inspect`](fairlock_core::backend::Backend::inspect).
    Inspect,
    /// [`subscribe`](fairlock_core::backend::Backend::subscribe).
    Subscribe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Fail,
    LoseReply,
    Delay(Duration),
}

struct Plan {
    operation: Operation,
    fault: Fault,
    times: usize,
}

/// The planned faults, oldest first.
#[derive(Default)]
pub(crate) struct Plans(Vec<Plan>);

/// The faults of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) delay: Duration,
    pub(crate) fails: bool,
    pub(crate) loses_reply: bool,
}

impl Plans {
    /// This many of the next calls of this operation suffer this fault.
    pub(crate) fn add(&mut self, operation: Operation, fault: Fault, times: usize) {
        if times > 0 {
            self.0.push(Plan { operation, fault, times });
        }
    }

    /// Whether any call is to sleep.
    pub(crate) fn has_delays(&self) -> bool {
        self.0.iter().any(|plan| matches!(plan.fault, Fault::Delay(_)))
    }

    /// Uses up the faults that are next for a call of this operation.
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
            plans.add(Operation::Release, fault, times);
        }
        assert_eq!(plans.draw(Operation::Acquire), Fate::default());
        assert_eq!(plans.draw(Operation::Release), Fate { delay: second, fails: true, loses_reply: false });
        assert_eq!(plans.draw(Operation::Release), Fate { delay: second, fails: false, loses_reply: true });
        assert_eq!(plans.draw(Operation::Release), Fate::default());
        plans.add(Operation::Release, Fault::Fail, 0);
        assert_eq!(plans.draw(Operation::Release), Fate::default(), "not at all");
        assert!(plans.0.is_empty());
    }
}
