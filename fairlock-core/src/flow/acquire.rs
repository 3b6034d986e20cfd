//! How a caller gets a lock: it joins or makes the claim, asks, sleeps until there is a reason to ask again, and takes
//! the hold or leaves without a trace.

use std::sync::Arc;
use std::time::Instant;

use super::ask::Asking;
use super::leave::{Waited, drop_share, give_up};
use super::release::{Releasing, tell_hold_count};
use super::turn::Turn;
use crate::backend::{Backend, BackendError, BackendErrorKind, HoldCountSet, LockId, Wait};
use crate::backoff;
use crate::cancel::Cancel;
use crate::chores::Chores;
use crate::claim::{CallerStep, Claim, Failure, Joined, Patience, Terms};
use crate::config::Config;
use crate::error::{Error, LostCause, Result};
use crate::ids::{FencingToken, LockKind, LockName, OwnerId};
use crate::ledger::Ledger;
use crate::outage::Outage;
use crate::time::MOMENT;
use crate::timers::Timers;

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

/// What a caller takes of the client, from its first ask until it has the lock or has left.
#[derive(Clone, Copy)]
pub(crate) struct Acquiring<'a> {
    pub(crate) config: &'a Arc<Config>,
    pub(crate) backend: &'a dyn Backend,
    pub(crate) ledger: &'a Ledger,
    pub(crate) timers: &'a Timers,
    pub(crate) chores: &'a Chores,
    pub(crate) outage: &'a Outage,
}

