//! The error of a backend that could not answer.

use std::error::Error as StdError;
use std::fmt;
use std::iter;
use std::sync::Arc;

/// What a caller can do about a [`BackendError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// No answer, or none that can be used (busy, full, read-only, malformed): ask again. Whether the request was carried out is
    /// not known.
    Unavailable,
    /// A wrong password or user, or a missing right: asking again does not help.
    Denied,
    /// The store has something else under the lock's name.
    Corrupt,
    /// The name is in use for a lock of another kind, or with another number of permits. The message says both.
    Mismatch,
    /// This store can't keep a lock of that name.
    InvalidName,
    /// An address or a setting that can't work.
    InvalidConfig,
}

/// The error of a backend that could not answer. The message names the server and holds no secret.
#[derive(Clone, Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl BackendError {
    /// An error of this kind; `message` must hold no password.
    pub fn new(kind: BackendErrorKind, message: impl Into<String>) -> Self {
        BackendError { kind, message: Arc::from(message.into()), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(error.into()));
        self
    }

    /// The same, with more to its message.
    pub(crate) fn and(self, more: &str) -> Self {
        BackendError { message: format!("{}{more}", self.message).into(), ..self }
    }

    /// For an answer that is none to its question.
    pub(crate) fn senseless() -> Self {
        BackendError::new(BackendErrorKind::Unavailable, "the answer makes no sense")
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> BackendErrorKind {
        self.kind
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// What came of a question.
pub(crate) type Answer<A> = Result<A, BackendError>;

/// The answers, and an error for each question that the backend has left out, without end.
pub(crate) fn or_missing<A>(answers: Vec<Answer<A>>) -> impl Iterator<Item = Answer<A>> {
    let missing = || Err(BackendError::new(BackendErrorKind::Unavailable, "no answer for this item"));
    answers.into_iter().chain(iter::repeat_with(missing))
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for BackendError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
