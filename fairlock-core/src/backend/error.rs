//! The error of a backend that could not answer, and the text of a failure or a check with the setting that the text is about.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::ids::LockKind;

/// What a caller can do about a [`BackendError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// No answer, or none that can be used (busy, full, read-only, malformed): ask again. Whether the request was carried out is
    /// not known.
    Unavailable,
    /// The store answered that it takes no writes for now: it is full, or can't save its data. Nothing was begun. A new request
    /// fails at once, since such a state rarely passes in seconds. A waiter goes on as after `Unavailable`, to keep its place.
    Refused,
    /// A wrong password or user, or a missing right: asking again does not help.
    Denied,
    /// The store has something else under the lock's name.
    Corrupt,
    /// The name is in use for a lock of another kind. The message says both.
    Mismatch,
    /// The backend keeps no such locks; or a newer version of fairlock keeps the lock, in a layout that this version does not know
    /// (see [`BackendError::newer_layout`]). Nothing was changed.
    Unsupported,
    /// This store can't keep a lock of that name.
    InvalidName,
    /// An address or a setting that can't work.
    InvalidConfig,
}

impl BackendErrorKind {
    /// Whether the same question may be answered later although nobody changes anything.
    pub(crate) fn is_transient(self) -> bool {
        matches!(self, BackendErrorKind::Unavailable | BackendErrorKind::Refused)
    }
}

/// The error of a backend that could not answer. The message names the server and holds no secret.
#[derive(Clone, Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    message: Arc<str>,
    setting: Option<&'static str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    is_unsent: bool,
}

impl BackendError {
    /// An error of this kind; `message` must hold no password.
    pub fn new(kind: BackendErrorKind, message: impl Into<Text>) -> Self {
        let message: Text = message.into();
        BackendError {
            kind,
            message: Arc::from(&*message),
            setting: message.setting(),
            source: None,
            is_unsent: false,
        }
    }

    /// The error for a name that is in use with `found` units, and was asked for as another kind.
    pub fn mismatch(found: u32, asked: LockKind) -> Self {
        let of_units = |units| match units {
            1 => "an exclusive lock".to_owned(),
            u32::MAX => "a read-write lock".to_owned(),
            permits => format!("a semaphore of {permits} permits"),
        };
        let (is, message) = (
            of_units(found),
            match asked {
                LockKind::Semaphore { permits: 1 } => {
                    "you asked for a semaphore of 1 permit: use another name".to_owned()
                }
                kind => format!("you asked for {}: use another name", of_units(kind.capacity())),
            },
        );
        BackendError::new(BackendErrorKind::Mismatch, format!("it is {is}, and {message}"))
    }

    /// The error for something that is stored in layout `found` of a later version, where this version knows the layouts up to `known`.
    /// Nothing was changed.
    pub fn newer_layout(found: impl fmt::Display, known: impl fmt::Display) -> Self {
        let message = format!(
            "it has layout {found}, and this version of fairlock knows layouts up to {known}: use a newer fairlock here"
        );
        BackendError::new(BackendErrorKind::Unsupported, message)
    }

    /// Names the setting that the message is about, if it is some: a method of the builder of this backend. The message itself does not name
    /// the setting.
    ///
    /// ```
    /// # use fairlock_core::backend::{BackendError, BackendErrorKind};
    /// let error = BackendError::new(BackendErrorKind::Unavailable, "no answer within 1s").about_setting("connect_timeout");
    /// assert_eq!(error.to_string(), "no answer within 1s (connect_timeout)");
    /// ```
    #[must_use]
    pub fn about_setting(mut self, setting: impl Into<Option<&'static str>>) -> Self {
        self.setting = setting.into();
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(error.into()));
        self
    }

    /// Says that the request was never sent: no server has it or will ever get it, by any attempt of this call. Then core has nothing
    /// to withdraw. In doubt, leave it out.
    ///
    /// ```
    /// # use fairlock_core::backend::{BackendError, BackendErrorKind};
    /// let error = BackendError::new(BackendErrorKind::Unavailable, "connection refused").unsent();
    /// assert!(error.is_unsent());
    /// ```
    #[must_use]
    pub fn unsent(self) -> Self {
        BackendError { is_unsent: true, ..self }
    }

    /// Takes [`unsent`](BackendError::unsent) back: an earlier part of the same call was sent.
    #[must_use]
    pub fn maybe_sent(self) -> Self {
        BackendError { is_unsent: false, ..self }
    }

    /// Whether the request was never sent.
    pub fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// The error for a request that the store has answered before: a right that is denied may come back, as while rights are changed.
    pub(crate) fn after_an_answer(self) -> Self {
        match self.kind {
            BackendErrorKind::Denied => BackendError { kind: BackendErrorKind::Unavailable, ..self },
            _ => self,
        }
    }

    /// The error for an answer that does not fit its question.
    pub(crate) fn senseless() -> Self {
        BackendError::new(BackendErrorKind::Unavailable, "the answer makes no sense")
    }

    /// What a caller can do about this error.
    pub fn kind(&self) -> BackendErrorKind {
        self.kind
    }

    /// The setting that the message is about.
    pub fn setting(&self) -> Option<&'static str> {
        self.setting
    }

    /// The message, without the setting.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, &self.message, self.setting)
    }
}

impl StdError for BackendError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Words, and the setting of a builder that they are about: `no answer within 1s (connect_timeout)`. The words don't name the setting, so
/// that a program with other names for its settings can say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    words: String,
    setting: Option<&'static str>,
}

impl Text {
    /// The text with this setting, if it is some: the name of the builder's method.
    #[must_use]
    pub fn about_setting(self, setting: impl Into<Option<&'static str>>) -> Text {
        Text { setting: setting.into().or(self.setting), ..self }
    }

    /// Other words, about the same setting.
    #[must_use]
    pub fn reworded(self, words: impl FnOnce(&str) -> String) -> Text {
        Text { words: words(&self.words), ..self }
    }

    /// The setting.
    pub fn setting(&self) -> Option<&'static str> {
        self.setting
    }
}

/// The words.
impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.words
    }
}

/// The words, and the setting in parentheses.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, &self.words, self.setting)
    }
}

impl From<String> for Text {
    fn from(words: String) -> Text {
        Text { words, setting: None }
    }
}

impl From<&str> for Text {
    fn from(words: &str) -> Text {
        words.to_owned().into()
    }
}

/// What a backend said, with the setting.
impl From<&super::BackendError> for Text {
    fn from(error: &super::BackendError) -> Text {
        Text::from(error.message()).about_setting(error.setting())
    }
}

/// The words, and behind them the setting.
pub(crate) fn write_text(
    f: &mut fmt::Formatter<'_>,
    words: &str,
    setting: Option<&'static str>,
) -> fmt::Result {
    f.write_str(words)?;
    setting.map_or(Ok(()), |setting| write!(f, " ({setting})"))
}
