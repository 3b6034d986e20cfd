//! Where a caller waits while others have the connections: for its answers, or for a lane of its own.

use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use redis::Value;

use super::Failure;
use super::lane::Lane;

/// One answer for each command of a [`Work`], in order.
pub(super) type Answers = Vec<Result<Value, Failure>>;

/// What one caller sends in one go.
pub(super) struct Work {
    /// Commands as they go over the wire, one behind the other.
    pub(super) packed: Vec<u8>,
    pub(super) commands: usize,
}

impl Work {
    /// The same failure for each command.
    pub(super) fn failed(&self, failure: &Failure) -> Answers {
        vec![Err(failure.clone()); self.commands]
    }
}

/// The meeting point of a caller that waits and the callers that have lanes.
pub(super) struct Slot {
    pub(super) work: Work,
    stage: Mutex<Stage>,
    changed: Condvar,
}

enum Stage {
    /// In the queue, or taken out of it by a caller that sends it along with its own work.
    Waiting,
    /// The lane is his.
    Leads(Lane),
    Answered(Answers),
    /// The caller has gone away.
    Gone,
}

/// How a wait ended.
pub(super) enum Met {
    Lead(Lane),
    Answered(Answers),
    TimeOut,
}

impl Slot {
    pub(super) fn new(work: Work) -> Slot {
        Slot { work, stage: Mutex::new(Stage::Waiting), changed: Condvar::new() }
    }

    /// Waits until something was decided.
    pub(super) fn wait(&self, until: Instant) -> Met {
        let mut stage = self.stage.lock();
        while matches!(*stage, Stage::Waiting) && !self.changed.wait_until(&mut stage, until).timed_out() {}
        Slot::taken(stage, Stage::Waiting)
    }

    /// The last look of a caller that goes away. What is decided after it finds nobody: decided under the same
    /// mutex, an answer or a lane is either found here or refused to the giver, and never lost between the two.
    pub(super) fn leave(&self) -> Met {
        Slot::taken(self.stage.lock(), Stage::Gone)
    }

    fn taken(mut stage: MutexGuard<'_, Stage>, undecided: Stage) -> Met {
        match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Leads(lane) => Met::Lead(lane),
            Stage::Answered(answers) => Met::Answered(answers),
            Stage::Waiting => {
                *stage = undecided;
                Met::TimeOut
            }
            Stage::Gone => Met::TimeOut,
        }
    }

    pub(super) fn answer(&self, answers: Answers) {
        let mut stage = self.stage.lock();
        if matches!(*stage, Stage::Waiting) {
            *stage = Stage::Answered(answers);
            drop(stage);
            self.changed.notify_one();
        }
    }

    /// Makes the waiting caller the leader of this lane; gives the lane back if he has gone.
    pub(super) fn offer(&self, lane: Lane) -> Option<Lane> {
        let mut stage = self.stage.lock();
        if !matches!(*stage, Stage::Waiting) {
            return Some(lane);
        }
        *stage = Stage::Leads(lane);
        drop(stage);
        self.changed.notify_one();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        Slot::new(Work { packed: Vec::new(), commands: 2 })
    }

    #[test]
    fn a_lane_offered_to_a_caller_that_has_gone_comes_back() {
        let slot = slot();
        assert!(matches!(slot.leave(), Met::TimeOut));
        assert!(slot.offer(Lane::new()).is_some());
        slot.answer(Vec::new());
        assert!(matches!(slot.wait(Instant::now()), Met::TimeOut));
    }

    #[test]
    fn what_was_decided_before_the_caller_goes_is_his() {
        let slot = slot();
        assert!(matches!(slot.wait(Instant::now()), Met::TimeOut));
        assert!(slot.offer(Lane::new()).is_none());
        assert!(slot.offer(Lane::new()).is_some());
        assert!(matches!(slot.leave(), Met::Lead(_)));
    }

    #[test]
    fn an_answer_wakes_the_caller() {
        let slot = slot();
        std::thread::scope(|scope| {
            scope.spawn(|| slot.answer(slot.work.failed(&Failure::NotSent("x".to_owned()))));
            let until = Instant::now() + std::time::Duration::from_secs(10);
            assert!(matches!(slot.wait(until), Met::Answered(answers) if answers.len() == 2));
        });
    }
}
