//! How questions are answered: by steps that callers share, or by those that the watchdog makes for itself.

use std::time::Instant;

use fairlock_core::LockName;
use fairlock_core::backend::BackendError;

use crate::answer::Answer;
use crate::command::Command;
use crate::net::Failure;
use crate::question::{Question, Reply, tell};
use crate::step;
use crate::store::Store;

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

/// The answer to a command.
pub(crate) fn ask_one<T: TryFrom<Answer, Error = Failure>>(
    store: &Store,
    lock: &LockName,
    command: Command,
) -> Result<T, BackendError> {
    let deadline = store.pool.deadline();
    let (question, reply) = Question::new(lock, deadline, command);
    answer(store, vec![question], deadline);
    reply.get()?
}

/// Answers the questions of one call.
pub(crate) fn answer(store: &Store, questions: Vec<Question>, deadline: Instant) {
    store
        .combiner
        .operation(questions, deadline, |questions, waits| step::make(store, questions, waits, false));
}

/// Answers the watchdog's questions on the watchdog's own connection, and waits neither for a turn nor for a row. A question whose row
/// others have locked, or write again and again, gets that as its answer.
pub(crate) fn answer_what_is_free(store: &Store, questions: Vec<Question>) {
    tell(step::make(store, questions, None, true), &Err(Failure::blocked()));
}
