//! `fairlock run`: acquires the lock, runs a program under it, releases the lock.
//!
//! `wanted` is what it asks for, `wait` the time in line, `program` the time under the lock, with its signals and its terminal. `minder` is a
//! separate process that ends the program in time, even if this one is stopped or killed.

mod minder;
mod program;
mod signals;
mod terminal;
mod wait;
mod wanted;

use std::time::{Duration, Instant};

use fairlock::crossbeam_channel::Receiver;
use fairlock::{Client, Error, OwnedGuard};
use signal_hook::low_level::emulate_default_handler;

use crate::args::{Run, SHORTEST_LEASE, Server};
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::names::escaped;
use crate::report::say;
use crate::server;

pub(crate) use minder::mind;

use minder::Minder;
use program::Ended;
use wait::Waited;
use wanted::Wanted;

const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// How long the command tries to tell the server of its end.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(crate) fn run(server: &Server, options: &Run) -> Result<Exit, Failure> {
    let grace = grace(options)?;
    program::look(options)?;
    // Before anything that a signal must not interrupt.
    let (signals, latest) = signals::listen()?;
    match run_under(server, options, grace, &signals) {
        // The signal interrupted the connecting, or the only attempt: no program has run.
        Err(Failure { exit: Exit::Unavailable, .. }) if signals::is_passed_on(latest.get()) => {
            Ok(die_by(latest.get()))
        }
        ended => ended,
    }
}

fn run_under(
    server: &Server,
    options: &Run,
    grace: Duration,
    signals: &Receiver<i32>,
) -> Result<Exit, Failure> {
    let (client, backend) = server::holder(server, options.lease, options.label.as_deref())?;
    let lock = Wanted::new(&client, options)?;
    // Started before the wait, so it costs no time under the lock.
    let mut minder = Minder::start(server, options, grace)?;
    let guard = match wait::wait(&client, &backend, &lock, options.wait, signals)? {
        Waited::Granted(guard) => guard,
        Waited::TimedOut(held_up) => {
            let (exit, why) = match held_up {
                Ok(holder) => (Exit::Of(options.conflict_exit_code), holder),
                Err(failure) => (failure.exit, failure.message),
            };
            let name = escaped(&options.name);
            let message = match options.wait.unwrap_or_default() {
                Duration::ZERO => format!("{name} is not free: {why}"),
                wait => format!("{name} was not acquired within {}: {why}", duration::show(wait)),
            };
            return Err(Failure::new(exit, message));
        }
        Waited::Signalled(signal) => return Ok(die_by(signal)),
    };
    minder.holds(&guard);
    let since = Instant::now();
    prolong(options, &guard, grace)?;
    if let Some(at_least) = options.at_least {
        minder.keeps_for(at_least);
    }
    let ended = program::run(options, &guard, &mut minder, signals);
    let was_ended = minder.has_ended_it();
    let held_for = since.elapsed();
    let (lost, unreleased) = release(options, &client, guard);
    let ended = ended?;
    let also = unreleased.as_ref().map(|what| format!("; {what}")).unwrap_or_default();
    if was_ended {
        let why = lost.map_or_else(
            || about_to_be_lost(options, held_for + grace + reserve(options) * 2),
            |lost| lost.to_string(),
        );
        return Err(Failure::new(Exit::Lost, format!("{why}; the program was ended{also}")));
    }
    if let Some(lost) = lost {
        let message = format!("{lost}; the program had already ended by itself{also}");
        return Err(Failure::new(Exit::Lost, message));
    }
    if let Some(what) = unreleased {
        say(&what);
    }
    Ok(match ended {
        Ended::Code(code) => Exit::Of(code),
        Ended::OurSignal(signal) => die_by(signal),
    })
}

/// Releases the lock. Returns whether the hold was lost, and what a server that is gone could not be told: it must not keep this
/// command, which has nothing left to do.
fn release(options: &Run, client: &Client, guard: OwnedGuard) -> (Option<Error>, Option<String>) {
    let lost = guard.check().err();
    let told = guard.lost().clone();
    let unkept = match options.at_least {
        Some(at_least) => guard.keep_for(at_least).err(),
        None => {
            drop(guard); // the first attempt; the shutdown makes the others
            None
        }
    };
    let settled = client.shutdown_within(LAST_WORDS);
    // The server may have said that it does not have the hold any more.
    let lost = lost.or_else(|| told.try_recv().ok().map(Error::Lost));
    if let Some(error) = unkept.filter(|error| !matches!(error, Error::Lost(_))) {
        return (lost, Some(format!("--at-least: {error}")));
    }
    let Err(Error::Unsettled { source, .. }) = settled else { return (lost, None) };
    let lease = options.max_hold.map_or(options.lease, |limit| limit.min(options.lease));
    let (name, lease) = (escaped(&options.name), duration::show(lease));
    let kept = format!(
        "lock {name} could not be released, and the server keeps it until its lease ends, for {lease} at most: {source}"
    );
    (lost, Some(kept))
}

/// At most half the lease: renewals come every third of it, so while the server answers, more than half is always certain.
fn grace(options: &Run) -> Result<Duration, Failure> {
    if options.lease < SHORTEST_LEASE {
        return Err(Failure::ours(format!("--lease must be at least {}", duration::show(SHORTEST_LEASE))));
    }
    let grace = options.grace.unwrap_or_else(|| DEFAULT_GRACE.min(options.lease / 3));
    if grace > options.lease / 2 {
        return Err(Failure::ours("--grace must be at most half of --lease"));
    }
    if let Some(limit) = options.max_hold.filter(|limit| *limit < grace * 2) {
        let [limit, grace, most] = [limit, grace, limit / 2].map(duration::option);
        let default = if options.grace.is_none() { " by default" } else { "" };
        return Err(Failure::ours(format!(
            "--max-hold is {limit} and --grace is {grace}{default}, but --max-hold must be at least twice --grace: \
             add --grace {most}, or choose a longer --max-hold"
        )));
    }
    Ok(grace)
}

/// How long before the end of the lease KILL comes, so that the program has ended by then even on a busy machine.
fn reserve(options: &Run) -> Duration {
    options.max_hold.map_or(options.lease, |limit| limit.min(options.lease)) / 20
}

/// A handed-over hold is short at first: it is renewed until the program starts with more than its grace.
fn prolong(options: &Run, guard: &OwnedGuard, grace: Duration) -> Result<(), Failure> {
    loop {
        match guard.renew() {
            Ok(certain) if certain > grace + reserve(options) => return Ok(()),
            Ok(_) => {
                let what = "the server answers too slowly: no more than --grace is left of the lease";
                return Err(Failure::new(Exit::Unavailable, what));
            }
            Err(Error::Unavailable { .. }) if !guard.is_lost() => {
                std::thread::sleep(Duration::from_millis(50))
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn about_to_be_lost(options: &Run, held_for: Duration) -> String {
    let name = escaped(&options.name);
    match options.max_hold {
        Some(limit) if held_for >= limit => format!("lock {name} was held for as long as --max-hold allows"),
        _ => format!("lock {name} was about to be lost: its lease could not be renewed in time"),
    }
}

/// Ends as if the signal had not been caught, so that a shell sees the usual status.
fn die_by(signal: i32) -> Exit {
    let _ = emulate_default_handler(signal);
    Exit::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}
