//! A slow wait explains itself: a line in the log says how many are ahead, and who holds the lock.
//!
//! A look costs a call of the store, and runs on a thread of its own (`fairlock-slow`): no renewal waits for a look. There is at most one
//! look a second, for the longest wait that no line has explained, and each wait is explained once. So a client with a thousand slow
//! waits writes a line a second.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Holder, LockState};
use crate::claim::{Claim, earlier};
use crate::logging::log_line;
use crate::shared::Shared;
use crate::words::in_words;

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Explains the longest of the waits that are slow. Returns when to look again. `pause`: until when no call is made, also if the thread
/// is woken, since another wait will be slow before that.
pub(crate) fn explain(shared: &Shared, pause: &Cell<Option<Instant>>) -> Option<Instant> {
    let now = shared.now();
    if pause.get().is_some_and(|until| now < until) {
        return pause.get();
    }
    let (mut slow, mut next) = (Vec::new(), None);
    shared.ledger.registry.for_each(|claim| match claim.slow_at() {
        Some(at) if at <= now => slow.push((at, Arc::clone(claim))),
        slow_at => next = earlier(next, slow_at),
    });
    let Some((_, claim)) = slow.into_iter().min_by_key(|(at, _)| *at) else { return next };
    claim.set_explained(); // a look that fails is not repeated: outages have their own lines
    let seen = shared.backend.inspect(&claim.lock, 0..1);
    // The wait may have ended during the look: then the answer may name this owner, or the next one.
    if let (Ok(state), true) = (seen, claim.is_waiting()) {
        write_line(&claim, &state, shared.now());
        if let Some(holder) = state.holder() {
            claim.waits_for(&name_of(holder), holder);
        }
    }
    pause.set(Some(shared.now() + BETWEEN_LOOKS));
    pause.get()
}

fn write_line(claim: &Claim, state: &LockState, now: Instant) {
    let (lock, owner) = (&claim.lock.name, &claim.owner);
    let (waited, ahead) = (claim.waited(now), claim.rank());
    let in_front = ahead.map(|ahead| format!("{ahead} ahead, ")).unwrap_or_default();
    let holder = holder_of(state);
    log_line!(info, "fairlock::acquire",
        event = "slow wait", lock = lock.as_str(), owner = owner.as_str(), ahead = ahead, holder = holder.as_str(),
        waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        "lock {lock}: {owner} has waited for {}: {in_front}{holder}", to_a_tenth(waited)
    );
}

fn to_a_tenth(time: Duration) -> String {
    in_words(Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / 100 * 100))
}

/// Who holds the lock, and since when: `held by host-7:4123 for 3.9 s (token 17)`.
fn holder_of(state: &LockState) -> String {
    let Some(holder) = state.holder() else { return "held by nobody".to_owned() };
    let time = holder.held_for.map(|time| format!(" for {}", to_a_tenth(time))).unwrap_or_default();
    let token = holder.token.map(|token| format!(" (token {token})")).unwrap_or_default();
    let more = match (state.holders.len() as u64 - 1) + state.unlisted_holders {
        0 => String::new(),
        more => format!(", and by {more} more"),
    };
    format!("held by {}{time}{token}{more}", name_of(holder))
}

/// A label that another program wrote may have anything in it.
fn name_of(holder: &Holder) -> String {
    let name = holder.label.as_deref().unwrap_or(holder.owner.as_str());
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
