//! The time in the queue: silent, except for a progress line on a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use fairlock::crossbeam_channel::{Receiver, after, never, select, tick};
use fairlock::{Client, Lost, OwnedGuard, OwnedRequest, TryLock};
use signal_hook::consts::{SIGCHLD, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;

use super::LAST_WORDS;
use super::holds::Holds;
use super::minder::Minder;
use super::nested::{HESITATION, Outer};
use super::wanted::Wanted;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::kind;
use crate::names::{escaped, fit_words};
use crate::server::Store;

/// How often the progress line is updated; each update costs one round trip.
pub(super) const EVERY: Duration = Duration::from_secs(1);

pub(super) enum Waited {
    Granted(OwnedGuard),
    /// With a description of what holds it up, or why that is not known: then the server refused, or did not answer.
    TimedOut(Result<String, Failure>),
    /// A command around this command holds the lock.
    InVain(Failure),
    /// A signal ended the wait. The place is given up.
    Signalled(i32),
    /// A hold was lost, and the place is given up.
    Lost(Lost),
}

/// What can end a wait from outside, and who sees it.
pub(super) struct Outside<'a> {
    pub(super) signals: &'a Receiver<i32>,
    /// Of holds, and of grants that ended before they were taken. Open as long as the client lives.
    pub(super) losses: &'a Receiver<Lost>,
    pub(super) outer: &'a Outer,
    pub(super) quiet: bool,
}

/// Waits for the next lock, beside these holds. After a failure the client is shut down: place and holds are gone when `wait`
/// returns.
pub(super) fn wait(
    client: &Client,
    store: &Store,
    lock: &Wanted,
    limit: Option<Duration>,
    holds: &Holds,
    minder: &mut Minder,
    outside: &Outside<'_>,
) -> Result<Waited, Failure> {
    if limit == Some(Duration::ZERO) {
        let TryLock::Granted(guard) = lock.try_lock()? else {
            let busy = busy(lock, store, outside.outer);
            let _ = client.shutdown_within(LAST_WORDS);
            return Ok(busy);
        };
        return Ok(Waited::Granted(guard));
    }
    let time_out = limit.map_or_else(never, after);
    let request = lock.request()?;
    let line = Line::new(!outside.quiet && stderr().is_terminal());
    let progress = Progress { lock, store, since: Instant::now(), line };
    let update = if progress.line.shown { tick(EVERY) } else { never() };
    progress.show(&request);
    let mut hesitation = if outside.outer.are_none() { never() } else { tick(HESITATION) };
    let ended = loop {
        select! {
            recv(request.decided()) -> _ => break None,
            recv(time_out) -> _ => break Some(Ended::TimedOut),
            recv(outside.losses) -> lost => match lost {
                Ok(lost) if holds.are_lost() => break Some(Ended::Lost(lost)),
                _ => {}
            },
            recv(update) -> _ => progress.show(&request),
            recv(hesitation) -> _ => match outside.outer.keep_it(lock, request.rank(), limit.is_none()) {
                Ok(None) => hesitation = never(),
                Ok(Some(failure)) => break Some(Ended::InVain(failure)),
                Err(_) => {} // asked again, like the request
            },
            recv(outside.signals) -> signal => match signal {
                Ok(SIGCHLD) => drop(minder.collect_others(None)),
                Err(_) => {}
                // A stopped process sends no heartbeats: its place is passed over until it continues.
                Ok(SIGTSTP) => drop(emulate_default_handler(SIGTSTP)),
                Ok(signal) => break Some(Ended::Signalled(signal)),
            },
        }
    };
    progress.line.end();
    let waited = match ended {
        None => return Ok(Waited::Granted(request.wait()?)),
        Some(Ended::Signalled(signal)) => Waited::Signalled(signal),
        Some(Ended::Lost(lost)) => Waited::Lost(lost),
        Some(Ended::InVain(failure)) => Waited::InVain(failure),
        Some(Ended::TimedOut) => match request.leave() {
            Ok(TryLock::Granted(guard)) => return Ok(Waited::Granted(guard)),
            Ok(TryLock::Busy(_)) => busy(lock, store, outside.outer),
            Err(error) => Waited::TimedOut(Err(error.into())),
        },
    };
    // Withdraws the request, or releases its hold, and releases the holds of other locks.
    let _ = client.shutdown_within(LAST_WORDS);
    Ok(waited)
}

/// Why a wait ended without a decision.
enum Ended {
    TimedOut,
    InVain(Failure),
    Signalled(i32),
    Lost(Lost),
}

/// The progress: one line on standard error, rewritten again and again. Nothing if standard error is no terminal, or with
/// `--quiet`.
pub(super) struct Line {
    pub(super) shown: bool,
}

impl Line {
    pub(super) fn new(shown: bool) -> Line {
        Line { shown }
    }

    /// What matters most comes first: a narrow terminal has no room for the rest.
    pub(super) fn show(&self, text: impl FnOnce() -> String) {
        if self.shown {
            let width =
                terminal_size::terminal_size_of(stderr()).map_or(80, |(width, _)| usize::from(width.0));
            write(&format!("\r\x1b[K{}", fit_words(&text(), width.saturating_sub(1))));
        }
    }

    pub(super) fn end(&self) {
        if self.shown {
            write("\r\x1b[K");
        }
    }
}

/// The line of a wait.
struct Progress<'a> {
    lock: &'a Wanted,
    store: &'a Store,
    since: Instant,
    line: Line,
}

impl Progress<'_> {
    fn show(&self, request: &OwnedRequest) {
        // Granted at once: no progress to show.
        if request.decided().is_empty() {
            self.line.show(|| self.text(request));
        }
    }

    fn text(&self, request: &OwnedRequest) -> String {
        let place = match request.rank() {
            None => String::new(), // a plain lock has no queue
            Some(0) => "next in the queue, ".to_owned(),
            Some(ahead) => format!("{ahead} ahead, "),
        };
        let (name, waited) = (escaped(self.lock.name()), self.since.elapsed().as_secs());
        let held_up = held_up_by(self.lock, self.store).unwrap_or_else(|failure| failure.message);
        format!("{name}: {place}waiting for {waited}s; {held_up}")
    }
}

/// The wait is over: what holds it up.
fn busy(lock: &Wanted, store: &Store, outer: &Outer) -> Waited {
    match outer.keep_it(lock, None, false) {
        Ok(Some(failure)) => Waited::InVain(failure),
        _ => Waited::TimedOut(held_up_by(lock, store)),
    }
}

/// The holders, and a grace of the server.
///
/// # Errors
/// If the server is gone by now. And if it grants nothing to anyone: a free lock in a grace is no lock that another owner has.
fn held_up_by(lock: &Wanted, store: &Store) -> Result<String, Failure> {
    let state = match lock.look(0..0) {
        Ok(state) => state,
        Err(error) if error.is_transient() => return Err(error.into()),
        // The server said that the lock is busy, and may refuse to say more.
        Err(error) => return Ok(error.to_string()),
    };
    let held_by = kind::held_by(&state);
    let Some(left) = store.grace_left() else {
        return Ok(match (state.holders.is_empty(), state.waiting()) {
            (false, _) => held_by,
            (true, 0) => "it has just become free".to_owned(),
            (true, ahead) => format!("not held, but {ahead} in the queue before it"),
        });
    };
    let left = duration::show(left);
    let what = format!("{held_by}; the server has a new past, and grants no locks for {left} more");
    if state.holders.is_empty() { Err(Failure::new(Exit::Unavailable, what)) } else { Ok(what) }
}

fn write(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
    let _ = stderr().flush();
}
