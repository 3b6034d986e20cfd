//! How a caller gets a lock: it joins or makes the claim, asks, sleeps until there is a reason to ask again, and takes
//! the hold or leaves without a trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Parts;
use super::counted::{count, end_of, without};
use super::leave::{WaitOutcome, give_up};
use crate::backend::{BackendError, LockId, Wait};
use crate::claim::{CallerStep, Claim, Failure, Joined, Patience, Terms};
use crate::error::{Busy, Error, Result};
use crate::ids::{FencingToken, LockKind, LockName, OwnerId};
use crate::stats::Outcome;
use crate::time::MOMENT;

/// What a caller wants.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) lock: &'a LockId,
    pub(crate) owner: &'a OwnerId,
    pub(crate) terms: Terms,
    pub(crate) units: u32,
    pub(crate) patience: &'a Patience,
}

/// The claim that the caller joined or made, and since when the caller waits for it.
enum Entered {
    Held(Taken),
    Waiting(Arc<Claim>, Instant),
}

/// The caller's hold: one of those that the claim counts.
pub(crate) struct Taken {
    pub(crate) claim: Arc<Claim>,
    pub(crate) token: FencingToken,
}

impl Parts<'_> {
    /// Waits for the lock as long as the patience lasts.
    pub(crate) fn obtain(self, wish: Wish<'_>) -> Result<std::result::Result<Taken, Busy>> {
        let _here = self.config.clock.attend();
        let began = self.config.now();
        let obtained = self.obtain_since(wish, began);
        let is_granted = obtained.as_ref().map(std::result::Result::is_ok);
        count(&self.ledger.counters, self.config, wish.lock, wish.patience.wait, is_granted, Some(began));
        obtained
    }

    fn obtain_since(self, wish: Wish<'_>, mut began: Instant) -> Result<std::result::Result<Taken, Busy>> {
        loop {
            let (claim, now) = match self.enter(wish, began)? {
                None => {
                    return Ok(Err(Busy {
                        lock: wish.lock.name.clone(),
                        waited: self.config.now() - began,
                        slow_wait: None,
                    }));
                }
                Some(Entered::Held(taken)) => return Ok(Ok(taken)),
                Some(Entered::Waiting(claim, now)) => (claim, now),
            };
            match self.wait_on(&claim, wish.patience, now)? {
                WaitOutcome::Granted(token) => return Ok(Ok(Taken { claim, token })),
                WaitOutcome::NotGranted => return Ok(Err(claim.busy())),
                WaitOutcome::Again => began = self.config.now(),
            }
        }
    }

    /// Makes a request and asks once; the watchdog goes on with it while no caller waits. The result has one caller's share of
    /// the claim. None only if an earlier claim of the owner was not settled in time.
    pub(crate) fn begin(self, wish: Wish<'_>) -> Result<Option<Arc<Claim>>> {
        let _here = self.config.clock.attend();
        let begun = self.enter(wish, self.config.now()).and_then(|entered| match entered {
            None => Ok(None),
            Some(Entered::Held(taken)) => Ok(Some(taken.claim)),
            Some(Entered::Waiting(claim, now)) => self.ask_once(claim, wish.patience, now),
        });
        if let Some(outcome) = begun.as_ref().err().and_then(Outcome::of) {
            self.ledger.counters.not_granted(wish.lock, outcome, Duration::ZERO);
        }
        begun
    }

    fn ask_once(self, claim: Arc<Claim>, patience: &Patience, now: Instant) -> Result<Option<Arc<Claim>>> {
        let step = claim.caller_step(patience, now);
        if let CallerStep::Ask = step {
            self.for_caller(&claim, || self.ask(&claim, now));
        }
        // From here on the watchdog asks.
        self.timers.due_by(claim.stop_attending());
        let begun = match step {
            CallerStep::Failed(failure) => Err(error_of(&claim.lock.name, failure)),
            CallerStep::GiveUp(step) => {
                give_up(self.ledger, self.backlog, &claim, patience, step).map(|_| ())
            }
            _ => Ok(()),
        };
        if begun.is_err() {
            claim.end_wait(end_of(&begun, ""));
        }
        begun.map(|()| Some(claim))
    }

    /// Waits for a claim that counts the caller.
    pub(crate) fn wait_for(self, claim: &Arc<Claim>, patience: &Patience) -> Result<WaitOutcome> {
        let _here = self.config.clock.attend();
        claim.attend();
        let waited = self.wait_on(claim, patience, self.config.now());
        let outcome = match &waited {
            // A request that keeps its place goes on.
            Ok(WaitOutcome::NotGranted) if !patience.keeps_place => Some(Outcome::TimedOut),
            Ok(_) => None,
            Err(error) => Outcome::of(error),
        };
        if let Some(outcome) = outcome {
            self.ledger.counters.not_granted(&claim.lock, outcome, claim.waited(self.config.now()));
        }
        waited
    }

    /// Waits for a claim to which the caller attends: as the maker of the claim does, and each caller that joins it. `now` may be
    /// a moment ago.
    fn wait_on(self, claim: &Arc<Claim>, patience: &Patience, mut now: Instant) -> Result<WaitOutcome> {
        let _listening = patience.cancel.as_ref().map(|cancel| cancel.listen(claim));
        let mut last_ask = None;
        let waited = loop {
            // The signal is read before the claim: a raise in between ends the sleep at once.
            let seen = claim.signal.generation();
            match claim.caller_step(patience, now) {
                CallerStep::Take { token } => break Ok(WaitOutcome::Granted(token)),
                CallerStep::TooLate => {
                    self.unlock_unused(claim);
                    break Ok(WaitOutcome::Again);
                }
                CallerStep::Ask => {
                    let sent = now;
                    now = self.for_caller(claim, || self.ask(claim, sent));
                    last_ask = Some((sent, now));
                }
                CallerStep::Sleep(until) => {
                    // No spin if the server takes longer to answer: a message can't come so soon either. And only the first
                    // in the queue spins: nobody behind is granted so soon.
                    let is_near = last_ask.is_some_and(|(sent, answered)| answered < sent + MOMENT);
                    if is_near && claim.rank() == Some(0) {
                        claim.signal.watch(seen);
                    }
                    claim.signal.wait(seen, until);
                    now = self.config.now();
                }
                CallerStep::NotYet => break Ok(WaitOutcome::NotGranted),
                CallerStep::NotGranted if patience.wait == Wait::No => break Ok(WaitOutcome::NotGranted),
                CallerStep::NotGranted => break Ok(WaitOutcome::Again),
                CallerStep::Failed(failure) => break Err(error_of(&claim.lock.name, failure)),
                CallerStep::GiveUp(step) => break give_up(self.ledger, self.backlog, claim, patience, step),
            }
        };
        // If another caller still wants the lock, and a wake-up came while this caller left, the watchdog takes over.
        self.timers.due_by(claim.stop_attending());
        match &waited {
            Ok(WaitOutcome::Granted(token)) => claim.begin_hold(*token),
            Ok(WaitOutcome::Again) => claim.end_wait("lost"),
            _ => claim.end_wait(end_of(&waited, without(patience.wait).name())),
        }
        waited
    }

    /// `began`: when the call began.
    fn enter(self, wish: Wish<'_>, began: Instant) -> Result<Option<Entered>> {
        let mut now = began;
        loop {
            self.check_may_enter(wish)?;
            // The watchdog starts before the first request: no hold may be granted that no thread can renew.
            self.timers.start_watchdog().map_err(|error| Error::about(&wish.lock.name, error))?;
            let (claim, joined) = self.join_or_make(wish, now, began);
            match joined {
                // A drain or a shutdown that began meanwhile may have listed the claims without this claim.
                Joined::Waiting if self.config.stop.is_closed() => self.drop_share(&claim),
                Joined::Waiting => {
                    claim.begin_wait();
                    return Ok(Some(Entered::Waiting(claim, now)));
                }
                Joined::Held { token } => return Ok(Some(Entered::Held(Taken { claim, token }))),
                Joined::OtherKind => {
                    let LockId { name, kind } = &claim.lock;
                    return Err(Error::about(name, BackendError::mismatch(kind.capacity(), wish.lock.kind)));
                }
                Joined::TooOften => return Err(misuse(&claim, "it is held more often than can be counted")),
                Joined::TooFew => return Err(misuse(&claim, would_wait_for_itself(claim.lock.kind))),
                Joined::Leaving => {
                    if !self.settle_former(&claim, wish.patience, began)? {
                        return Ok(None);
                    }
                }
                Joined::Expired => _ = self.ledger.lose_if_expired(&claim),
                Joined::Gone => {} // can't be: `join` replaced it under the registry's mutex
            }
            now = self.config.now();
        }
    }

    /// # Errors
    /// [`Error::Shutdown`] after a shutdown, and in a drain unless the owner holds the lock: re-entries are part of its work.
    fn check_may_enter(self, wish: Wish<'_>) -> Result<()> {
        let Wish { lock: LockId { name, .. }, owner, .. } = wish;
        if !self.config.stop.is_closed() {
            return Ok(());
        }
        let known = self.ledger.registry.get(name.as_str(), owner.as_str());
        if known.is_some_and(|claim| claim.hold_count(self.config.now()) > 0) {
            return self.config.check_running(Some(name));
        }
        Err(error_of(name, Failure::Shutdown))
    }

    /// `began`: when the call began. A new claim counts the server's silence from then: the caller heard nothing either
    /// while it waited for an earlier claim to end.
    fn join_or_make(self, wish: Wish<'_>, now: Instant, began: Instant) -> (Arc<Claim>, Joined) {
        let join = |claim: &Arc<Claim>| match claim.join(wish.lock.kind, wish.units, now) {
            Joined::Gone => None,
            joined => Some((Arc::clone(claim), joined)),
        };
        let make = || {
            let Wish { lock, owner, terms, units, patience } = wish;
            let (lock, owner) = (lock.clone(), owner.clone());
            let claim = Claim::new(lock, owner, patience.wait, terms, units, self.config, began);
            let claim = Arc::new(claim);
            (Arc::clone(&claim), (claim, Joined::Waiting))
        };
        self.ledger.registry.get_or_make(&wish.lock.name, wish.owner, join, make)
    }
}

fn misuse(claim: &Claim, reason: &'static str) -> Error {
    Error::Misuse { lock: claim.lock.name.clone(), reason: reason.to_owned() }
}

fn would_wait_for_itself(kind: LockKind) -> &'static str {
    match kind {
        LockKind::ReadWrite => {
            "a read lock can't become a write lock: the write would wait for its own read; release the read lock first, then write"
        }
        _ => {
            "this owner has fewer permits, or waits for fewer, and the request would wait for its own hold: release those permits \
             first, or ask for all at once"
        }
    }
}

pub(crate) fn error_of(lock: &LockName, failure: Failure) -> Error {
    match failure {
        Failure::Backend(error) => Error::about(lock, error),
        Failure::Shutdown => Error::Shutdown { lock: Some(lock.clone()) },
    }
}
