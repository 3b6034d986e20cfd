//! Whether what a call returned is true.

use std::sync::Arc;
use std::time::Duration;

use fairlock::CancelToken;
use fairlock::admin::LockName;
use fairlock::{Error, FencingToken, LostCause, Result};

use crate::life::{Answers, Life, Told};
use crate::server::name_of;
use crate::world::{Promise, World, locked};

/// For how long a fault may be over and still be the reason of an error: what was left undone is settled by then.
const AFTERMATH: Duration = Duration::from_secs(3);

/// For how long a caller that gives up waits for the answer to its withdrawal, and a little more.
const FAREWELL: Duration = Duration::from_millis(60);
/// With a real clock: for how long a caller may not know yet that another thread heard nothing.
const UNTOLD: Duration = Duration::from_secs(1);

/// What may be wrong with a call, beside the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reasons {
    /// A hold that it has may be lost.
    pub lost: bool,
    /// The caller may have what keeps the call from its end.
    pub misuse: bool,
    /// The name may be in use as another kind.
    pub mismatch: bool,
}

/// An error has a reason.
pub fn error(
    world: &World,
    error: &Error,
    (began, cancel): (Duration, &CancelToken),
    life: &Arc<Life>,
    what: &str,
    reasons: Reasons,
) {
    let has_reason = match error {
        Error::Cancelled { .. } => cancel.is_cancelled(),
        Error::Shutdown { .. } => life.is_shut_down(),
        Error::Unavailable { lock, .. } if !row_is_free(world, lock.as_ref(), began) => true,
        Error::Unavailable { .. } => !is_calm(world, life, began),
        Error::Lost(lost) => {
            locked(&world.holds).reported(life, lost);
            reasons.lost
        }
        Error::Misuse { .. } => reasons.misuse,
        Error::Mismatch { .. } => reasons.mismatch,
        _ => false,
    };
    if !has_reason {
        world.found(Promise::Answer, format!("{what} with {life} fails for no reason: {error}"));
    }
}

/// The name of an error.
pub fn kind(error: &Error) -> String {
    let text = format!("{error:?}");
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// A guard was given up by `unlock`, and this came of it.
pub fn end(
    world: &World,
    result: Result<()>,
    holds: &[(usize, FencingToken)],
    began: Duration,
    life: &Arc<Life>,
    was_told: bool,
) {
    world.count(&format!("unlock: {}", result.as_ref().map_or_else(kind, |()| "ok".to_owned())));
    match result {
        Ok(()) if was_told => {
            let what = format!("the loss of one of {holds:?} was told, and unlock says Ok");
            world.found(Promise::Answer, what);
        }
        Ok(()) => {}
        Err(Error::Lost(lost)) => locked(&world.holds).reported(life, &lost),
        Err(Error::Unavailable { .. }) if !is_calm(world, life, began) => {}
        Err(Error::Unavailable { ref lock, .. }) if !row_is_free(world, lock.as_ref(), began) => {}
        // The shutdown repeats a release that is under way.
        Err(Error::Shutdown { .. }) if life.is_shut_down() && !is_calm(world, life, began) => {}
        Err(error) => {
            world.found(Promise::Answer, format!("unlock of {holds:?} by {life}: {error}"));
        }
    }
}

/// "Busy" is the server's word: if the last that was heard is that it did not answer, that has to be said. The wait was to
/// end at `until`.
pub fn busy(world: &World, life: &Life, (lock, owner): (&str, &str), began: Duration, until: Duration) {
    let answers = locked(&life.fate).answered.get(&(lock.to_owned(), owner.to_owned())).copied();
    let Some(Answers { answered, failed: Some(failed), .. }) = answers else { return };
    // The withdrawal at the end of a wait is waited for a moment, and says nothing of the wait.
    let is_late = match world.manual() {
        Some(_) => failed + FAREWELL >= world.now(),
        None => failed + UNTOLD >= until,
    };
    if failed < began || is_late {
        return;
    }
    let who = world.name_of(owner);
    let what = format!(
        "{lock}: {who} hears that it is busy; there was no answer at {failed:?}, and the last one at {answered:?}"
    );
    world.found(Promise::Answer, what);
}

pub fn is_calm(world: &World, life: &Life, began: Duration) -> bool {
    let since = began.saturating_sub(AFTERMATH);
    world.weather.is_calm(life.client, since, world.now(), true) && !world.was_late(since)
}

/// Whether no other session has locked the row of this lock since then, or of any lock where none is named.
fn row_is_free(world: &World, lock: Option<&LockName>, began: Duration) -> bool {
    let lock =
        lock.and_then(|lock| (0..world.program.locks.len()).find(|number| name_of(*number) == lock.as_str()));
    world.weather.rows_are_free(lock, began.saturating_sub(AFTERMATH), world.now())
}

/// On a real server: whether a client could be reached all the time, also while others had a row locked.
pub fn could_be_reached(world: &World, life: &Life, since: Duration, until: Duration) -> bool {
    is_reachable(world, life.client, since, until, life.settings.place_ttl)
}

/// On a real server: the hold of a guard that is not renewed has a reason.
pub fn lost(world: &World, life: &Life, lock: &str, token: FencingToken) {
    let is_it = |told: &&Told| told.lost.token == token && told.lost.lock.as_str() == lock;
    let Some(Told { at, lost }) = locked(&life.fate).losses.iter().find(is_it).cloned() else { return };
    let since = at.saturating_sub(life.settings.lease);
    if world.manual().is_none()
        && lost.cause == LostCause::NotRenewed
        && row_is_free(world, Some(&lost.lock), since)
        && could_be_reached(world, life, since, at)
    {
        world.found(Promise::Kept, format!("{life}: {lost}, for no reason"));
    }
}

/// The same of a client with this time to live of a place that only such faults hit as hit all, until now.
pub fn could_all_be_reached(world: &World, since: Duration, place_ttl: Duration) -> bool {
    is_reachable(world, usize::MAX, since, world.now(), place_ttl)
}

fn is_reachable(world: &World, client: usize, since: Duration, until: Duration, place_ttl: Duration) -> bool {
    let since = since.saturating_sub(AFTERMATH);
    world.weather.is_calm(client, since, until, true) && world.stood_still(since) < place_ttl / 6
}
