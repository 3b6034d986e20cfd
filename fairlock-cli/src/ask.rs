//! Asks the operator before a lock or a place is taken away.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use crate::exit::Failure;

/// Whether the operator agrees: by `--yes`, or at the terminal.
///
/// # Errors
/// Without `--yes` and without a terminal.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if !stdin().is_terminal() {
        return Err(Failure::ours(format!(
            "{question} Standard input is not a terminal: confirm with --yes"
        )));
    }
    let _ = write!(stderr(), "{question} [y/N] ");
    let _ = stderr().flush();
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer).map_err(|error| Failure::ours(format!("no answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
