//! Shows something once, or again and again.

use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use crate::exit::{Exit, Failure};

/// Moves the cursor to the first line and column, and clears everything below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Writes what `look` returns: once, or once every interval until that fails or standard output is closed.
pub(crate) fn watch(
    every: Option<Duration>,
    mut look: impl FnMut() -> Result<String, Failure>,
) -> Result<Exit, Failure> {
    let clear = if every.is_some() && stdout().is_terminal() { CLEAR } else { "" };
    loop {
        let text = format!("{clear}{}", look()?);
        let mut out = stdout();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(Exit::Done);
        }
        match every {
            Some(pause) => std::thread::sleep(pause.max(Duration::from_millis(100))),
            None => return Ok(Exit::Done),
        }
    }
}
