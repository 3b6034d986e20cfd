//! How questions are answered: by flights and steps that callers share, or by those that the watchdog makes for itself.

use std::time::Instant;

use fairlock_core::LockName;
use fairlock_core::backend::BackendError;

use crate::answer::Answer;
use crate::combiner::{MOST_LOCKS, Part};
use crate::command::Command;
use crate::net::Failure;
use crate::question::{Question, Reply, tell};
use crate::store::Store;
use crate::{fast, step};

/// The answers to these questions, in their order.
pub(crate) fn ask<T: TryFrom<Answer, Error = Failure>>(
    store: &Store,
    questions: impl Iterator<Item = (Question, Reply)>,
    deadline: Instant,
) -> Vec<Result<T, BackendError>> {
    let (questions, replies): (Vec<_>, Vec<Reply>) = questions.unzip();
    answer(store, questions, deadline);
    replies.into_iter().map(|reply| reply.get()?).collect()
}

/// The answer to a command that no fast part can carry out.
pub(crate) fn ask_one<T: TryFrom<Answer, Error = Failure>>(
    store: &Store,
    lock: &LockName,
    command: Command,
) -> Result<T, BackendError> {
    let deadline = store.pool.deadline();
    let (question, reply) = Question::new(lock, deadline, None, command);
    answer(store, vec![question], deadline);
    reply.get()?
}

/// Answers the questions of one call.
pub(crate) fn answer(store: &Store, questions: Vec<Question>, deadline: Instant) {
    store.combiner.operation(questions, deadline, |questions, part| match part {
        Part::Fast => fast::make(store, questions, false),
        Part::Step { waits } => step::make(store, questions, waits, false),
    });
}

/// Answers the watchdog's questions on the watchdog's own connection, and waits neither for a turn nor for a row. A question whose row
/// others have locked gets that as its answer.
pub(crate) fn answer_what_is_free(store: &Store, questions: Vec<Question>) {
    let mut left = fast::make(store, questions, true);
    while !left.is_empty() {
        let rest = left.split_off(left.len().min(MOST_LOCKS));
        tell(step::make(store, left, None, true), &Err(Failure::blocked()));
        left = rest;
    }
}
