//! A call that waits for a connection: its caller waits for the answers, or for a connection to lead with. And the batch in which a leader
//! sends its own work and the work of waiting callers; each caller gets an answer of its own.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
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

/// Sorts the replies, which come in the order of the commands. A drop gives the remaining followers a failure: no thread waits
/// for a leader that panicked.
pub(super) struct Batch<'a> {
    work: Work<'a>,
    own: Answers,
    followers: VecDeque<Arc<WaitingCall>>,
    /// The answers for the first follower so far.
    answers: Answers,
}

impl<'a> Batch<'a> {
    pub(super) fn new(work: Work<'a>, followers: VecDeque<Arc<WaitingCall>>) -> Batch<'a> {
        Batch { work, own: Answers::with_capacity(work.commands), followers, answers: Answers::new() }
    }

    /// A leader without followers does not copy its commands.
    pub(super) fn packed(&self) -> Cow<'a, [u8]> {
        if self.followers.is_empty() {
            return Cow::Borrowed(self.work.packed);
        }
        let all: Vec<&[u8]> = self.works().map(|work| work.packed).collect();
        Cow::Owned(all.concat())
    }

    pub(super) fn commands(&self) -> usize {
        self.works().map(|work| work.commands).sum()
    }

    fn works(&self) -> impl Iterator<Item = Work<'_>> {
        iter::once(self.work).chain(self.followers.iter().map(|call| call.work()))
    }

    /// Takes the next reply. A follower wakes with its last reply, while other followers' replies are still to come.
    pub(super) fn reply(&mut self, reply: Result<Value, Failure>) {
        if self.own.len() < self.work.commands {
            self.own.push(reply);
            return;
        }
        self.answers.push(reply);
        if self.followers.front().is_some_and(|call| call.work().commands == self.answers.len())
            && let Some(call) = self.followers.pop_front()
        {
            call.answer(std::mem::take(&mut self.answers));
        }
    }

    /// The leader's own answers, once all replies are there, or no more will come.
    pub(super) fn end(mut self, outcome: Result<(), Failure>) -> Answers {
        if let Err(failure) = outcome {
            self.own.resize(self.work.commands, Err(failure.clone()));
            self.fail_followers(&failure);
        }
        std::mem::take(&mut self.own)
    }

    fn fail_followers(&mut self, failure: &Failure) {
        for call in self.followers.drain(..) {
            // The first follower may have some of its answers.
            let mut answers = std::mem::take(&mut self.answers);
            answers.resize(call.work().commands, Err(failure.clone()));
            call.answer(answers);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if !self.followers.is_empty() {
            self.fail_followers(&Failure::Broken("the thread that sent it has panicked".into()));
        }
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

    fn work(commands: usize) -> Work<'static> {
        Work { packed: &b"xxxxxx"[..commands], commands, knows: 0 }
    }

    fn answers_of(call: &WaitingCall) -> Vec<Option<i64>> {
        use crate::net::commands::waiting::CallOutcome;
        let CallOutcome::Answered(answers) = call.wait(std::time::Instant::now()) else {
            panic!("no answer")
        };
        let number = |answer| match answer {
            Ok(Value::Int(number)) => Some(number),
            _ => None,
        };
        answers.into_iter().map(number).collect()
    }

    #[test]
    fn replies_go_to_their_callers_and_a_missing_one_is_a_failure() {
        let calls = [1, 3, 2].map(|commands| Arc::new(WaitingCall::new(work(commands))));
        let mut batch = Batch::new(work(2), VecDeque::from(calls.clone()));
        assert_eq!((batch.packed().len(), batch.commands()), (8, 8));
        (0..4).for_each(|number| batch.reply(Ok(Value::Int(number))));
        assert_eq!(answers_of(&calls[0]), [Some(2)]);
        let own = batch.end(Err(Failure::Broken("x".into())));
        assert_eq!(own.as_slice(), [Ok(Value::Int(0)), Ok(Value::Int(1))]);
        assert_eq!(answers_of(&calls[1]), [Some(3), None, None]);
        assert_eq!(answers_of(&calls[2]), [None, None], "the answers of another");
    }

    #[test]
    fn followers_of_a_leader_that_panics_get_a_failure() {
        let (own, other) = (work(1), Arc::new(WaitingCall::new(work(1))));
        let followers = VecDeque::from([Arc::clone(&other)]);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _batch = Batch::new(own, followers);
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(answers_of(&other), [None]);
    }
}
