//! What a server said, and what of it may be shown.

use std::fmt;
use std::ops::Deref;

/// A server's words. `Debug` and `Display` hide secrets. The rest of the code reads the words unchanged: a password may well be a
/// word that the code looks for.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerText {
    said: String,
    shown: Option<String>,
}

impl ServerText {
    pub(super) fn new(said: String, shown: String) -> ServerText {
        let shown = Some(shown).filter(|shown| *shown != said);
        ServerText { said, shown }
    }

    /// The server's words, and behind them words of ours.
    pub(super) fn and(self, more: &str) -> ServerText {
        ServerText { said: self.said + more, shown: self.shown.map(|shown| shown + more) }
    }
}

impl From<&str> for ServerText {
    fn from(said: &str) -> ServerText {
        ServerText { said: said.to_owned(), shown: None }
    }
}

impl Deref for ServerText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.said
    }
}

impl fmt::Display for ServerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown.as_ref().unwrap_or(&self.said))
    }
}

impl fmt::Debug for ServerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.shown.as_ref().unwrap_or(&self.said), f)
    }
}
