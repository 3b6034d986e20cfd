//! What the program is shown of a claim: in the client's lists, of a slow wait, and in spans.
//!
//! The spans are for feature `tracing`; without the feature they do nothing. `docs/reference.md` has the names and fields.
//!
//! | span | begins | ends |
//! | --- | --- | --- |
//! | `fairlock.wait` | when the claim is made, before the first ask | when a caller takes the hold, or the last one leaves without it |
//! | `fairlock.hold` | when a caller takes the hold | when the last one has unlocked it, even if it was lost before |
//!
//! So both begin and end in calls, polls and drops of the program; the client's threads only note what a span is to say. A subscriber
//! and the function that reads a traceparent are the program's code: they run without our mutexes, since a span is moved out of `Open`
//! before it is used and dropped, and their panics end here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[cfg(feature = "tracing")]
pub(super) use traced::Spans;

use super::{Claim, Phase};
use crate::error::{Busy, SlowWait};
use crate::ids::{FencingToken, LockKind, LockName, OwnerId};

/// A hold of this client, see [`Client::held`](crate::Client::held).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeldLock {
    /// The lock.
    pub lock: LockName,
    /// Its kind.
    pub kind: LockKind,
    /// The owner that holds the lock.
    pub owner: OwnerId,
    /// How many units the hold takes.
    pub units: u32,
    /// The fencing token.
    pub token: FencingToken,
    /// The hold count: guards and leaked holds.
    pub hold_count: u32,
    /// How many of these holds were leaked: no guard will release them.
    pub leaked: u32,
    /// How long ago the hold was granted.
    pub held_for: Duration,
    /// For how long the hold is certain without another renewal.
    pub valid_for: Duration,
}

/// A request of this client that waits, see [`Client::waiting`](crate::Client::waiting).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaitingRequest {
    /// The lock.
    pub lock: LockName,
    /// Its kind.
    pub kind: LockKind,
    /// The owner that waits for the lock.
    pub owner: OwnerId,
    /// How many units the request waits for.
    pub units: u32,
    /// How many waiters are ahead, as last heard; 0 is next. None for a plain lock, and before the first answer.
    pub rank: Option<u64>,
    /// For how long it has waited.
    pub waiting_for: Duration,
}

impl Claim {
    /// From when on the wait is slow, and is to be explained. None if nothing is to be explained: the claim does not wait, the server has not
    /// answered yet, or a line was written.
    pub(crate) fn slow_at(&self) -> Option<Instant> {
        let state = self.lock_state();
        let waits = matches!(state.phase, Phase::Waiting(_)) && state.contact.heard.is_some();
        let is_due = waits && !self.explained.load(Ordering::Relaxed);
        self.since.checked_add(self.config.slow_wait).filter(|_| is_due)
    }

    /// The slow wait is explained, or can't be.
    pub(crate) fn set_explained(&self) {
        self.explained.store(true, Ordering::Relaxed);
    }

    /// What the explanation of the slow wait has shown.
    pub(crate) fn set_seen(&self, seen: Arc<SlowWait>) {
        let _ = self.seen.set(seen); // each wait is explained once
    }

    /// For a caller or a task whose wait is over. A look that is under way is not waited for.
    pub(crate) fn busy(&self) -> Busy {
        Busy {
            lock: self.lock.name.clone(),
            waited: self.waited(self.config.now()),
            slow_wait: self.seen.get().cloned(),
            declined: self.declined(),
        }
    }

