//! The command as a process: exit codes, messages, signals, threads, and the processes beside the command.
//!
//! Messages, logs and questions to the operator go to standard error, apart from the program's output; what a command was asked for goes to
//! standard output.

use std::fmt::Display;
use std::fs;
use std::io::{BufRead, ErrorKind, IsTerminal, Write, stderr, stdin, stdout};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;

use fairlock::waits::crossbeam_channel_0_5::{Receiver, unbounded};
use log::{Level, LevelFilter, Log, Metadata, Record};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use terminal_size::terminal_size_of;

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Done,
    /// The answer is no: the lock was not held, there was no such waiter, something is unsafe.
    No,
    /// The lock was lost, and the program under it was ended.
    Lost,
    /// The server can't be reached, refuses, or does not answer.
    Unavailable,
    /// Another owner has the lock, and it was not acquired in time.
    TimedOut,
    /// Any other failure of fairlock itself: wrong options, a refused password.
    Failed,
    /// The program can't be run.
    NotRunnable,
    /// The program does not exist.
    NotFound,
    /// The exit code of the program under the lock.
    Of(u8),
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::No => 1,
            Exit::Unavailable => 122,
            Exit::Lost => 123,
            Exit::TimedOut => 124,
            Exit::Failed => 125,
            Exit::NotRunnable => 126,
            Exit::NotFound => 127,
            Exit::Of(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        exit.code().into()
    }
}

/// The exit codes as text, for `--help` and the man page.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  that of the program; 128 + n if signal n ended it
  122  the server refuses; or it can't be reached, or gave no answer, for 10 s (--outage-limit) or until --wait is over
  123  the lock was lost: fairlock ended the program, or the program outlived its lock; or one of several was
       taken away before the program was started
  124  another owner has the lock, and it was not acquired within --wait, or at once with -n (see -E)
  125  wrong options, a refused password, or another failure of fairlock itself
  126  the program can't be run
  127  the program does not exist";

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Empty if nothing is to be said.
    pub(crate) message: String,
}

impl Failure {
    /// A failure that the exit code alone tells.
    pub(crate) fn silent(exit: Exit) -> Failure {
        Failure { exit, message: String::new() }
    }

    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }

    /// A failure of fairlock itself, or of its options.
    pub(crate) fn ours(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Failed, message)
    }
}

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

/// How long a line may be there.
pub(crate) fn width_of(stream: impl AsFd) -> usize {
    terminal_size_of(stream).map_or(80, |(width, _)| usize::from(width.0))
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

/// The signals that end a command.
pub(crate) const ENDS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

static END_BY_SIGNALS: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));

/// The first process of a container ends by signals only if it catches them. `run` does that by itself.
pub(crate) fn end_by_signals() {
    if std::process::id() != 1 {
        return;
    }
    for signal in ENDS {
        let condition = Arc::clone(&END_BY_SIGNALS);
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, condition);
    }
}

/// A screen hears these signals itself: it gives the terminal back first.
pub(crate) fn end_by_signals_no_more() {
    END_BY_SIGNALS.store(false, Ordering::SeqCst);
}

/// From now on these signals arrive on the channel, and do nothing else.
///
/// # Errors
/// If the system refuses.
pub(crate) fn channel_of(signals: impl IntoIterator<Item = i32>) -> Result<Receiver<i32>, Failure> {
    let (say, said) = unbounded();
    hear(signals, move |signal| say.send(signal))?;
    Ok(said)
}

/// From now on a thread hands these signals to `each`, until it fails.
///
/// # Errors
/// If the system refuses.
pub(crate) fn hear<E: Send + 'static>(
    signals: impl IntoIterator<Item = i32>,
    each: impl FnMut(i32) -> Result<(), E> + Send + 'static,
) -> Result<(), Failure> {
    let signals = Signals::new(signals);
    let mut signals = signals.map_err(|error| Failure::ours(format!("signals can't be caught: {error}")))?;
    start_thread("fairlock-signal", move || signals.forever().try_for_each(each))
}

/// Ends as if the signal had not been caught, so that a shell sees the usual status. The first process of a container does not end by
/// signals: its own have no effect. It gives the exit code that shells have for that.
pub(crate) fn die_by(signal: i32) -> Exit {
    if std::process::id() != 1 {
        let _ = emulate_default_handler(signal);
    }
    Exit::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

/// Starts a thread of the command, which nobody waits for.
///
/// # Errors
/// If the system gives none.
pub(crate) fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(), Failure> {
    let no_thread = |error| Failure::ours(format!("no thread `{name}`: {error}"));
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop).map_err(no_thread)
}

/// Each line of standard input; closed at its end.
pub(crate) fn lines_of_input() -> Result<Receiver<String>, Failure> {
    let (say, said) = unbounded();
    let read = move || stdin().lines().map_while(Result::ok).try_for_each(|line| say.send(line));
    start_thread("fairlock-input", read).map(|()| said)
}

/// What `/proc/PID/stat` says of a process.
pub(crate) struct Stat {
    pub(crate) group: i32,
    /// When the process began, in the kernel's ticks.
    pub(crate) start: u64,
    /// The process is a zombie, and so are all its threads: other threads may outlive the first.
    pub(crate) is_over: bool,
}

impl Stat {
    /// None if there is no such process, or the system hides it.
    pub(crate) fn of(process: impl Display) -> Option<Stat> {
        Stat::read(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    /// `pid (name) state parent group …`; the 20th word is the number of threads, the 22nd the start.
    fn read(stat: &str) -> Option<Stat> {
        let words: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let is_over = matches!(*words.first()?, "Z" | "X") && matches!(*words.get(17)?, "0" | "1");
        Some(Stat { group: words.get(2)?.parse().ok()?, start: words.get(19)?.parse().ok()?, is_over })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_threads_outlive_the_first_one_is_not_over() {
        for (state, group, threads, is_over) in
            [("S", 7, 1, false), ("Z", 7, 1, true), ("Z", 7, 2, false), ("X", 7, 0, true), ("S", 8, 1, false)]
        {
            let text = format!("9 (a) b) {state} 1 {group} 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 5");
            let stat = Stat::read(&text).unwrap();
            assert_eq!((stat.group, stat.start, stat.is_over), (group, 5, is_over), "{text}");
        }
    }
}
