//! How a caller gets a lock: it joins or makes the claim, asks, sleeps until there is a reason to ask again, and takes
//! the hold or leaves without a trace.

use std::sync::Arc;
use std::time::Instant;

use super::leave::Waited;
use crate::backend::{
    Acquired, Answer, BackendError, BackendErrorKind, HoldCountSet, LockId, Wait, or_missing,
};
use crate::backoff;
use crate::cancel::Cancel;
use crate::claim::{AfterAnswer, CallerStep, Claim, Failure, GrantedBy, Joined, Patience, Terms};
use crate::error::{Error, LostCause, Result};
use crate::ids::{FencingToken, LockKind, LockName, OwnerId};
use crate::logging::log_line;
use crate::shared::Shared;
use crate::time::MOMENT;

/// What a caller wants.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) lock: &'a LockId,
    pub(crate) owner: &'a OwnerId,
    pub(crate) terms: Terms,
    pub(crate) takes: u32,
    pub(crate) patience: &'a Patience,
}

/// What came of joining or making the claim, and since when the caller waits for it.
enum Entered {
    Held(Taken),
    Waiting(Arc<Claim>, Instant),
}

/// One hold of a claim, which is the caller's.
pub(crate) struct Taken {
    pub(crate) claim: Arc<Claim>,
    pub(crate) token: FencingToken,
}

/// An ask that is under way. Only one thread asks for a claim at a time, so a backend that panics must not leave the claim
/// without an answer for ever.
struct Asking<'a> {
    shared: &'a Shared,
    claim: &'a Arc<Claim>,
    sent: Instant,
}

impl Asking<'_> {
    fn answered(self, answer: Answer<Acquired>) -> Instant {
        let Asking { shared, claim, sent } = self;
        std::mem::forget(self);
        match &answer {
            Ok(_) => shared.schedule.heard(),
            Err(error) => {
                let (lock, owner) = (&claim.lock.name, &claim.owner);
                log_line!(debug, "fairlock::acquire",
                    event = "no answer", lock = lock.as_str(), owner = owner.as_str(), error:% = error;
                    "asking for lock {lock} failed: {error}"
                );
            }
        }
        shared.take_answer(claim, answer, sent)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let error = BackendError::new(BackendErrorKind::Unavailable, "the backend panicked");
        self.shared.take_answer(self.claim, Err(error), self.sent);
    }
}

impl Shared {
    /// Waits for the lock as long as the patience lasts. `began`: when the call did, once that is known.
    pub(super) fn obtain_uncounted(
        self: &Arc<Self>,
        wish: Wish<'_>,
        began: &mut Option<Instant>,
    ) -> Result<Option<Taken>> {
        loop {
            let mut since = None;
            let entered = self.enter(wish, &mut since);
            *began = began.or(since);
            let (claim, now) = match entered? {
                None => return Ok(None),
                Some(Entered::Held(taken)) => return Ok(Some(taken)),
                Some(Entered::Waiting(claim, now)) => (claim, now),
            };
            match self.wait_attending(&claim, wish.patience, now)? {
                Waited::Granted(token) => return Ok(Some(Taken { claim, token })),
                Waited::NotGranted => return Ok(None),
                Waited::Again => {}
            }
        }
    }

    /// Makes a request and asks once; the watchdog goes on with it while no caller waits. The result has one caller's share of
    /// the claim. None only if an earlier claim of the owner was not settled in time.
    pub(super) fn begin_uncounted(self: &Arc<Self>, wish: Wish<'_>) -> Result<Option<Arc<Claim>>> {
        let (claim, now) = match self.enter(wish, &mut None)? {
            None => return Ok(None),
            Some(Entered::Held(taken)) => return Ok(Some(taken.claim)),
            Some(Entered::Waiting(claim, now)) => (claim, now),
        };
        let step = claim.caller_step(wish.patience, now);
        if let CallerStep::Ask = step {
            self.ask(&claim, now);
        }
        // From here on the watchdog asks.
        self.schedule.due_by(claim.stop_attending());
        match step {
            CallerStep::Failed(failure) => Err(error_of(&claim.lock.name, failure)),
            CallerStep::GiveUp(give_up) => self.give_up(&claim, wish.patience, give_up).map(|_| Some(claim)),
            _ => Ok(Some(claim)),
        }
    }

