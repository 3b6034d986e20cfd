//! The first connection. A server that is full, restarting or away is no failure at once: the wait begins before it.

use std::io::{IsTerminal, stderr};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::Client;
use fairlock::backend::pause;
use fairlock::crossbeam_channel::{Receiver, bounded, never, select, tick, unbounded};
use signal_hook::consts::{SIGCHLD, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;

use super::children;
use super::wait::{EVERY, Line};
use crate::args::{Run, Server};
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::server::{self, Store};
use crate::settings::LONGEST;

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
    // Of this machine's locks none is away: a process that stands still in a step delays the waiters, who keep their places. To keep a
    // lock at the end is an answer that the command can't wait for as long.
    if server.on_this_machine().is_some() && options.at_least.is_none() {
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
    let no_thread = |error| Failure::ours(format!("no thread to connect: {error}"));
    thread::Builder::new().name("fairlock-connect".to_owned()).spawn(work).map_err(no_thread)?;
    let line = Line::new(!options.quiet && stderr().is_terminal());
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
                Ok(SIGCHLD) => drop(children::collect(&mut None, None)),
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
                failure.message += &format!("; tried for {}", duration::show(began.elapsed()));
            }
            Err(failure)
        }
        Err(_) => Err(Failure::ours("the connecting has ended without an answer")),
    }
}
