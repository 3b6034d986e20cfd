//! `fairlock run`: acquires the lock, or several fair locks, runs a program under it, and releases the lock.
//!
//! `wait` is the time until the locks are granted, `program` the time under them, with signals and terminal. `minder` is a separate process
//! that ends the program in time, even if this process is stopped or killed. Here are the times that fit together, the wanted locks, the
//! holds on them, and the outer commands, which may keep a lock from this command.
//!
//! Several locks are taken by the rules of `Client::lock_all`: in the order of the bytes of their names, so that commands and
//! programs never wait for each other; and all are given back if one can't be had, or is lost before the last grant.
//! `Client::lock_all` itself is not used: a signal has to end the wait, the progress line shows the rank, and the minder gets
//! each hold when it is granted.
//!
//! **A command inside the program of another one** that holds the same lock would wait for ever, since the other waits for it.
//!
//! Each command passes its owner, and the owners of the commands around it, to its program. An owner is unique in the world: a
//! lock of the same name on another server has other owners, and so has a lock that the outer command has released.
//!
//! | the outer command has | the inner one wants | |
//! | --- | --- | --- |
//! | a fair or plain lock | the same | it can't have it |
//! | to read | to write; or a writer is ahead | refused; or until the writer gives up |
//! | to read | to read | it gets it |
//! | to write | to read or write | it can't have it |
//! | one of N permits | one permit | granted when a permit is free, if the outer commands have less than N |

mod minder;
mod program;
mod wait;

use std::time::{Duration, Instant};

use fairlock::admin::{Admin, Holder, LockKind, LockState, Waiter};
use fairlock::owner::Owner;
use fairlock::waits::crossbeam_channel_0_5::{Receiver, unbounded};
use fairlock::waits::{Request, UnlessCrowded, UnlessGranted};
use fairlock::{Client, Error, Guard, Lock, Lost, LostCause, Semaphore, TryLock};

use crate::args::Run;
use crate::process::{Exit, Failure, die_by, say};
use crate::settings::{Server, with_option};
use crate::words::{capacity, duration, escaped, exact, how_long, name_of};

pub(crate) use minder::mind;

use minder::Minder;
use program::{Ended, is_passed_on, listen};
use wait::{Connected, Outside, Waited, connect};

const DEFAULT_KILL_AFTER: Duration = Duration::from_secs(5);
/// How long the command tries to tell the server of its end.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(crate) fn run(server: &Server, options: &Run) -> Result<Exit, Failure> {
    let kill_after = kill_after(server, options)?;
    check(options)?;
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
    let wanted = all(&client, options)?;
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
            Waited::TimedOut(held_up) => return Err(not_in_time(options, lock.admin.name(), held_up)),
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
    let names: Vec<String> = names(options).into_iter().map(escaped).collect();
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

/// # Errors
/// For several names, and a kind or a condition that is for one.
fn check(options: &Run) -> Result<(), Failure> {
    let condition = options.every.map(|_| "--every").or(options.most_waiting.map(|_| "--most-waiting"));
    match (names(options).len(), options.kind.option().or(condition)) {
        (0 | 1, _) | (_, None) => Ok(()),
        (several, Some(option)) => {
            let what =
                format!("{option} is for one name, and there are {several}: several are taken as fair locks");
            Err(Failure::ours(what))
        }
    }
}

