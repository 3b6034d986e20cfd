//! How a backend gets its connections: the first ones are tried again while the server can't take them, and logins may change.
//!
//! A changing login: a function of the user's gives the login of each new connection.
//!
//! The function may block, fail and panic. So a thread of its own (`fairlock-login`) makes each call, one at a time, under no lock.
//! A connection that opens waits for the call until the connection's deadline. Connections that wait at the same time share the answer.
//! A call that has not returned after 5 s may never return: the next connection begins another one, up to four at once.
//!
//! | an answer | is given to |
//! | --- | --- |
//! | that connections wait for | these connections |
//! | that nobody waits for: it came late, or was asked for ahead of time | connections that want one within 5 s |
//!
//! A server knows the new password before the function does, or after. Open connections stay logged in either way, and new ones are
//! refused for a while. What a refused login is:
//!
//! | so far | a refused login is |
//! | --- | --- |
//! | none was accepted | an error at once, as with a password that stands in the address |
//! | one was accepted, none was refused since, or the first refusal was less than two minutes ago | an outage |
//! | all were refused for two minutes | an error |
//!
//! A login that is accepted, anywhere, ends the two minutes: of the nodes of a cluster one changes its password after the other.

#[cfg(test)]
mod tests;

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use parking_lot::{Condvar, Mutex};

use super::{BackendError, pause};
use crate::logging::{LineLimit, log_line};

/// How long an answer is kept that nobody waited for.
const KEPT: Duration = Duration::from_secs(5);
/// After how long a call is not waited for any more.
const OVERDUE: Duration = Duration::from_secs(5);
/// How many calls there are at once, at most.
const MOST_CALLS: usize = 4;
/// The least time between two calls ahead of time.
const AHEAD_EVERY: Duration = Duration::from_secs(1);
/// How long after the first refusal the password may still be about to change.
const CHANGES_WITHIN: Duration = Duration::from_secs(120);
/// How long before its end a login is renewed at the earliest.
const EARLIEST: Duration = Duration::from_secs(300);

/// The login of one connection. `Debug` shows the user, and no password.
#[derive(Clone)]
pub struct Login {
    user: Option<String>,
    password: String,
    renew_at: Option<Instant>,
}

impl Login {
    /// A password, for the user of the backend's address.
    pub fn new(password: impl Into<String>) -> Login {
        Login { user: None, password: password.into(), renew_at: None }
    }

    /// Sets another user than that of the address.
    #[must_use]
    pub fn with_user(self, user: impl Into<String>) -> Login {
        Login { user: Some(user.into()), ..self }
    }

    /// Sets how long the password can be used from now on, as with a token: a server may cut off connections whose token has ended. On
    /// Redis, connections log in again before, when a quarter of this time is left, at most 5 min. By default it has no end.
    #[must_use]
    pub fn valid_for(self, time: Duration) -> Login {
        let renew_at = Instant::now().checked_add(time - (time / 4).min(EARLIEST));
        Login { renew_at, ..self }
    }

    /// Reads the password from a file, as of a mounted secret that is replaced now and then. A line break at the end is left out.
    ///
    /// ```no_run
    /// # use fairlock_core::backend::Login;
    /// let login = || Login::from_file("/run/secrets/redis"); // for a builder's `login`
    /// ```
    ///
    /// # Errors
    /// The file can't be read as UTF-8, or has no password. The error names the path, and nothing that the file has.
    pub fn from_file(path: impl AsRef<Path>) -> io::Result<Login> {
        let path = path.as_ref();
        let wrong =
            |kind, what: &str| io::Error::new(kind, format!("the password file `{}` {what}", path.display()));
        let text = fs::read_to_string(path)
            .map_err(|error| wrong(error.kind(), &format!("can't be read: {error}")))?;
        let password = text.strip_suffix('\n').unwrap_or(&text);
        let password = password.strip_suffix('\r').unwrap_or(password);
        if password.is_empty() {
            return Err(wrong(io::ErrorKind::InvalidData, "is empty"));
        }
        Ok(Login::new(password))
    }

    /// The user, if it is another one than that of the address.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// When an open connection should log in anew; none if the login has no end.
    pub fn renew_at(&self) -> Option<Instant> {
        self.renew_at
    }