    /// Waits on a claim of which the caller has a share.
    pub(super) fn wait_uncounted(&self, claim: &Arc<Claim>, patience: &Patience) -> Result<Waited> {
        claim.attend();
        self.wait_attending(claim, patience, self.now())
    }

    /// The same for a caller that attends to the claim already, as its maker does and each that joins it. `now` may be a
    /// moment ago.
    fn wait_attending(&self, claim: &Arc<Claim>, patience: &Patience, now: Instant) -> Result<Waited> {
        let _listening = patience.cancel.as_ref().map(|cancel| cancel.listen(claim));
        let waited = self.wait_step_by_step(claim, patience, now);
        // If another caller still wants it, and a wake-up came while this one left, the watchdog takes over.
        self.schedule.due_by(claim.stop_attending());
        waited
    }

    fn wait_step_by_step(&self, claim: &Arc<Claim>, patience: &Patience, mut now: Instant) -> Result<Waited> {
        let mut is_near = false;
        loop {
            // Read before the claim is: a raise in between ends the sleep at once.
            let seen = claim.signal.epoch();
            match claim.caller_step(patience, now) {
                CallerStep::Take { token, count } => {
                    // The second hold and later ones are re-entries.
                    let taken = count <= 1 || self.reenter(claim, token, count);
                    return Ok(if taken { Waited::Granted(token) } else { Waited::Again });
                }
                CallerStep::TooLate => {
                    self.unlock_unused(claim);
                    return Ok(Waited::Again);
                }
                CallerStep::Ask => {
                    let sent = now;
                    now = self.ask(claim, sent);
                    is_near = now.saturating_duration_since(sent) < MOMENT;
                }
                CallerStep::Sleep(until) => {
                    // Not where the server takes longer to answer: its message can't come that soon. And only the first in
                    // line may be granted that soon.
                    if is_near && claim.rank() == Some(0) {
                        claim.signal.watch(seen);
                    }
                    claim.signal.wait(seen, until);
                    now = self.now();
                }
                CallerStep::NotYet => return Ok(Waited::NotGranted),
                CallerStep::NotGranted if patience.wait == Wait::No => return Ok(Waited::NotGranted),
                CallerStep::NotGranted => return Ok(Waited::Again),
                CallerStep::Failed(failure) => return Err(error_of(&claim.lock.name, failure)),
                CallerStep::GiveUp(give_up) => return self.give_up(claim, patience, give_up),
            }
        }
    }

    /// Asks the server, and does what follows from the answer. `sent`: the time before the ask. Returns the time after it.
    pub(crate) fn ask(&self, claim: &Arc<Claim>, sent: Instant) -> Instant {
        let asking = Asking { shared: self, claim, sent };
        let answer = self.backend.acquire(&claim.acquire(&self.config.label));
        asking.answered(answer)
    }

    /// The same for many claims, in one call.
    pub(crate) fn ask_all(&self, claims: &[Arc<Claim>]) {
        let sent = self.now();
        let asking: Vec<_> = claims.iter().map(|claim| Asking { shared: self, claim, sent }).collect();
        let asks: Vec<_> = claims.iter().map(|claim| claim.acquire(&self.config.label)).collect();
        let answers = self.backend.acquire_all(&asks);
        for (asking, answer) in asking.into_iter().zip(or_missing(answers)) {
            asking.answered(answer);
        }
    }

    fn take_answer(&self, claim: &Arc<Claim>, answer: Answer<Acquired>, sent: Instant) -> Instant {
        let now = self.now();
        let outcome = answer.as_ref().map(Acquired::number).map_err(BackendError::clone);
        let ahead = match answer {
            Ok(Acquired::Queued { rank, .. }) if !claim.was_heard() => Some(rank),
            _ => None,
        };
        let after = claim.answered(answer, sent, now);
        // A grant that was just taken is no news.
        if !matches!(after, AfterAnswer::Granted(_)) {
            self.attempt_ended(claim, outcome, now);
        }
        let ahead = ahead.or((after == AfterAnswer::Granted(GrantedBy::FirstAsk)).then_some(0));
        self.follow(claim, after);
        if let Some(ahead) = ahead.filter(|_| claim.lock.kind != LockKind::Plain) {
            self.counters.asked(&claim.lock.name, ahead);
        }
        now
    }

