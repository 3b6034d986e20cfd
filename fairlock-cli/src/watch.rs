//! Shows something once, or again and again: on a terminal as a screen, elsewhere one look after another.

use std::io::{IsTerminal, stdout};
use std::thread;
use std::time::Duration;

use crate::exit::{Exit, Failure};
use crate::report::{Reader, print};
use crate::screen::{self, Picture};

/// Writes what `look` returns: once, or once every interval until that fails or nobody reads it. `picture`: for a screen, if it is not
/// to be JSON.
pub(crate) fn watch<T>(
    every: Option<Duration>,
    mut look: impl FnMut() -> Result<T, Failure>,
    text: impl Fn(&T) -> String,
    picture: Option<impl Fn(&T) -> Picture>,
) -> Result<Exit, Failure> {
    let every = every.map(|every| every.max(Duration::from_millis(100)));
    match (every, picture) {
        (Some(every), Some(picture)) if stdout().is_terminal() => {
            return screen::show(every, || look().map(|seen| picture(&seen)));
        }
        _ => {}
    }
    loop {
        let reader = print(&text(&look()?))?;
        match every {
            Some(pause) if reader == Reader::There => thread::sleep(pause),
            _ => return Ok(Exit::Done),
        }
    }
}
