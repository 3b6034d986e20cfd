//! Asks a person before something is taken away from somebody.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use crate::exit::Failure;

/// Whether to go on: `--yes` says so, or the person at the terminal.
///
/// # Errors
/// There is nobody to ask.
pub(crate) fn go_on(question: &str, yes: bool) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if !stdin().is_terminal() {
        return Err(Failure::ours(format!("{question} There is nobody to ask: say --yes")));
    }
    let _ = write!(stderr(), "{question} [y/N] ");
    let _ = stderr().flush();
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer).map_err(|error| Failure::ours(format!("no answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
