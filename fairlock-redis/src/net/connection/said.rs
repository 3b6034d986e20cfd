//! What a server said, and what of it may be shown.

use std::fmt;
use std::ops::Deref;

/// A server's words. `Debug` and `Display` hide secrets. The rest of the code reads the words unchanged: a password may well be a
/// word that the code looks for.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Said {
    said: String,
    shown: Option<String>,
}

impl Said {
    pub(super) fn new(said: String, shown: String) -> Said {
        let shown = Some(shown).filter(|shown| *shown != said);
        Said { said, shown }
    }
}

impl From<&str> for Said {
    fn from(said: &str) -> Said {
        Said { said: said.to_owned(), shown: None }
    }
}

impl Deref for Said {
    type Target = str;

    fn deref(&self) -> &str {
        &self.said
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown.as_ref().unwrap_or(&self.said))
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.shown.as_ref().unwrap_or(&self.said), f)
    }
}