    /// Does what follows from an answer.
    pub(crate) fn follow(&self, claim: &Arc<Claim>, after: AfterAnswer) {
        match after {
            AfterAnswer::Nothing => self.schedule.due_by(claim.due_at()),
            AfterAnswer::PlaceLost => {
                self.place_lost(claim);
                self.schedule.due_by(claim.due_at());
            }
            AfterAnswer::Granted(by) => {
                if by == GrantedBy::WakeUp {
                    self.counters.granted_by_answer(claim.request);
                }
                return self.granted(claim, by);
            }
            AfterAnswer::Over => self.forget(claim),
            AfterAnswer::Withdraw => self.withdraw_soon(claim),
            // A request that was dropped is withdrawn later by the thread that runs this. A shutdown withdraws once no thread
            // asks.
            AfterAnswer::Late => {}
        }
        claim.raise();
    }

    /// The server has forgotten the place, and did not put it back.
    pub(crate) fn place_lost(&self, claim: &Claim) {
        self.counters.place_lost(&claim.lock.name);
        let (lock, owner) = (&claim.lock.name, &claim.owner);
        // Many may learn of it at once, and the watchdog has logged that their places are gone.
        log_line!(debug, "fairlock::acquire",
            event = "place lost", lock = lock.as_str(), owner = owner.as_str();
            "lock {lock}: the place of {owner} was lost, it goes to the tail"
        );
    }

    /// Tells the server of one hold more. False: the server says that the hold is lost.
    fn reenter(&self, claim: &Arc<Claim>, token: FencingToken, count: u32) -> bool {
        match self.tell_hold_count(claim, token, count, "fairlock::acquire") {
            HoldCountSet::Set => true,
            HoldCountSet::Lost => {
                self.lose(claim, LostCause::Taken);
                self.unlock_unused(claim);
                false
            }
        }
    }

    /// `began`: when the call did, once that is known.
    fn enter(self: &Arc<Self>, wish: Wish<'_>, began: &mut Option<Instant>) -> Result<Option<Entered>> {
        loop {
            self.check_may_enter(wish)?;
            // Before the first request: no hold may be granted that no thread can renew.
            self.start_watchdog().map_err(|error| Error::about(&wish.lock.name, error))?;
            let now = self.now();
            let began = *began.get_or_insert(now);
            match self.join_or_make(wish, now, began) {
                (claim, Joined::Waiting) => {
                    // A drain or a shutdown that began meanwhile may have listed the claims before this one was there.
                    if !self.is_open() {
                        self.drop_share(&claim);
                        continue;
                    }
                    return Ok(Some(Entered::Waiting(claim, now)));
                }
                (claim, Joined::Held { token, count }) => {
                    if self.reenter(&claim, token, count) {
                        return Ok(Some(Entered::Held(Taken { claim, token })));
                    }
                }
                (claim, Joined::TooOften) => {
                    let reason = "it is held more often than can be counted";
                    return Err(Error::Misuse { lock: claim.lock.name.clone(), reason });
                }
                (claim, Joined::OtherKind) => {
                    let LockId { name, kind } = &claim.lock;
                    return Err(Error::about(name, BackendError::mismatch(kind.capacity(), wish.lock.kind)));
                }
                (claim, Joined::TooFew) => {
                    let reason = match claim.lock.kind {
                        LockKind::ReadWrite => {
                            "its owner has it for reading, or waits for that, and a write would wait for its own read: \
                             release the read first, then look again at what was read"
                        }
                        _ => {
                            "its owner has fewer permits, or waits for them, and the request would wait for its own hold: \
                             release those first, or ask for all at once"
                        }
                    };
                    return Err(Error::Misuse { lock: claim.lock.name.clone(), reason });
                }
                (claim, Joined::Leaving) => {
                    let give_up_at = began + self.config.outage_limit;
                    if !self.wait_until_settled(&claim, wish.patience, give_up_at)? {
                        return Ok(None);
                    }
                }
                (claim, Joined::Expired) => _ = self.lose_if_expired(&claim),
                (_, Joined::Gone) => {} // can't be: `join` replaced it under the registry's mutex
            }
        }
    }

