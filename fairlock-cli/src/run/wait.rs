//! The time before the program: the first connection, and the queue; silent, except for a progress line on a terminal.
//!
//! A server that is full, restarting or away is no failure at once: the wait begins before the connection.

use std::io::{IsTerminal, Write, stderr};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::backend::pause;
use fairlock::owner::Owner;
use fairlock::waits::crossbeam_channel_0_5::{Receiver, after, bounded, never, select, tick, unbounded};
use fairlock::waits::{Busy, Request};
use fairlock::{Client, Guard, Lost, TryLock};
use signal_hook::consts::{SIGCHLD, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;

use super::minder::{Minder, collect};
use super::{HESITATION, Holds, LAST_WORDS, Outer, Wanted};
use crate::args::Run;
use crate::process::{Exit, Failure, start_thread, width_of};
use crate::server::{self, Store};
use crate::settings::{LONGEST, Server};
use crate::words::{duration, escaped, fit_words, held_by};

/// How often the progress line is updated; each update costs one round trip.
const EVERY: Duration = Duration::from_secs(1);

/// How long the client goes on without an answer, by default.
const OUTAGE_LIMIT: Duration = Duration::from_secs(10);

pub(super) enum Connected {
    To(Client, Store),
    /// A signal ended the connecting. Nothing was asked for yet.
    Signalled(i32),
}

/// Connects within the time of `--wait`, or of the outage limit if there is none. A thread does it: the library can't be interrupted, and
/// a signal has to end the wait at once. The library's own `connect_within` counts the time of connecting and that of subscribing each by
/// itself, and tells nobody why it still tries.
///
/// # Errors
/// That of the last attempt; a wrong address, password or role at once.
pub(super) fn connect(server: &Server, options: &Run, signals: &Receiver<i32>) -> Result<Connected, Failure> {
    let within = options.limit().or(options.terms.outage_limit).unwrap_or(OUTAGE_LIMIT);
    let (done, connected) = bounded(1);
    let (tell, mut failed) = unbounded();
    let (server, mut terms, began) = (server.clone(), options.terms.clone(), Instant::now());
    // Of this machine's locks none is away: a process that stands still in a step delays the waiters, who keep their places.
    if server.on_this_machine().is_some() {
        terms.outage_limit.get_or_insert(LONGEST);
    }
    let work = move || {
        for failures in 2.. {
            // The first has a pause already: a server that is full has others who try.
            let left = within.saturating_sub(began.elapsed());
            match server::holder(&server, &terms) {
                Err(Failure { exit: Exit::Unavailable, message }) if !left.is_zero() => {
                    let _ = tell.send(message);
                    thread::sleep(pause(failures).min(left));
                }
                ended => return drop(done.send(ended)),
            }
        }
    };
    start_thread("fairlock-connect", work)?;
    let line = Line::new(options.quiet);
    let (mut why, mut update) = (String::new(), never());
    let show = |why: &str| line.show(|| format!("connecting for {}s; {why}", began.elapsed().as_secs()));
    let ended = loop {
        select! {
            recv(connected) -> ended => break ended,
            recv(failed) -> message => if let Ok(message) = message {
                if why.is_empty() {
                    log::warn!(target: "fairlock::run", "not connected yet: {message}");
                    update = tick(EVERY);
                    show(&message);
                }
                why = message;
            } else {
                failed = never(); // it has ended
            },
            recv(update) -> _ => show(&why),
            recv(signals) -> signal => match signal {
                // There is no minder and no program yet.
                Ok(SIGCHLD) => drop(collect(&mut None, None)),
                Ok(SIGTSTP) => drop(emulate_default_handler(SIGTSTP)),
                Ok(signal) => {
                    line.end();
                    return Ok(Connected::Signalled(signal));
                }
                Err(_) => {}
            },
        }
    };
    line.end();
    match ended {
        Ok(Ok((client, store))) => Ok(Connected::To(client, store)),
        Ok(Err(mut failure)) => {
            if failure.exit == Exit::Unavailable && !within.is_zero() {
                failure.message += &format!("; tried for {}", duration(began.elapsed()));
            }
            Err(failure)
        }
        Err(_) => Err(Failure::ours("the connecting has ended without an answer")),
    }
}

pub(super) enum Waited {
    Granted(Guard<Owner>),
    /// With a description of what holds it up, or why that is not known: then the server refused, or did not answer.
    TimedOut(Result<String, Failure>),
    /// By --every or --most-waiting; with the reason.
    Declined(String),
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
        let busy = match lock.try_lock()? {
            TryLock::Granted(guard) => return Ok(Waited::Granted(guard)),
            TryLock::Busy(why) => busy(lock, store, outside.outer, &why),
        };
        let _ = client.shutdown_within(LAST_WORDS);
        return Ok(busy);
    }
    let time_out = limit.map_or_else(never, after);
    let mut request = lock.request()?;
    let line = Line::new(outside.quiet);
    let progress = Progress { lock, store, since: Instant::now(), line };
    let update = if progress.line.shown { tick(EVERY) } else { never() };
    progress.show(&request);
    let mut hesitation = if outside.outer.are_none() { never() } else { tick(HESITATION) };
    let ended = loop {
        select! {
            recv(request.decided().as_crossbeam()) -> _ => break None,
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
        None => match request.wait_for(Duration::ZERO)? {
            TryLock::Granted(guard) => return Ok(Waited::Granted(guard)),
            TryLock::Busy(why) => busy(lock, store, outside.outer, &why),
        },
        Some(Ended::Signalled(signal)) => Waited::Signalled(signal),
        Some(Ended::Lost(lost)) => Waited::Lost(lost),
        Some(Ended::InVain(failure)) => Waited::InVain(failure),
        Some(Ended::TimedOut) => match request.withdraw() {
            Ok(TryLock::Granted(guard)) => return Ok(Waited::Granted(guard)),
            Ok(TryLock::Busy(why)) => busy(lock, store, outside.outer, &why),
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
struct Line {
    shown: bool,
}

impl Line {
    fn new(quiet: bool) -> Line {
        Line { shown: !quiet && stderr().is_terminal() }
    }

    /// What matters most comes first: a narrow terminal has no room for the rest.
    fn show(&self, text: impl FnOnce() -> String) {
        if self.shown {
            let width = width_of(stderr()).saturating_sub(1);
            write(&format!("\r\x1b[K{}", fit_words(&text(), width)));
        }
    }

    fn end(&self) {
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
    fn show(&self, request: &Request<Owner>) {
        // Granted at once: no progress to show.
        if request.decided().as_crossbeam().is_empty() {
            self.line.show(|| self.text(request));
        }
    }

    fn text(&self, request: &Request<Owner>) -> String {
        let place = match request.rank() {
            None => String::new(), // a plain lock has no queue
            Some(0) => "next in the queue, ".to_owned(),
            Some(ahead) => format!("{ahead} ahead, "),
        };
        let (name, waited) = (escaped(self.lock.admin.name()), self.since.elapsed().as_secs());
        let held_up = held_up_by(self.lock, self.store).unwrap_or_else(|failure| failure.message);
        format!("{name}: {place}waiting for {waited}s; {held_up}")
    }
}

/// The wait is over: what holds it up.
fn busy(lock: &Wanted, store: &Store, outer: &Outer, why: &Busy) -> Waited {
    if why.declined.is_some() {
        return Waited::Declined(why.to_string());
    }
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
    let state = match lock.admin.inspect_queue(0..0) {
        Ok(state) => state,
        Err(error) if error.is_transient() => return Err(error.into()),
        // The server said that the lock is busy, and may refuse to say more.
        Err(error) => return Ok(error.to_string()),
    };
    let held_by = held_by(&state);
    let Some(left) = store.grace_left() else {
        return Ok(match (state.holders.is_empty(), state.waiting()) {
            (false, _) => held_by,
            (true, 0) => "it has just become free".to_owned(),
            (true, ahead) => format!("not held, but {ahead} in the queue before it"),
        });
    };
    let left = duration(left);
    let what = format!("{held_by}; the server has a new past, and grants no locks for {left} more");
    if state.holders.is_empty() { Err(Failure::new(Exit::Unavailable, what)) } else { Ok(what) }
}

fn write(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
    let _ = stderr().flush();
}
