//! Kinds of locks in words: who holds a lock, and how.

use fairlock::admin::{Holder, LockState};

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

/// What a holder has, or a waiter wants; none where all want the same.
pub(crate) fn units(state: &LockState, units: u32) -> Option<String> {
    match (state.capacity?, units) {
        (ALL, ALL) => Some("write".to_owned()),
        (ALL, _) => Some("read".to_owned()),
        (_, 1) => Some("1 permit".to_owned()),
        (_, n) => Some(format!("{n} permits")),
    }
}

/// Who holds the lock, and for how long: `held by a for 3s`, `read by a for 3s and 2 more`; or `kept for 4m00s more after the end of a`.
pub(crate) fn held_by(state: &LockState) -> String {
    let Some(first) = state.holder() else { return "not held".to_owned() };
    let how = match (state.capacity, first.units) {
        (None, _) => None,
        (Some(ALL), ALL) => Some("written".to_owned()),
        (Some(ALL), _) => Some("read".to_owned()),
        (Some(permits), _) => Some(format!("{} of {permits} permits held", state.taken())),
    };
    let by = match (kept(first), how) {
        (Some(kept), None) => kept,
        (Some(kept), Some(how)) => format!("{how}, {kept}"),
        (None, how) => {
            let how = how.unwrap_or_else(|| "held".to_owned());
            let since =
                first.held_for.map(|time| format!(" for {}", duration::show(time))).unwrap_or_default();
            format!("{how} by {}{since}", holder_name(first))
        }
    };
    by + &and_more(state)
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

/// For how long it is still kept, if nothing runs under it any more.
pub(crate) fn kept(holder: &Holder) -> Option<String> {
    let left =
        holder.lease_left.map(|left| format!(" for {} more", duration::show(left))).unwrap_or_default();
    (holder.hold_count == 0).then(|| format!("kept{left} after the end of {}", holder_name(holder)))
}

/// The label, or the owner.
pub(crate) fn holder_name(holder: &Holder) -> String {
    escaped(holder.label.as_deref().unwrap_or_else(|| holder.owner.as_str()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairlock::owner::OwnerId;

    use super::*;

    #[test]
    fn a_lock_that_is_kept_is_held_by_nobody() {
        let mut state = LockState::default();
        let mut kept = Holder::new(OwnerId::new("a:1"), 0);
        (kept.lease_left, kept.held_for) = (Some(Duration::from_secs(240)), Some(Duration::from_secs(9)));
        let running = Holder::new(OwnerId::new("b:1"), 1);
        for (capacity, holders, text) in [
            (None, vec![&kept], "kept for 4m00s more after the end of a:1"),
            (None, vec![&running], "held by b:1"),
            (Some(ALL), vec![&kept, &running], "read, kept for 4m00s more after the end of a:1 and 1 more"),
            (Some(5), vec![&kept], "1 of 5 permits held, kept for 4m00s more after the end of a:1"),
            (Some(5), vec![&running, &kept], "2 of 5 permits held by b:1 and 1 more"),
        ] {
            state.capacity = capacity;
            state.holders = holders.into_iter().cloned().collect();
            state.holders.iter_mut().for_each(|holder| holder.units = 1);
            assert_eq!(held_by(&state), text);
        }
    }
}
