//! Shows something once, or again and again.

use std::io::{IsTerminal, stdout};
use std::thread;
use std::time::Duration;

use crate::exit::{Exit, Failure};
use crate::report::{Reader, print};

/// Moves the cursor to the first line and column, and clears everything below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Writes what `look` returns: once, or once every interval until that fails or nobody reads it.
pub(crate) fn watch(
    every: Option<Duration>,
    mut look: impl FnMut() -> Result<String, Failure>,
) -> Result<Exit, Failure> {
    let clear = if every.is_some() && stdout().is_terminal() { CLEAR } else { "" };
    loop {
        let reader = print(&format!("{clear}{}", look()?))?;
        match every {
            Some(pause) if reader == Reader::There => thread::sleep(pause.max(Duration::from_millis(100))),
            _ => return Ok(Exit::Done),
        }
    }
}
