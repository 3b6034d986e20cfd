//! Which texts a database can hold, by its encoding.
//!
//! All of a session's texts are UTF-8, and the server converts them. The server refuses a text with a character that is not in
//! its encoding.

use std::borrow::Cow;

/// The encoding of a database. It never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Each text but those with a NUL.
    #[default]
    Utf8,
    /// The first 256 characters of Unicode.
    Latin1,
    /// What all encodings have. Others have more, and which characters that are is the server's knowledge.
    Ascii,
}

impl Encoding {
    /// By the server's name for it. SQL_ASCII converts nothing, so it holds what was sent.
    pub(super) fn of(name: &str) -> Encoding {
        match name {
            "UTF8" | "SQL_ASCII" => Encoding::Utf8,
            "LATIN1" => Encoding::Latin1,
            _ => Encoding::Ascii,
        }
    }

    /// Whether a column can have this text as it is.
    pub(crate) fn holds(self, text: &str) -> bool {
        !text.contains('\0') && text.chars().all(|c| self.has(c))
    }

    /// A text for people, with `?` for each character that the encoding may not have. A NUL stays.
    pub(crate) fn replaced(self, text: &str) -> Cow<'_, str> {
        if text.chars().all(|c| self.has(c)) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(text.chars().map(|c| if self.has(c) { c } else { '?' }).collect())
    }

    fn has(self, c: char) -> bool {
        match self {
            Encoding::Utf8 => true,
            Encoding::Latin1 => u32::from(c) < 0x100,
            Encoding::Ascii => c.is_ascii(),
        }
    }
}
