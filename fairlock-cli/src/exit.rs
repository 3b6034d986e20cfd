//! Exit codes, and failures that have one; signals as a channel, and the end by one of them.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;

use fairlock::waits::crossbeam_channel_0_5::{Receiver, unbounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// The signals that end a command.
pub(crate) const ENDS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

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
    let mut signals = Signals::new(signals).map_err(not_caught)?;
    let forever = move || signals.forever().try_for_each(each);
    thread::Builder::new().name("fairlock-signal".to_owned()).spawn(forever).map_err(not_caught)?;
    Ok(())
}

fn not_caught(error: std::io::Error) -> Failure {
    Failure::ours(format!("signals can't be caught: {error}"))
}

/// Ends as if the signal had not been caught, so that a shell sees the usual status. The first process of a container does not end by
/// signals: its own have no effect. It gives the exit code that shells have for that.
pub(crate) fn die_by(signal: i32) -> Exit {
    if std::process::id() != 1 {
        let _ = emulate_default_handler(signal);
    }
    Exit::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}
