//! The verdict on a round: what the oracle found and no injected fault excuses.

use std::time::Duration;

use fairlock::LockKind;

use super::nemesis::{Done, Whom};
use super::{ANSWER, LEASE, LONGEST_FAULT, OUTAGE, PLACE, SLACK, kind_of};
use crate::history::Event;
use crate::oracle::{Finding, Hold, call_bounds, holds, inversions, overlaps, tokens, wake_up_gaps};

/// After a fault a waiter may count as absent for this long: it reconnects with a back-off of up to a second, and
/// then sends a heartbeat.
const RECOVERY: Duration = Duration::from_secs(3);

/// All findings, and the number of grants.
pub fn judge(events: &[Event], done: &[Done]) -> (u64, Vec<Finding>) {
    let mut holds = holds(events);
    done.iter().for_each(|done| excuse(&mut holds, done));
    // Holders that hold together may learn of their grants in any order.
    let since = |hold: &Hold| if kind_of(&hold.lock).is_shared() { hold.asked } else { hold.from };
    // A plain lock has no queue.
    let was_there = |hold: &Hold| {
        let whom = Whom::Process(hold.pid);
        let disturbs = |done: &&Done| done.whom == whom || !matches!(done.whom, Whom::Process(_));
        kind_of(&hold.lock) != LockKind::Plain
            && !done
                .iter()
                .filter(disturbs)
                .any(|done| is_active(done, hold.in_queue.unwrap_or(0), hold.from))
    };
    // Where others hold it still, the first waiter may not fit.
    let is_unexcused = |gap: &Finding| {
        !kind_of(&gap.lock).is_shared() && !done.iter().any(|done| is_active(done, gap.from, gap.until))
    };
    // The next waiter may be dead or stopped, and so may the one after it.
    let longest = LEASE + PLACE + LONGEST_FAULT + 2 * SLACK;
    // A process stopped during a call is late by that time.
    let late = LONGEST_FAULT + 4 * ANSWER + SLACK;
    let mut found = overlaps(&holds, |lock| kind_of(lock).capacity());
    found.extend(tokens(&holds, since));
    found.extend(inversions(&holds, was_there));
    found.extend(wake_up_gaps(events, PLACE / 3 + SLACK).into_iter().filter(is_unexcused));
    found.extend(wake_up_gaps(events, longest));
    found.extend(call_bounds(events, OUTAGE, late));
    (holds.len() as u64, found)
}

/// A hold that an administrator deletes is over, whatever its holder believes until it is told. If its grant was still on its way, it was
/// over before it began.
fn excuse(holds: &mut Vec<Hold>, done: &Done) {
    let Whom::HolderOf { lock, token } = &done.whom else { return };
    let had = |hold: &&mut Hold| hold.lock == *lock && hold.from <= done.until && hold.until >= done.from;
    holds.iter_mut().filter(had).for_each(|hold| hold.until = hold.from.max(done.from));
    holds.retain(|hold| hold.lock != *lock || hold.from < done.from || hold.token > *token);
}

/// Whether the fault, or what it takes to recover from it, reaches into this time.
fn is_active(done: &Done, from: u64, until: u64) -> bool {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).expect("it is short");
    done.from.saturating_sub(nanos(PLACE)) <= until && from <= done.until + nanos(RECOVERY)
}
