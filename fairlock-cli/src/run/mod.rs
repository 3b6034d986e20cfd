//! `fairlock run`: acquires the lock, runs a program under it, releases the lock.
//!
//! `wanted` has the locks and the holds on them, `wait` is the time until they are granted, `program` the time under them, with signals
//! and terminal. `minder` is a separate process that ends the program in time, even if this process is stopped or killed.

mod minder;
mod program;
mod wait;
mod wanted;

use std::time::{Duration, Instant};

use fairlock::waits::crossbeam_channel_0_5::{Receiver, unbounded};
use fairlock::{Client, Error, Lost, LostCause};

use crate::args::Run;
use crate::process::{Exit, Failure, die_by, say};
use crate::settings::{Server, with_option};
use crate::words::{duration, escaped, exact};

pub(crate) use minder::mind;

use minder::Minder;
use program::{Ended, is_passed_on, listen};
use wait::{Connected, Outside, Waited, connect};
use wanted::{Holds, Outer};

const DEFAULT_KILL_AFTER: Duration = Duration::from_secs(5);
/// How long the command tries to tell the server of its end.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(crate) fn run(server: &Server, options: &Run) -> Result<Exit, Failure> {
    let kill_after = kill_after(server, options)?;
    wanted::check(options)?;
    program::look(options)?;
    // Before anything that a signal must not interrupt.
    let signals = listen()?;
    let ended = run_under(server, options, kill_after, &signals);
    // A signal that came during the only attempt: no program has run.
    if let Err(Failure { exit: Exit::Unavailable, .. }) = ended
        && let Some(signal) = signals.try_iter().find(|signal| is_passed_on(*signal))
    {
        return Ok(die_by(signal));
    }
    ended
}