    fn is_due(&self) -> bool {
        self.renew_at.is_some_and(|at| at <= Instant::now())
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Asks the user's function for logins, for all connections of a backend. `Debug` shows nothing of them.
#[derive(Clone)]
pub struct Logins(Arc<Asked>);

struct Asked {
    function: Box<dyn Fn() -> Result<Login, String> + Send + Sync>,
    state: Mutex<State>,
    /// Signals the end of a call.
    ended: Condvar,
    failures: LineLimit,
}

#[derive(Default)]
struct State {
    /// How many calls are under way, how many were begun, and when the last one was.
    under_way: usize,
    begun: u64,
    begun_at: Option<Instant>,
    /// The number of the latest call that has ended, its answer, and when it came, if nobody waited for it.
    ended: u64,
    answer: Option<Result<Login, String>>,
    unused_since: Option<Instant>,
    /// How many connections wait for an answer.
    waiting: usize,
    /// When a call was last begun ahead of time.
    ahead: Option<Instant>,
    was_accepted: bool,
    refused_since: Option<Instant>,
}

impl Logins {
    /// Logins that this function gives.
    pub fn new<E>(function: impl Fn() -> Result<Login, E> + Send + Sync + 'static) -> Logins
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let function = move || function().map_err(|error| one_line(&error.into().to_string()));
        let (state, ended, failures) = Default::default();
        Logins(Arc::new(Asked { function: Box::new(function), state, ended, failures }))
    }

    /// The login of a connection that opens.
    ///
    /// # Errors
    /// In words: the function failed or panicked, or gave no answer until then. A late answer serves the next connection.
    pub fn get(&self, until: Instant) -> Result<Login, String> {
        let mut state = self.0.state.lock();
        if let Some(unused) = state.unused() {
            return Ok(unused.clone());
        }
        self.ask(&mut state)?;
        let before = state.ended;
        state.waiting += 1;
        self.0.ended.wait_while_until(&mut state, |state| state.ended == before, until);
        state.waiting -= 1;
        let answer = state.answer.clone().filter(|_| state.ended != before);
        drop(state);
        answer.unwrap_or_else(|| Err(self.0.failed("the function of `login` gave none in time".to_owned())))
    }

    /// The next login of a connection whose login is about to end. If there is none yet, the function is asked, and nobody waits.
    pub fn next(&self) -> Option<Login> {
        let mut state = self.0.state.lock();
        // The function may give the login that is about to end once more: then there is no next one yet.
        if let Some(unused) = state.unused().filter(|unused| !unused.is_due()) {
            return Some(unused.clone());
        }
        if state.ahead.is_none_or(|last| last.elapsed() >= AHEAD_EVERY) {
            state.ahead = Some(Instant::now());
            _ = self.ask(&mut state);
        }
        None
    }

    /// A server has accepted a login.
    pub fn accepted(&self) {
        let mut state = self.0.state.lock();
        (state.was_accepted, state.refused_since) = (true, None);
    }

    /// A server has refused a login. Returns whether the password may be about to change, so that another one may be accepted.
    pub fn refused(&self) -> bool {
        let mut state = self.0.state.lock();
        state.unused_since = None;
        let since = *state.refused_since.get_or_insert_with(Instant::now);
        state.was_accepted && since.elapsed() < CHANGES_WITHIN
    }

    /// Begins a call unless one is under way that may still return.
    fn ask(&self, state: &mut State) -> Result<(), String> {
        let is_overdue = state.begun_at.is_some_and(|at| at.elapsed() >= OVERDUE);
        if state.under_way > 0 && !(is_overdue && state.under_way < MOST_CALLS) {
            return Ok(());
        }
        let (asked, number) = (Arc::clone(&self.0), state.begun + 1);
        let thread = thread::Builder::new().name("fairlock-login".to_owned());
        thread
            .spawn(move || asked.call(number))
            .map_err(|error| format!("no thread to ask for it ({error})"))?;
        // The thread ends the call under the mutex that is held here, so after this.
        (state.under_way, state.begun, state.begun_at) = (state.under_way + 1, number, Some(Instant::now()));
        Ok(())
    }
}

impl Asked {
    fn call(&self, number: u64) {
        let answer = catch_unwind(AssertUnwindSafe(&self.function)).unwrap_or_else(|panic| {
            std::mem::forget(panic); // its drop may panic as well
            Err("the function of `login` panicked".to_owned())
        });
        let answer = answer.map_err(|cause| self.failed(cause));
        let mut state = self.state.lock();
        state.under_way -= 1;
        // Else a later call has ended before: this login may be an old one.
        if number > state.ended {
            (state.ended, state.answer) = (number, Some(answer));
            state.unused_since = (state.waiting == 0).then(Instant::now);
        }
        drop(state);
        self.ended.notify_all();
    }

    /// Logs that there is no login. Returns the cause.
    fn failed(&self, cause: String) -> String {
        if let Some(count) = self.failures.count(1, Instant::now()) {
            log_line!(warn, "fairlock::net", event = "no login", count = count, error:% = cause;
                "no login, {count} time(s): {cause}"
            );
        }
        cause
    }
}

impl State {
    /// The answer that nobody waited for, while it is kept.
    fn unused(&self) -> Option<&Login> {
        self.unused_since.filter(|since| since.elapsed() < KEPT)?;
        self.answer.as_ref()?.as_ref().ok()
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logins")
    }
}

/// The words of the user's error, cut to a line.
fn one_line(text: &str) -> String {
    text.trim().chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Connects, and goes on trying for `within` while the store does not answer, is full or not ready (`Unavailable`, `Refused`). The last
/// attempt begins when that time is over; zero stands for one attempt. Another error ends it at once: it would be the same the next
/// time. For a backend's builder, and its first subscription. It blocks the thread; each attempt has to end by itself.
///
/// # Errors
/// That of the last attempt.
pub fn connect_within<T>(
    within: Duration,
    mut connect: impl FnMut() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    // None: longer than the clock can count.
    let end = Instant::now().checked_add(within);
    let left = || end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
    let mut failures = 1_u32;
    loop {
        let is_last = left().is_zero();
        match connect() {
            Err(error) if error.kind().is_transient() && !is_last => {
                if failures == 1 {
                    log_line!(warn, "fairlock::net",
                        event = "not connected", error:% = error;
                        "not connected yet, trying again: {error}"
                    );
                }
                // The first failure has a pause already: a server that is full has others who try.
                failures = failures.saturating_add(1);
                thread::sleep(pause(failures).min(left()));
            }
            ended => return ended,
        }
    }
}