    /// # Errors
    /// [`Error::Shutdown`] after a shutdown, and in a drain unless the owner holds the lock: re-entries are part of its work.
    fn check_may_enter(&self, wish: Wish<'_>) -> Result<()> {
        let Wish { lock: LockId { name, .. }, owner, .. } = wish;
        if self.is_open() {
            return Ok(());
        }
        let known = self.registry.get(name.as_str(), owner.as_str());
        if known.is_some_and(|claim| claim.hold_count(self.now()) > 0) {
            return self.check_running(Some(name));
        }
        Err(error_of(name, Failure::Shutdown))
    }

    /// `began`: when the call began. A new claim counts the server's silence from then: the caller heard nothing either
    /// while it waited for an earlier claim to end.
    fn join_or_make(&self, wish: Wish<'_>, now: Instant, began: Instant) -> (Arc<Claim>, Joined) {
        let join = |claim: &Arc<Claim>| match claim.join(wish.lock.kind, wish.takes, now) {
            Joined::Gone => None,
            joined => Some((Arc::clone(claim), joined)),
        };
        let make = || {
            let Wish { lock, owner, terms, takes, patience } = wish;
            let (lock, owner) = (lock.clone(), owner.clone());
            let claim = Claim::new(lock, owner, patience.wait, terms, takes, &self.config, began);
            let claim = Arc::new(claim);
            (Arc::clone(&claim), (claim, Joined::Waiting))
        };
        self.registry.get_or_make(&wish.lock.name, wish.owner, join, make)
    }

    /// Waits until the server knows of the end of an earlier claim of the same owner: where owners name places, a late
    /// withdrawal of the old claim would take the place of the new one. False: the caller's time is over.
    ///
    /// # Errors
    /// As for an ask: after one attempt for a caller that does not wait, at the end of a timed wait whose last attempt was
    /// not answered, else after the outage limit.
    fn wait_until_settled(
        &self,
        claim: &Arc<Claim>,
        patience: &Patience,
        give_up_at: Instant,
    ) -> Result<bool> {
        let _listening = patience.cancel.as_ref().map(|cancel| cancel.listen(claim));
        // An attempt of the earlier claim may still arrive: the server is told of its end after that, and not before.
        let by_owner = self.backend.keeps_place_by_owner(&claim.lock);
        let late_at = by_owner.then(|| self.schedule.chores.late_at(claim)).flatten();
        if late_at.is_some() && patience.wait == Wait::No {
            return Err(Error::about(&claim.lock.name, unsettled()));
        }
        let give_up_at = late_at.map_or(give_up_at, |at| give_up_at.max(at + self.config.outage_limit));
        let until = patience.deadline.map_or(give_up_at, |deadline| deadline.min(give_up_at));
        let Some((failed_before, _)) = claim.leaving() else { return Ok(true) };
        let (mut attempts, mut try_at) = (0, self.now());
        loop {
            let seen = claim.signal.epoch();
            let Some((failed, error)) = claim.leaving() else { return Ok(true) };
            if !self.is_open() {
                return Err(error_of(&claim.lock.name, Failure::Shutdown));
            }
            if patience.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                return Err(Error::Cancelled { lock: claim.lock.name.clone() });
            }
            let now = self.now();
            if now >= until || patience.wait == Wait::No && failed > failed_before {
                return match error {
                    Some(error) => Err(Error::about(&claim.lock.name, error)),
                    None if late_at.is_none() && patience.deadline == Some(until) => Ok(false),
                    None => Err(Error::about(&claim.lock.name, unsettled())),
                };
            }
            if now < try_at {
                claim.signal.wait(seen, Some(until.min(try_at)));
            } else if self.settle(claim) {
                attempts += 1;
                try_at = self.now() + backoff::pause(attempts);
            } else {
                // Another thread is at it, and raises the signal when it has done it or put it back.
                claim.signal.wait(seen, Some(until));
            }
        }
    }
}

fn unsettled() -> BackendError {
    let message = "the end of an earlier hold or wait of this owner could not be told to the server";
    BackendError::new(BackendErrorKind::Unavailable, message)
}

pub(crate) fn error_of(lock: &LockName, failure: Failure) -> Error {
    match failure {
        Failure::Backend(error) => Error::about(lock, error),
        Failure::Shutdown => Error::Shutdown { lock: Some(lock.clone()) },
    }
}