fn run_under(
    server: &Server,
    options: &Run,
    kill_after: Duration,
    signals: &Receiver<i32>,
) -> Result<Exit, Failure> {
    // The connecting is a part of the wait.
    let deadline = options.limit().and_then(|limit| Instant::now().checked_add(limit));
    let (client, store) = match connect(server, options, signals)? {
        Connected::To(client, store) => (client, store),
        Connected::Signalled(signal) => return Ok(die_by(signal)),
    };
    let wanted = wanted::all(&client, options)?;
    let (tell, losses) = unbounded();
    client.on_lost(move |lost| drop(tell.send(lost.clone())));
    // Started before the wait, so it costs no time under the lock.
    let mut minder = Minder::start(server, options, kill_after, store.presence(&client))?;
    let outer = Outer::of_environment();
    let outside = Outside { signals, losses: &losses, outer: &outer, quiet: options.quiet };
    let mut holds = Holds::default();
    for lock in &wanted {
        let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match wait::wait(&client, &store, lock, limit, &holds, &mut minder, &outside)? {
            Waited::Granted(guard) => {
                minder.holds(&guard);
                holds.add(guard);
            }
            Waited::TimedOut(held_up) => return Err(not_in_time(options, lock.name(), held_up)),
            Waited::Declined(why) => return Err(declined(options, why)),
            Waited::InVain(failure) => return Err(failure),
            Waited::Signalled(signal) => return Ok(die_by(signal)),
            Waited::Lost(lost) => return Err(lost_before_the_start(&lost)),
        }
    }
    prolong(options, &holds, kill_after)?;
    let ended = program::run(options, &holds, &mut minder, &outside);
    let was_ended = minder.has_ended_it();
    let held_for = holds.held_for();
    let (lost, unreleased) = release(options, &client, holds);
    let ended = ended?;
    let also = unreleased.as_ref().map(|what| format!("; {what}")).unwrap_or_default();
    if was_ended {
        let why =
            lost.map_or_else(|| about_to_be_lost(options, kill_after, held_for), |lost| lost.to_string());
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

/// The lock for which the time was over, and what holds it up.
fn not_in_time(options: &Run, name: &str, held_up: Result<String, Failure>) -> Failure {
    let (exit, why) = match held_up {
        Ok(_) if options.quiet => return Failure::silent(Exit::Of(options.conflict_exit_code)),
        Ok(holder) => (Exit::Of(options.conflict_exit_code), holder),
        Err(failure) => (failure.exit, failure.message),
    };
    let name = escaped(name);
    let message = match options.limit().unwrap_or_default() {
        Duration::ZERO => format!("{name} is not free: {why}"),
        wait => format!("{name} was not acquired within {}: {why}", duration(wait)),
    };
    Failure::new(exit, message)
}

fn declined(options: &Run, why: String) -> Failure {
    let exit = Exit::Of(options.conflict_exit_code);
    if options.quiet { Failure::silent(exit) } else { Failure::new(exit, why) }
}

/// A lock was lost before the program was started, and perhaps before the last of several was granted.
fn lost_before_the_start(lost: &Lost) -> Failure {
    let exit = if lost.cause == LostCause::NotRenewed { Exit::Unavailable } else { Exit::Lost };
    Failure::new(exit, format!("{lost}; the program was not started"))
}

/// Releases the locks. Returns whether a hold was lost, and what a server that is gone could not be told: it must not keep this
/// command, which has nothing left to do.
fn release(options: &Run, client: &Client, holds: Holds) -> (Option<Lost>, Option<String>) {
    let told = holds.losses();
    drop(holds); // the first attempts; the shutdown makes the others
    let settled = client.shutdown_within(LAST_WORDS);
    // Only now the server may have said that it does not have the hold any more.
    let lost = told.iter().find_map(|told| told.try_recv().ok());
    let Err(Error::Unsettled { count, lock, source, .. }) = settled else { return (lost, None) };
    let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
    let (name, lease) = (escaped(lock.as_str()) + &more, duration(longest(options)));
    let why = with_option(source.message(), source.setting());
    let kept = format!(
        "lock {name} could not be released, and the store keeps it until its lease ends, for {lease} at most: {why}"
    );
    (lost, Some(kept))
}

/// At most half the lease: renewals come every third of it, so while the server answers, more than half is always certain.
fn kill_after(server: &Server, options: &Run) -> Result<Duration, Failure> {
    let lease = options.terms.lease();
    if let Some(time) = server.response_timeout.filter(|time| *time > lease / 2) {
        let [time, lease, most] = [time, lease, lease / 2].map(exact);
        return Err(Failure::ours(format!(
            "--response-timeout is {time} and --lease is {lease}, but a lease has to be at least twice as long: \
             add --response-timeout {most}, or choose a longer --lease"
        )));
    }
    let kill_after = options.kill_after.unwrap_or_else(|| DEFAULT_KILL_AFTER.min(longest(options) / 3));
    if kill_after > lease / 2 {
        let [kill_after, lease, most] = [kill_after, lease, lease / 2].map(exact);
        return Err(Failure::ours(format!(
            "--kill-after is {kill_after} and --lease is {lease}, but --kill-after must be at most half of --lease: \
             add --kill-after {most}, or choose a longer --lease"
        )));
    }
    if let Some(limit) = options.max_hold.filter(|limit| *limit < kill_after * 2) {
        let [limit, kill_after, most] = [limit, kill_after, limit / 2].map(exact);
        return Err(Failure::ours(format!(
            "--max-hold is {limit} and --kill-after is {kill_after}, but --max-hold must be at least twice --kill-after: \
             add --kill-after {most}, or choose a longer --max-hold"
        )));
    }
    Ok(kill_after)
}

/// How long a hold lasts at most that is not renewed any more.
fn longest(options: &Run) -> Duration {
    options.max_hold.unwrap_or(Duration::MAX).min(options.terms.lease())
}

/// How long before the end of the lease KILL comes, so that the program has ended by then even on a busy machine.
fn reserve(options: &Run) -> Duration {
    longest(options) / 20
}

/// A handed-over hold is short at first: it is renewed until the program starts with more than `--kill-after`.
fn prolong(options: &Run, holds: &Holds, kill_after: Duration) -> Result<(), Failure> {
    loop {
        match holds.renew() {
            Ok(certain) if certain > kill_after + reserve(options) => return Ok(()),
            Ok(_) => {
                let what = "the store answers too slowly: no more than --kill-after is left of the lease";
                return Err(Failure::new(Exit::Unavailable, what));
            }
            Err(Error::Unavailable { .. }) => std::thread::sleep(Duration::from_millis(50)), // until it is lost
            Err(Error::Lost(lost)) => return Err(lost_before_the_start(&lost)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Why the minder has ended the program, if no loss was told: KILL comes before the loss, and TERM before KILL.
fn about_to_be_lost(options: &Run, kill_after: Duration, held_for: Duration) -> String {
    let nearly_held_for = held_for + kill_after + reserve(options) * 2;
    let names: Vec<String> = wanted::names(options).into_iter().map(escaped).collect();
    let lock = match names.as_slice() {
        [name] => format!("lock {name}"),
        names => format!("one of the locks {}", names.join(", ")),
    };
    match options.max_hold {
        // A lease that the limit cuts needs no renewal.
        Some(limit) if limit <= options.terms.lease() || nearly_held_for >= limit => {
            format!("{lock} was held for as long as --max-hold allows")
        }
        _ => format!("{lock} was about to be lost: its lease could not be renewed in time"),
    }
}

#[cfg(test)]
mod tests;
