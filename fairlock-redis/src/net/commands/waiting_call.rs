//! A call that waits for a connection: its caller waits for the answers, or for its own connection.

use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use redis::Value;
use smallvec::{SmallVec, smallvec};

use super::command_connection::CommandConnection;
use crate::net::connection::Failure;

/// One answer for each command of a [`Work`], in order. A single answer needs no allocation.
pub(super) type Answers = SmallVec<[Result<Value, Failure>; 1]>;

/// What one caller sends in one go.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    /// The commands as bytes for the wire, one after the other.
    pub(super) packed: &'a [u8],
    pub(super) commands: usize,
    /// The last fault that the commands know of: a connection with a later one does not carry them.
    pub(super) knows: u64,
}

impl Work<'_> {
    /// The same failure for each command.
    pub(super) fn failed(self, failure: &Failure) -> Answers {
        smallvec![Err(failure.clone()); self.commands]
    }
}

/// Where a waiting caller and the callers with connections meet.
pub(super) struct WaitingCall {
    packed: Vec<u8>,
    commands: usize,
    knows: u64,
    stage: Mutex<Stage>,
    changed: Condvar,
}

enum Stage {
    /// Nobody has taken the call; or a leader has, which sends the call with its own work.
    Waiting,
    /// The caller has a connection and leads.
    Leads(CommandConnection),
    Answered(Answers),
    /// A fault was noticed since the commands were packed: the caller packs them anew.
    Outdated,
    /// The caller has left.
    Gone,
}

/// How a wait ended.
pub(super) enum CallOutcome {
    Lead(CommandConnection),
    Answered(Answers),
    Outdated,
    TimedOut,
}

impl WaitingCall {
    /// Copies the work: another thread sends the call, perhaps after the caller has left.
    pub(super) fn new(work: Work<'_>) -> WaitingCall {
        let Work { packed, commands, knows } = work;
        let (stage, changed) = (Mutex::new(Stage::Waiting), Condvar::new());
        WaitingCall { packed: packed.to_vec(), commands, knows, stage, changed }
    }

    pub(super) fn work(&self) -> Work<'_> {
        Work { packed: &self.packed, commands: self.commands, knows: self.knows }
    }

    /// Waits for an answer or a connection.
    pub(super) fn wait(&self, until: Instant) -> CallOutcome {
        let mut stage = self.stage.lock();
        while matches!(*stage, Stage::Waiting) && !self.changed.wait_until(&mut stage, until).timed_out() {}
        WaitingCall::taken(stage, Stage::Waiting)
    }

    /// The last check of a caller that leaves. This check and each decision hold the same mutex: an answer or a connection is either
    /// found here, or refused to its giver, and never lost in between.
    pub(super) fn leave(&self) -> CallOutcome {
        WaitingCall::taken(self.stage.lock(), Stage::Gone)
    }

    fn taken(mut stage: MutexGuard<'_, Stage>, undecided: Stage) -> CallOutcome {
        match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Leads(connection) => CallOutcome::Lead(connection),
            Stage::Answered(answers) => CallOutcome::Answered(answers),
            Stage::Outdated => CallOutcome::Outdated,
            Stage::Waiting => {
                *stage = undecided;
                CallOutcome::TimedOut
            }
            Stage::Gone => CallOutcome::TimedOut,
        }
    }

    pub(super) fn answer(&self, answers: Answers) {
        self.decide(Stage::Answered(answers));
    }

    pub(super) fn outdated(&self) {
        self.decide(Stage::Outdated);
    }

    fn decide(&self, decided: Stage) {
        let mut stage = self.stage.lock();
        if matches!(*stage, Stage::Waiting) {
            *stage = decided;
            drop(stage);
            self.changed.notify_one();
        }
    }

    /// Makes the waiting caller the leader of this connection; returns the connection if the caller has left.
    pub(super) fn offer(&self, connection: CommandConnection) -> Option<CommandConnection> {
        let mut stage = self.stage.lock();
        if !matches!(*stage, Stage::Waiting) {
            return Some(connection);
        }
        *stage = Stage::Leads(connection);
        drop(stage);
        self.changed.notify_one();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> WaitingCall {
        WaitingCall::new(Work { packed: &[], commands: 2, knows: 0 })
    }

    #[test]
    fn a_connection_offered_to_a_caller_that_has_left_comes_back() {
        let call = call();
        assert!(matches!(call.leave(), CallOutcome::TimedOut));
        assert!(call.offer(CommandConnection::new()).is_some());
        call.answer(Answers::new());
        assert!(matches!(call.wait(Instant::now()), CallOutcome::TimedOut));
    }

    #[test]
    fn what_was_decided_before_the_caller_leaves_is_its_own() {
        let call = call();
        assert!(matches!(call.wait(Instant::now()), CallOutcome::TimedOut));
        assert!(call.offer(CommandConnection::new()).is_none());
        assert!(call.offer(CommandConnection::new()).is_some());
        assert!(matches!(call.leave(), CallOutcome::Lead(_)));
    }

    #[test]
    fn an_answer_wakes_the_caller() {
        let call = call();
        std::thread::scope(|scope| {
            scope.spawn(|| call.answer(call.work().failed(&Failure::NotSent("x".into()))));
            let until = Instant::now() + std::time::Duration::from_secs(10);
            assert!(matches!(call.wait(until), CallOutcome::Answered(answers) if answers.len() == 2));
        });
    }
}