impl<'a> Acquiring<'a> {
    pub(crate) fn asking(self) -> Asking<'a> {
        let Acquiring { backend, ledger, timers, outage, .. } = self;
        Asking { backend, ledger, timers, outage }
    }

    pub(crate) fn releasing(self) -> Releasing<'a> {
        let Acquiring { backend, ledger, outage, .. } = self;
        Releasing { backend, ledger, outage }
    }

    pub(crate) fn turn(self) -> Turn<'a> {
        let Acquiring { config, backend, ledger, chores, outage, .. } = self;
        Turn::new(config, backend, ledger, chores, outage)
    }

    /// Waits for the lock as long as the patience lasts. `began`: when the call did, once that is known.
    pub(super) fn obtain_uncounted(
        &self,
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
    pub(super) fn begin_uncounted(&self, wish: Wish<'_>) -> Result<Option<Arc<Claim>>> {
        let (claim, now) = match self.enter(wish, &mut None)? {
            None => return Ok(None),
            Some(Entered::Held(taken)) => return Ok(Some(taken.claim)),
            Some(Entered::Waiting(claim, now)) => (claim, now),
        };
        let step = claim.caller_step(wish.patience, now);
        if let CallerStep::Ask = step {
            self.asking().ask(&claim, now);
        }
        // From here on the watchdog asks.
        self.timers.due_by(claim.stop_attending());
        match step {
            CallerStep::Failed(failure) => Err(error_of(&claim.lock.name, failure)),
            CallerStep::GiveUp(step) => {
                give_up(self.ledger, self.chores, &claim, wish.patience, step).map(|_| Some(claim))
            }
            _ => Ok(Some(claim)),
        }
    }

    /// Waits on a claim of which the caller has a share.
    pub(super) fn wait_uncounted(&self, claim: &Arc<Claim>, patience: &Patience) -> Result<Waited> {
        claim.attend();
        self.wait_attending(claim, patience, self.config.now())
    }

    /// The same for a caller that attends to the claim already, as its maker does and each that joins it. `now` may be a
    /// moment ago.
    fn wait_attending(&self, claim: &Arc<Claim>, patience: &Patience, now: Instant) -> Result<Waited> {
        let _listening = patience.cancel.as_ref().map(|cancel| cancel.listen(claim));
        let waited = self.wait_step_by_step(claim, patience, now);
        // If another caller still wants it, and a wake-up came while this one left, the watchdog takes over.
        self.timers.due_by(claim.stop_attending());
        waited
    }

    fn wait_step_by_step(&self, claim: &Arc<Claim>, patience: &Patience, mut now: Instant) -> Result<Waited> {
        let mut last_ask = None;
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
                    self.releasing().unlock_unused(claim);
                    return Ok(Waited::Again);
                }
                CallerStep::Ask => {
                    let sent = now;
                    now = self.asking().ask(claim, sent);
                    last_ask = Some((sent, now));
                }
                CallerStep::Sleep(until) => {
                    // Not where the server takes longer to answer: its message can't come that soon. And only the first in
                    // line may be granted that soon.
                    let is_near = last_ask.is_some_and(|(sent, answered)| answered < sent + MOMENT);
                    if is_near && claim.rank() == Some(0) {
                        claim.signal.watch(seen);
                    }
                    claim.signal.wait(seen, until);
                    now = self.config.now();
                }
                CallerStep::NotYet => return Ok(Waited::NotGranted),
                CallerStep::NotGranted if patience.wait == Wait::No => return Ok(Waited::NotGranted),
                CallerStep::NotGranted => return Ok(Waited::Again),
                CallerStep::Failed(failure) => return Err(error_of(&claim.lock.name, failure)),
                CallerStep::GiveUp(step) => return give_up(self.ledger, self.chores, claim, patience, step),
            }
        }
    }

    /// Tells the server of one hold more. False: the server says that the hold is lost.
    fn reenter(&self, claim: &Arc<Claim>, token: FencingToken, count: u32) -> bool {
        match tell_hold_count(self.backend, claim, token, count, "fairlock::acquire") {
            HoldCountSet::Set => true,
            HoldCountSet::Lost => {
                self.ledger.lose(claim, LostCause::Taken);
                self.releasing().unlock_unused(claim);
                false
            }
        }
    }

    /// `began`: when the call did, once that is known.
    fn enter(&self, wish: Wish<'_>, began: &mut Option<Instant>) -> Result<Option<Entered>> {
        loop {
            self.check_may_enter(wish)?;
            // Before the first request: no hold may be granted that no thread can renew.
            self.timers.start_watchdog().map_err(|error| Error::about(&wish.lock.name, error))?;
            let now = self.config.now();
            let began = *began.get_or_insert(now);
            match self.join_or_make(wish, now, began) {
                (claim, Joined::Waiting) => {
                    // A drain or a shutdown that began meanwhile may have listed the claims before this one was there.
                    if self.config.stop.is_closed() {
                        drop_share(self.releasing(), &claim);
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
                (claim, Joined::Expired) => _ = self.ledger.lose_if_expired(&claim),
                (_, Joined::Gone) => {} // can't be: `join` replaced it under the registry's mutex
            }
        }
    }

    /// # Errors
    /// [`Error::Shutdown`] after a shutdown, and in a drain unless the owner holds the lock: re-entries are part of its work.
    fn check_may_enter(&self, wish: Wish<'_>) -> Result<()> {
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
    fn join_or_make(&self, wish: Wish<'_>, now: Instant, began: Instant) -> (Arc<Claim>, Joined) {
        let join = |claim: &Arc<Claim>| match claim.join(wish.lock.kind, wish.takes, now) {
            Joined::Gone => None,
            joined => Some((Arc::clone(claim), joined)),
        };
        let make = || {
            let Wish { lock, owner, terms, takes, patience } = wish;
            let (lock, owner) = (lock.clone(), owner.clone());
            let claim = Claim::new(lock, owner, patience.wait, terms, takes, self.config, began);
            let claim = Arc::new(claim);
            (Arc::clone(&claim), (claim, Joined::Waiting))
        };
        self.ledger.registry.get_or_make(&wish.lock.name, wish.owner, join, make)
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
        let late_at = by_owner.then(|| self.chores.late_at(claim)).flatten();
        if late_at.is_some() && patience.wait == Wait::No {
            return Err(Error::about(&claim.lock.name, unsettled()));
        }
        let give_up_at = late_at.map_or(give_up_at, |at| give_up_at.max(at + self.config.outage_limit));
        let until = patience.deadline.map_or(give_up_at, |deadline| deadline.min(give_up_at));
        let Some((failed_before, _)) = claim.leaving() else { return Ok(true) };
        let (mut attempts, mut try_at) = (0, self.config.now());
        loop {
            let seen = claim.signal.epoch();
            let Some((failed, error)) = claim.leaving() else { return Ok(true) };
            if self.config.stop.is_closed() {
                return Err(error_of(&claim.lock.name, Failure::Shutdown));
            }
            if patience.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                return Err(Error::Cancelled { lock: claim.lock.name.clone() });
            }
            let now = self.config.now();
            if now >= until || patience.wait == Wait::No && failed > failed_before {
                return match error {
                    Some(error) => Err(Error::about(&claim.lock.name, error)),
                    None if late_at.is_none() && patience.deadline == Some(until) => Ok(false),
                    None => Err(Error::about(&claim.lock.name, unsettled())),
                };
            }
            if now < try_at {
                claim.signal.wait(seen, Some(until.min(try_at)));
            } else if self.turn().settle(self.timers, claim) {
                attempts += 1;
                try_at = self.config.now() + backoff::pause(attempts);
            } else {
                // Another thread is at it, or has an ask of the claim under way, which must not come after the withdrawal: it would
                // put the place back; or a heartbeat, which is waited for alike. That thread raises the signal when it has an answer.
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
