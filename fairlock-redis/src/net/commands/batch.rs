//! A batch: the work of a leader and of waiting callers, sent together and answered one by one.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;

use redis::Value;

use super::waiting_call::{Answers, WaitingCall, Work};
use crate::net::connection::Failure;

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

    fn work(commands: usize) -> Work<'static> {
        Work { packed: &b"xxxxxx"[..commands], commands, knows: 0 }
    }

    fn answers_of(call: &WaitingCall) -> Vec<Option<i64>> {
        use crate::net::commands::waiting_call::CallOutcome;
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
