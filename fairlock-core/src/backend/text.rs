//! What is said of a failure or a check, and the setting that this is about.

use std::fmt;
use std::ops::Deref;

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
