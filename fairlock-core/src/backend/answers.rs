//! The answers to several questions that were asked in one call.

use std::iter;

use super::error::{BackendError, BackendErrorKind};

/// The answer to a question, or the error.
pub(crate) type Answer<A> = Result<A, BackendError>;

/// The answer to a question that was asked alone.
///
/// ```
/// # use std::time::Duration;
/// # use fairlock_core::{LockKind, LockName, OwnerId};
/// use fairlock_core::backend::{Acquire, Acquired, Backend, LockId, Place, RequestId, only};
///
/// # let store = fairlock::MemoryBackend::new();
/// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
/// # let owner = OwnerId::new("ann:1");
/// let place = Place::new(&lock, &owner, RequestId::new(1));
/// let answer = only(store.acquire(&[Acquire::new(place, Duration::from_secs(30))]))?;
/// assert!(matches!(answer, Acquired::Granted { .. }));
/// # Ok::<(), fairlock_core::Error>(())
/// ```
///
/// # Errors
/// The error of the answer; `Unavailable` without an answer.
pub fn only<A>(answers: Vec<Result<A, BackendError>>) -> Result<A, BackendError> {
    answers.into_iter().next().unwrap_or_else(missing)
}

/// Answers one question after the other, for a store that has no step for several. After an answer that is
/// [`Unavailable`](BackendErrorKind::Unavailable) it asks no more, since each call might wait as long: the rest get the same answer.
pub fn one_by_one<Q, A>(
    questions: &[Q],
    ask: impl Fn(&Q) -> Result<A, BackendError>,
) -> Vec<Result<A, BackendError>> {
    let mut unanswered = None;
    let answer = |question| {
        let answer = unanswered.clone().map_or_else(|| ask(question), Err);
        unanswered =
            answer.as_ref().err().filter(|error| error.kind() == BackendErrorKind::Unavailable).cloned();
        answer
    };
    questions.iter().map(answer).collect()
}

/// The answers, and then errors without end: one for each question that the backend has left out.
pub(crate) fn or_missing<A>(answers: Vec<Answer<A>>) -> impl Iterator<Item = Answer<A>> {
    answers.into_iter().chain(iter::repeat_with(missing))
}

fn missing<A>() -> Answer<A> {
    Err(BackendError::new(BackendErrorKind::Unavailable, "no answer for this item"))
}