/// Each name once, in the order in which the locks are taken.
fn names(options: &Run) -> Vec<&str> {
    let mut names: Vec<&str> = options.names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// In the order in which they are taken.
fn all(client: &Client, options: &Run) -> fairlock::Result<Vec<Wanted>> {
    let owner = client.new_owner();
    names(options).into_iter().map(|name| Wanted::new(client, options, name, &owner)).collect()
}

/// One of the locks that the program runs under.
struct Wanted {
    ask: Ask,
    /// For the name, the holders and the queue.
    admin: Admin,
    /// How many of the lock's units the program gets.
    units: u32,
}

/// How the lock is asked for.
enum Ask {
    Always(Lock<Owner>),
    /// Unless it was granted in this period.
    Every(UnlessGranted<Lock<Owner>>, Lock<Owner>),
    /// Unless too many wait.
    MostWaiting(UnlessCrowded<Lock<Owner>>, Lock<Owner>),
    Permit(Semaphore),
}

impl Wanted {
    fn new(client: &Client, options: &Run, name: &str, owner: &Owner) -> fairlock::Result<Wanted> {
        let (kind, limit) = (&options.kind, options.max_hold);
        if let Some(permits) = kind.permits {
            let semaphore = client.semaphore(name, permits)?;
            let semaphore = limit.map_or_else(|| semaphore.clone(), |limit| semaphore.max_hold(limit));
            return Ok(Wanted { admin: semaphore.admin(), units: 1, ask: Ask::Permit(semaphore) });
        }
        let (lock, units): (Lock, u32) = match kind.of_lock() {
            LockKind::ReadWrite if kind.shared => (client.rw_lock(name)?.reader().clone(), 1),
            LockKind::ReadWrite => (client.rw_lock(name)?.writer().clone(), u32::MAX),
            LockKind::Plain => (client.plain_lock(name)?, 1),
            _ => (client.fair_lock(name)?, 1),
        };
        let lock = limit.map_or_else(|| lock.clone(), |limit| lock.max_hold(limit));
        let lock = lock.owned_by(owner)?;
        let admin = lock.admin();
        let ask = match (options.every, options.most_waiting) {
            (Some(period), _) => Ask::Every(lock.every(period)?, lock),
            (None, Some(most)) => Ask::MostWaiting(lock.most_waiting(most)?, lock),
            (None, None) => Ask::Always(lock),
        };
        Ok(Wanted { ask, admin, units })
    }

    fn try_lock(&self) -> fairlock::Result<TryLock<Guard<Owner>>> {
        match &self.ask {
            Ask::Always(lock) | Ask::MostWaiting(_, lock) => lock.try_lock(),
            Ask::Every(unless, _) => unless.try_lock(),
            Ask::Permit(semaphore) => semaphore.try_acquire(),
        }
    }

    fn request(&self) -> fairlock::Result<Request<Owner>> {
        match &self.ask {
            Ask::Always(lock) | Ask::Every(_, lock) => lock.request(),
            Ask::MostWaiting(unless, _) => unless.request(),
            Ask::Permit(semaphore) => semaphore.request(),
        }
    }

    /// How many units the lock has for the program.
    fn capacity(&self, state: &LockState) -> u32 {
        if let Ask::Permit(semaphore) = &self.ask { semaphore.permits() } else { state.capacity.unwrap_or(1) }
    }
}

/// In the order in which they were granted.
#[derive(Debug, Default)]
struct Holds(Vec<(Guard<Owner>, Instant)>);

impl Holds {
    fn add(&mut self, guard: Guard<Owner>) {
        self.0.push((guard, Instant::now()));
    }

    fn guards(&self) -> impl Iterator<Item = &Guard<Owner>> {
        self.0.iter().map(|(guard, _)| guard)
    }

    /// For how long the first of them is held.
    fn held_for(&self) -> Duration {
        self.0.first().map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    /// How long all of them are certain.
    fn valid_for(&self) -> Duration {
        self.guards().map(|guard| guard.valid_for()).min().unwrap_or(Duration::ZERO)
    }

    /// Renews all, and returns how long they are certain.
    ///
    /// # Errors
    /// That of the first that was not renewed.
    fn renew(&self) -> fairlock::Result<Duration> {
        self.guards().try_for_each(|guard| guard.renew().map(drop))?;
        Ok(self.valid_for())
    }

    /// Whether one of them is lost. What is told as lost may also be a grant that ended before this process took it.
    fn are_lost(&self) -> bool {
        self.guards().any(|guard| guard.is_lost())
    }

    /// A channel for the loss of each.
    fn losses(&self) -> Vec<Receiver<Lost>> {
        self.guards().map(|guard| guard.lost().as_crossbeam().clone()).collect()
    }
}

/// How long a script may run on after it has started a command in the background that is to run after the outer command: such a
/// script is no deadlock.
const HESITATION: Duration = Duration::from_millis(500);

/// The owners of the outer commands, the innermost last.
struct Outer(Vec<String>);

impl Outer {
    /// Those that this process was told. A script that takes FAIRLOCK_OWNER out of the environment takes all of them.
    fn of_environment() -> Outer {
        let told = |name: &str| std::env::var(name).unwrap_or_default();
        let mut owners = told("FAIRLOCK_OWNER");
        if !owners.is_empty() {
            owners = format!("{} {owners}", told("FAIRLOCK_OUTER"));
        }
        Outer(owners.split_whitespace().map(str::to_owned).collect())
    }

    fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Why this lock can't be had before an outer command has ended, if so.
    ///
    /// A wait `for_ever` also ends behind a waiter that an outer command keeps from the lock. A wait with a limit goes on: the
    /// waiter ahead may give up.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    fn keep_it(
        &self,
        lock: &Wanted,
        ahead: Option<u64>,
        for_ever: bool,
    ) -> fairlock::Result<Option<Failure>> {
        if self.are_none() {
            return Ok(None);
        }
        let state = lock.admin.inspect_queue(0..ahead.filter(|_| for_ever).unwrap_or(0))?;
        Ok(self.keep(lock, &state))
    }

    fn keep(&self, lock: &Wanted, state: &LockState) -> Option<Failure> {
        let is_outer = |holder: &&Holder| self.0.iter().any(|owner| owner == holder.owner.as_str());
        let holder = state.holders.iter().find(is_outer)?;
        let taken: u64 = state.holders.iter().filter(is_outer).map(|holder| u64::from(holder.units)).sum();
        let name = escaped(lock.admin.name());
        let since = how_long(",", holder.held_for);
        let outer =
            format!("the command that this one runs under, {}{since}", name_of(&holder.label, &holder.owner));
        if taken + u64::from(lock.units) > u64::from(lock.capacity(state)) {
            let what = format!("{name} is held by {outer}: they would wait for each other");
            return Some(Failure::ours(what));
        }
        let has_room =
            |waiter: &Waiter| taken + u64::from(waiter.units) <= u64::from(capacity(state, waiter));
        let stuck = state.queue.iter().find(|waiter| !waiter.is_absent() && !has_room(waiter))?;
        let first = name_of(&stuck.label, &stuck.owner);
        Some(Failure::ours(format!(
            "{name}: {first} is ahead, and waits for {outer}: all would wait for ever"
        )))
    }
}

#[cfg(test)]
mod tests;
