//! Messages, logs and questions to the operator go to standard error, apart from the program's output; what a command was asked for goes to
//! standard output.

use std::io::{BufRead, ErrorKind, IsTerminal, Write, stderr, stdin, stdout};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::exit::Failure;

/// The field `version` of each object: another number where a field is taken away or means something else. New fields may come.
pub(crate) const JSON_VERSION: u8 = 1;

/// Whether somebody reads standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    /// As the first part of `fairlock ls | head`.
    Gone,
}

/// Writes all of this to standard output.
///
/// # Errors
/// If that can't be written, for instance to a full disk.
pub(crate) fn print(text: &str) -> Result<Reader, Failure> {
    printed(stdout().write_all(text.as_bytes()))
}

/// The same for what was written by others.
///
/// # Errors
/// As above.
pub(crate) fn printed(written: std::io::Result<()>) -> Result<Reader, Failure> {
    match written.and_then(|()| stdout().flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::ours(format!("standard output can't be written: {error}"))),
    }
}

/// One line on standard error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(stderr(), "fairlock: {text}"); // fails if standard error is closed
}

/// Shows the library's log: settings of the server that make locks unsafe, once `-v` grants and what operators should know, twice `-v`
/// every step. `--quiet` without `-v` shows nothing.
pub(crate) fn set_level(verbose: u8, is_quiet: bool) {
    let shown = match verbose {
        0 if is_quiet => return,
        0 => &ToStderr::Unsafe,
        1 => &ToStderr::Grants,
        _ => &ToStderr::All,
    };
    if log::set_logger(shown).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}

enum ToStderr {
    Unsafe,
    Grants,
    All,
}

impl Log for ToStderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("fairlock")
    }

    fn log(&self, record: &Record<'_>) {
        let level = record.level();
        let event = record.key_values().get("event".into());
        let is_event = |name| event.as_ref().is_some_and(|event| event.to_borrowed_str() == Some(name));
        let is_wanted = match self {
            ToStderr::Unsafe => is_event("advice"),
            ToStderr::Grants => level <= Level::Info || is_event("granted"),
            ToStderr::All => true,
        };
        if is_wanted && self.enabled(record.metadata()) {
            say(&format!("{} {}: {}", level.as_str().to_lowercase(), record.target(), record.args()));
        }
    }

    fn flush(&self) {}
}

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