    /// How long the hold is certain without another renewal; zero without a hold.
    pub(crate) fn valid_for(&self, now: Instant) -> Duration {
        self.valid_until().map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Its entry in the list of what a client holds.
    pub(crate) fn as_held(&self, now: Instant) -> Option<HeldLock> {
        let state = self.lock_state();
        state.certain(now).map(|held| HeldLock {
            lock: self.lock.name.clone(),
            kind: self.lock.kind,
            owner: self.owner.clone(),
            units: self.units,
            token: held.token,
            hold_count: held.count,
            leaked: held.leaked,
            held_for: now.saturating_duration_since(held.since),
            valid_for: held.valid_until.saturating_duration_since(now),
        })
    }

    /// Its entry in the list of what a client waits for.
    pub(crate) fn as_waiting(&self, now: Instant) -> Option<WaitingRequest> {
        let Phase::Waiting(waiting) = &self.lock_state().phase else { return None };
        Some(WaitingRequest {
            lock: self.lock.name.clone(),
            kind: self.lock.kind,
            owner: self.owner.clone(),
            units: self.units,
            rank: waiting.place.rank,
            waiting_for: now.saturating_duration_since(self.since),
        })
    }

    /// For how long its callers have waited, or did before they gave up just now.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

#[cfg(feature = "tracing")]
mod traced {
    use std::mem;
    use std::sync::{Arc, OnceLock};

    use parking_lot::Mutex;
    use tracing::field::Empty;
    use tracing::{Span, info_span};

    use crate::backend::{Holder, label_with_traceparent};
    use crate::claim::{Claim, Phase};
    use crate::ids::{FencingToken, KINDS};
    use crate::logging::log_safely;

    #[derive(Default)]
    pub(in crate::claim) struct Spans {
        /// The client's label and the program's traceparent, if it has one.
        label: OnceLock<String>,
        open: Mutex<Open>,
    }

    #[derive(Default)]
    struct Open {
        has_begun: bool,
        is_taken: bool,
        rank: Option<u64>,
        wait: Option<Arc<Span>>,
        hold: Option<Arc<Span>>,
    }

    impl Drop for Spans {
        /// Closes what a panic or a leaked hold left open. A claim is not dropped under a mutex.
        fn drop(&mut self) {
            let Open { wait, hold, .. } = mem::take(self.open.get_mut());
            close(wait);
            close(hold);
        }
    }

    impl Claim {
        /// Begins the wait, before the first ask. Every caller of the owner that comes to the claim calls this; only the first call counts.
        pub(crate) fn begin_wait(&self) {
            if mem::replace(&mut self.spans.open.lock().has_begun, true) {
                return;
            }
            let Claim { lock, config, .. } = self;
            if let Some(read) = &config.traceparent.0 {
                log_safely(|| {
                    let label = read().and_then(|given| label_with_traceparent(&config.label, &given));
                    let _ = label.map(|label| self.spans.label.set(label));
                });
            }
            let wait = made(|| {
                info_span!(
                    target: "fairlock::span", "fairlock.wait", lock = lock.name.as_str(), kind = KINDS[lock.kind.place()],
                    rank = Empty, token = Empty, outcome = Empty, holder = Empty, holder.token = Empty,
                    holder.traceparent = Empty, holder.trace_id = Empty
                )
            });
            self.spans.open.lock().wait = wait;
        }

        /// The label that the server gets.
        pub(crate) fn sent_label(&self) -> &str {
            self.spans.label.get().map_or(&self.config.label, |label| label)
        }

        /// Notes for the end of the wait how many were ahead by the first answer.
        pub(crate) fn stands_at(&self, rank: Option<u64>) {
            let open = &mut *self.spans.open.lock();
            open.rank = open.rank.or(rank);
        }

        /// A caller has taken the hold. The other callers of the owner share its span.
        pub(crate) fn begin_hold(&self, token: FencingToken) {
            if !mem::replace(&mut self.spans.open.lock().is_taken, true) {
                let lock = &self.lock;
                let hold = made(|| {
                    info_span!(
                        target: "fairlock::span", "fairlock.hold", lock = lock.name.as_str(),
                        kind = KINDS[lock.kind.place()], token = token.get(), outcome = Empty
                    )
                });
                self.spans.open.lock().hold = hold;
            }
            // Another caller may have taken the hold before this one's `begin_wait` had its span.
            self.close_wait("granted", Some(token));
        }

        /// A caller has left without the hold. The wait goes on if others wait, or if the request keeps its place. If the lock was granted
        /// to them since this caller left, the wait ends when they take the hold.
        pub(crate) fn end_wait(&self, outcome: &str) {
            if self.is_unlocked() {
                self.close_wait(outcome, None);
            }
        }

        fn close_wait(&self, outcome: &str, token: Option<FencingToken>) {
            let (wait, rank) = {
                let open = &mut *self.spans.open.lock();
                (open.wait.take(), open.rank)
            };
            if let Some(wait) = &wait {
                log_safely(|| {
                    wait.record("rank", rank).record("token", token.map(FencingToken::get));
                    wait.record("outcome", outcome);
                });
            }
            close(wait);
        }

        /// A caller has unlocked the hold. The hold lasts on if the owner has others.
        pub(crate) fn end_hold(&self, outcome: &str) {
            let outcome = match &self.lock_state().phase {
                Phase::Leaving(leaving) if leaving.end.lost.is_some() => "lost",
                Phase::Over(end) if end.lost.is_some() => "lost",
                Phase::Leaving(_) | Phase::Over(_) => outcome,
                _ => return,
            };
            let hold = self.spans.open.lock().hold.take();
            if let Some(hold) = &hold {
                log_safely(|| _ = hold.record("outcome", outcome));
            }
            close(hold);
        }

        /// A look at the lock of a slow wait has found this holder, under this name.
        pub(crate) fn waits_for(&self, name: &str, holder: &Holder) {
            let wait = self.spans.open.lock().wait.clone();
            if let Some(wait) = &wait {
                log_safely(|| {
                    wait.record("holder", name);
                    wait.record("holder.token", holder.token.map(FencingToken::get));
                    let Some(traceparent) = holder.traceparent.as_deref() else { return };
                    wait.record("holder.traceparent", traceparent);
                    wait.record("holder.trace_id", traceparent.split('-').nth(1));
                });
            }
            close(wait);
        }
    }

    /// None if no subscriber wants the span.
    fn made(make: impl FnOnce() -> Span) -> Option<Arc<Span>> {
        let mut made = None;
        log_safely(|| made = Some(make()).filter(|span| !span.is_disabled()).map(Arc::new));
        made
    }

    /// On its own: a span that is dropped while a panic of the subscriber unwinds could end the process.
    fn close(span: Option<Arc<Span>>) {
        log_safely(|| drop(span));
    }
}

#[cfg(not(feature = "tracing"))]
mod silent {
    use crate::backend::Holder;
    use crate::claim::Claim;
    use crate::ids::FencingToken;

    impl Claim {
        pub(crate) fn begin_wait(&self) {}

        pub(crate) fn sent_label(&self) -> &str {
            &self.config.label
        }

        pub(crate) fn stands_at(&self, _: Option<u64>) {}

        pub(crate) fn begin_hold(&self, _: FencingToken) {}

        pub(crate) fn end_wait(&self, _: &str) {}

        pub(crate) fn end_hold(&self, _: &str) {}

        pub(crate) fn waits_for(&self, _: &str, _: &Holder) {}
    }
}
