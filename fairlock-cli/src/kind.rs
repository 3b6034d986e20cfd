//! Kinds of locks in words: who holds a lock, and how.

use fairlock::admin::{Holder, LockState, Waiter};

use crate::duration;
use crate::names::escaped;

/// What a writer takes: all units of a read-write lock.
const ALL: u32 = u32::MAX;

/// The kind as JSON has it; none for a name that is not in use.
pub(crate) fn name_of(state: &LockState) -> Option<&'static str> {
    if state.holders.is_empty() && state.waiting() == 0 {
        return None;
    }
    Some(match state.capacity {
        Some(ALL) => "read-write",
        Some(_) => "semaphore",
        None => "exclusive",
    })
}

/// How many permits there are, of a semaphore.
pub(crate) fn permits(state: &LockState) -> Option<u32> {
    state.capacity.filter(|capacity| *capacity != ALL)
}

/// How many units the lock has for this waiter: semaphores of one name may have different numbers of permits.
pub(crate) fn capacity(state: &LockState, waiter: &Waiter) -> u32 {
    waiter.capacity.or(state.capacity).unwrap_or(1)
}

/// What a waiter wants, and of how many permits if its number is not the lock's.
pub(crate) fn wanted(state: &LockState, waiter: &Waiter) -> Option<String> {
    let of = capacity(state, waiter);
    match permits(state) {
        Some(permits) if permits != of => Some(format!("{} of {of} permits", waiter.units)),
        _ => units(state, waiter.units),
    }
}

/// What a holder has, or a waiter wants; none where all want the same.
pub(crate) fn units(state: &LockState, units: u32) -> Option<String> {
    match (state.capacity?, units) {
        (ALL, ALL) => Some("write".to_owned()),
        (ALL, _) => Some("read".to_owned()),
        (_, 1) => Some("1 permit".to_owned()),
        (_, n) => Some(format!("{n} permits")),
    }
}

/// Who holds the lock, and for how long: `held by a for 3s`, `read by a for 3s and 2 more`.
pub(crate) fn held_by(state: &LockState) -> String {
    let Some(first) = state.holder() else { return "not held".to_owned() };
    let how = match (state.capacity, first.units) {
        (None, _) => None,
        (Some(ALL), ALL) => Some("written".to_owned()),
        (Some(ALL), _) => Some("read".to_owned()),
        (Some(permits), _) => Some(format!("{} of {permits} permits held", state.taken())),
    };
    let how = how.unwrap_or_else(|| "held".to_owned());
    let since = first.held_for.map(|time| format!(" for {}", duration::show(time))).unwrap_or_default();
    format!("{how} by {}{since}{}", holder_name(first), and_more(state))
}

/// The holders beside the first.
pub(crate) fn and_more(state: &LockState) -> String {
    match state.holders.len() {
        0 | 1 => String::new(),
        n => format!(" and {} more", n - 1),
    }
}

/// How many waits have begun each second since the first listed waiter, who has this rank, began to wait. In a queue that is as long as
/// then, as many have ended. Empty if nobody waits.
pub(crate) fn waits_per_second(state: &LockState, rank: u64) -> String {
    let first = state.queue.iter().find(|waiter| !waiter.is_absent());
    let Some(time) = first.and_then(|waiter| waiter.waiting) else { return String::new() };
    #[allow(clippy::cast_precision_loss, reason = "no queue is that long")]
    let begun = state.waiting().saturating_sub(rank) as f64;
    format!("{:.1}", begun / time.as_secs_f64().max(0.001))
}

/// The label, or the owner.
pub(crate) fn holder_name(holder: &Holder) -> String {
    escaped(holder.label.as_deref().unwrap_or_else(|| holder.owner.as_str()))
}
