//! A slow wait explains itself: a line in the log says how many are ahead, and who holds the lock. The line is counted, and
//! `Busy` says the same if the wait runs out.
//!
//! A look costs a call of the store, and runs on a thread of its own (`fairlock-slow`): no renewal waits for a look. There is at most one
//! look a second, for the longest wait that no line has explained, and each wait is explained once. So a client with a thousand slow
//! waits writes a line a second.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::LockState;
use crate::claim::{Claim, earlier};
use crate::error::{SlowWait, held_by, name_of, to_a_tenth};
use crate::logging::log_line;
use crate::shared::Shared;

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Explains the longest of the waits that are slow. Returns when to look again. `pause`: until when no call is made, also if the thread
/// is woken, since another wait will be slow before that.
pub(crate) fn explain(shared: &Shared, pause: &Cell<Option<Instant>>) -> Option<Instant> {
    let now = shared.now();
    if pause.get().is_some_and(|until| now < until) {
        return pause.get();
    }
    let (mut slow, mut next) = (Vec::new(), None);
    // All of them are kept until the registry's mutex is free: a claim that is dropped may run a subscriber of the program.
    shared.ledger.registry.for_each(|claim| match claim.slow_at() {
        Some(at) if at <= now => slow.push((at, Arc::clone(claim))),
        slow_at => next = earlier(next, slow_at),
    });
    let Some((_, claim)) = slow.into_iter().min_by_key(|(at, _)| *at) else { return next };
    claim.set_explained(); // a look that fails is not repeated: outages have their own lines
    let seen = shared.backend.inspect(&claim.lock, 0..0);
    // The wait may have ended during the look: then the answer may name this owner, or the next one. Nor is there anything to explain if
    // the request was granted, and the client does not know it yet.
    let is_granted = |state: &LockState| state.holders.iter().any(|of| of.request == Some(claim.request));
    if let (Ok(state), true) = (seen, claim.is_waiting())
        && !is_granted(&state)
    {
        let (waited, ahead) = (claim.waited(shared.now()), claim.rank());
        let held_by = held_by(&state, &claim.owner, claim.is_tasks());
        let seen = Arc::new(SlowWait { waited, ahead, state, held_by });
        claim.set_seen(Arc::clone(&seen));
        write_line(&claim, &seen);
        if let Some(holder) = seen.state.holder() {
            claim.waits_for(&name_of(holder), holder);
        }
        shared.ledger.counters.slow_wait(&claim.lock);
    }
    pause.set(Some(shared.now() + BETWEEN_LOOKS));
    pause.get()
}

fn write_line(claim: &Claim, seen: &SlowWait) {
    let (lock, owner, holder) = (&claim.lock.name, &claim.owner, &seen.held_by);
    log_line!(info, "fairlock::acquire",
        event = "slow wait", lock = lock.as_str(), owner = owner.as_str(), ahead = seen.ahead, holder = holder.as_str(),
        waited_ms = u64::try_from(seen.waited.as_millis()).unwrap_or(u64::MAX);
        "lock {lock}: {owner} has waited for {}: {seen}", to_a_tenth(seen.waited)
    );
}
