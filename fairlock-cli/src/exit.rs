//! Exit codes, and failures that have one.

use std::process::ExitCode;

use fairlock::Error;

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well.
    Done,
    /// The answer is no: nobody held the lock, there was no such waiter, something is unsafe.
    No,
    /// The lock was lost, and the program under it was ended.
    Lost,
    /// The server can't be reached, or gives no answer.
    Unavailable,
    /// The lock did not come in time.
    TimedOut,
    /// Anything else that keeps fairlock from its work: wrong options, a refused password.
    Failed,
    /// The program can't be run.
    NotRunnable,
    /// There is no such program.
    NotFound,
    /// What the program under the lock said.
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

/// The same as text, for `--help` and the man page.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  that of the program; 128 + n when signal n ended it
  122  the server can't be reached, or gave no answer for 10 s
  123  the lock was lost: the program was ended, or ended too late to be sure that it was alone
  124  the lock did not come within --wait
  125  wrong options, a refused password, or another failure of fairlock itself
  126  the program can't be run
  127  there is no such program";

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }

    /// Something that fairlock itself got wrong, or was told wrong.
    pub(crate) fn ours(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Failed, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match error {
            Error::Unavailable { .. } => Exit::Unavailable,
            Error::Lost(_) => Exit::Lost,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    }
}
