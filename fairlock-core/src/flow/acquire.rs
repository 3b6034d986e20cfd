//! How a caller gets a lock: it joins or makes the claim, asks, sleeps until there is a reason to ask again, and takes
//! the hold or leaves without a trace.
//!
//! Before, it waits for the end of its owner's former claim: where owners name places, a late withdrawal of the former claim would take
//! the place of the next one. The watchdog and the threads for tasks ask with the same [`Parts::ask`].

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cleanup::CleanupRun;
use super::{Parts, Share, WaitOutcome, count, end_of, without};
use crate::backend::{
    Acquired, Answer, BackendError, BackendErrorKind, Condition, Hold, LockId, Renewal, Wait, only,
    or_missing,
};
use crate::claim::{AfterAnswer, CallerStep, Claim, Failure, GrantedBy, Joined, Patience, Terms};
use crate::error::{Busy, Error, Result};
use crate::ids::{FencingToken, LockKind, LockName, OwnerId};
use crate::logging::log_line;
use crate::stats::{Event, Outcome};
use crate::time::{self, CancelToken, MOMENT};

/// What a caller wants.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) lock: &'a LockId,
    pub(crate) owner: &'a OwnerId,
    pub(crate) terms: Terms,
    pub(crate) units: u32,
    pub(crate) patience: &'a Patience,
}

/// The caller's hold: one of those that the claim counts.
pub(crate) struct Taken {
    pub(crate) claim: Arc<Claim>,
    pub(crate) token: FencingToken,
}

/// The claim that the caller joined or made, and since when the caller waits for it.
enum Entered {
    Held(Taken),
    Waiting(Arc<Claim>, Instant),
}

impl Parts<'_> {
    /// Waits for the lock as long as the patience lasts.
    pub(crate) fn obtain(self, wish: Wish<'_>) -> Result<std::result::Result<Taken, Busy>> {
        let _here = self.config.clock.attend();
        let began = self.config.now();
        let mut since = began;
        let obtained = loop {
            let (claim, now) = match self.enter(wish, since) {
                Ok(None) => {
                    let (lock, waited) = (wish.lock.name.clone(), self.config.now() - since);
                    break Ok(Err(Busy { lock, waited, slow_wait: None, declined: None }));
                }
                Ok(Some(Entered::Held(taken))) => break Ok(Ok(taken)),
                Ok(Some(Entered::Waiting(claim, now))) => (claim, now),
                Err(error) => break Err(error),
            };
            match self.wait_on(&claim, wish.patience, now) {
                Ok(WaitOutcome::Granted(token)) => break Ok(Ok(Taken { claim, token })),
                Ok(WaitOutcome::NotGranted) => break Ok(Err(claim.busy())),
                Ok(WaitOutcome::Again) => since = self.config.now(),
                Err(error) => break Err(error),
            }
        };
        let is_granted = obtained.as_ref().map(std::result::Result::is_ok);
        count(&self.ledger.counters, self.config, wish.lock, wish.patience.wait, is_granted, Some(began));
        obtained
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
            self.ledger.counters.happened(wish.lock, Event::NotGranted(outcome, Duration::ZERO));
        }
        begun
    }

    fn ask_once(self, claim: Arc<Claim>, patience: &Patience, now: Instant) -> Result<Option<Arc<Claim>>> {
        let step = claim.caller_step(patience, now);
        if let CallerStep::Ask = step {
            self.ask_for_caller(&claim, now);
        }
        // From here on the watchdog asks.
        self.timers.due_by(claim.stop_attending());
        let begun = match step {
            CallerStep::Failed(failure) => Err(error_of(&claim.lock.name, failure)),
            CallerStep::GiveUp(step) => self.give_up_request(&claim, patience, step).map(|_| ()),
            _ => Ok(()),
        };
        if begun.is_err() {
            claim.end_wait(end_of(&begun, ""));
        }
        begun.map(|()| Some(claim))
    }

    /// Takes a hold over that another client has handed over. Its claim is new, and so is the claim's owner.
    pub(crate) fn adopt(self, claim: &Arc<Claim>) -> Result<FencingToken> {
        let _here = self.config.clock.attend();
        let name = &claim.lock.name;
        self.timers.start_watchdog().map_err(|error| Error::about(name, error))?;
        let make = || (Arc::clone(claim), ());
        self.ledger.registry.get_or_make(name, &claim.owner, |_: &Arc<Claim>| None, make);
        // A drain or a shutdown that began meanwhile may have listed the claims without this claim.
        if self.config.stop.is_closed() {
            self.drop_share(claim);
            return Err(error_of(name, Failure::Shutdown));
        }
        claim.begin_wait();
        let (wait, condition) = (Wait::Forever, Condition::default());
        let patience = Patience { wait, deadline: None, cancel: None, condition, keeps_place: false };
        match self.wait_on(claim, &patience, self.config.now())? {
            WaitOutcome::Granted(token) => Ok(token),
            WaitOutcome::NotGranted | WaitOutcome::Again => Err(Error::Lost(claim.not_adopted())),
        }
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
            let waited = claim.waited(self.config.now());
            self.ledger.counters.happened(&claim.lock, Event::NotGranted(outcome, waited));
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
                    now = self.ask_for_caller(claim, sent);
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
                CallerStep::Declined if patience.condition.is_some() => break Ok(WaitOutcome::NotGranted),
                CallerStep::NotGranted if patience.wait == Wait::No => break Ok(WaitOutcome::NotGranted),
                // Also a caller without a condition that had joined a request with a condition: it asks anew.
                CallerStep::NotGranted | CallerStep::Declined => break Ok(WaitOutcome::Again),
                CallerStep::Failed(failure) => break Err(error_of(&claim.lock.name, failure)),
                CallerStep::GiveUp(step) => break self.give_up_request(claim, patience, step),
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

    /// Joins the owner's claim on the lock, or makes one. `began`: when the call began. A new claim counts the server's silence from then:
    /// the caller heard nothing either while it waited for an earlier claim to end.
    ///
    /// # Errors
    /// [`Error::Shutdown`] after a shutdown, and in a drain unless the owner holds the lock: re-entries are part of its work.
    fn enter(self, wish: Wish<'_>, began: Instant) -> Result<Option<Entered>> {
        let Wish { lock, owner, terms, units, patience } = wish;
        let registry = &self.ledger.registry;
        let mut now = began;
        loop {
            if self.config.stop.is_closed() {
                let known = registry.get(lock.name.as_str(), owner.as_str());
                if known.is_none_or(|claim| claim.hold_count(self.config.now()) == 0) {
                    return Err(error_of(&lock.name, Failure::Shutdown));
                }
                self.config.check_running(Some(&lock.name))?;
            }
            // The watchdog starts before the first request: no hold may be granted that no thread can renew.
            self.timers.start_watchdog().map_err(|error| Error::about(&lock.name, error))?;
            let join = |claim: &Arc<Claim>| match claim.join(lock.kind, units, now) {
                Joined::Gone => None,
                joined => Some((Arc::clone(claim), joined)),
            };
            let make = || {
                let (lock, owner) = (lock.clone(), owner.clone());
                let claim = Claim::new(lock, owner, patience.wait, terms, units, self.config, began);
                let claim = Arc::new(claim.on(patience.condition));
                (Arc::clone(&claim), (claim, Joined::Waiting))
            };
            let (claim, joined) = registry.get_or_make(&lock.name, owner, join, make);
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
                    return Err(Error::about(name, BackendError::mismatch(kind.capacity(), lock.kind)));
                }
                Joined::OtherNumber => return Err(misuse(&claim, WAITS_BY_ANOTHER_NUMBER)),
                Joined::TooOften => return Err(misuse(&claim, "it is held more often than can be counted")),
                Joined::TooFew => return Err(misuse(&claim, would_wait_for_itself(claim.lock.kind))),
                Joined::Leaving => {
                    if !self.settle_former(&claim, patience, began)? {
                        return Ok(None);
                    }
                }
                Joined::Expired => _ = self.ledger.lose_if_expired(&claim),
                Joined::Gone => {} // can't be: `join` replaced it under the registry's mutex
            }
            now = self.config.now();
        }
    }

    /// Waits until the server knows of the end of the former claim, and tells the server if no other thread does. False: the
    /// caller's time is over. `began`: when the call began.
    ///
    /// # Errors
    /// As for an ask: after one attempt for a caller that does not wait, at the end of a timed wait whose last attempt was
    /// not answered, else after the outage limit.
    fn settle_former(self, claim: &Arc<Claim>, patience: &Patience, began: Instant) -> Result<bool> {
        let _listening = patience.cancel.as_ref().map(|cancel| cancel.listen(claim));
        // An attempt of the former claim may still arrive: the server is told of its end after that, and not before.
        let by_owner = self.backend.keeps_place_by_owner(&claim.lock);
        let late_at = by_owner.then(|| self.backlog.late_at(claim)).flatten();
        if late_at.is_some() && patience.wait == Wait::No {
            return Err(unsettled(claim, None));
        }
        let give_up_at = late_at.map_or(began, |at| began.max(at)) + self.config.outage_limit;
        let until = patience.deadline.map_or(give_up_at, |deadline| deadline.min(give_up_at));
        let Some((failed_before, _)) = claim.leaving() else { return Ok(true) };
        let (mut attempts, mut try_at) = (0, self.config.now());
        loop {
            let seen = claim.signal.generation();
            let Some((failed, error)) = claim.leaving() else { return Ok(true) };
            if self.config.stop.is_closed() {
                return Err(error_of(&claim.lock.name, Failure::Shutdown));
            }
            if patience.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                return Err(Error::Cancelled { lock: claim.lock.name.clone() });
            }
            let now = self.config.now();
            if now >= until || patience.wait == Wait::No && failed > failed_before {
                // Another thread is telling the server; until then nobody knows whether the lock is busy.
                let is_busy = error.is_none() && late_at.is_none() && patience.deadline == Some(until);
                return if is_busy { Ok(false) } else { Err(unsettled(claim, error)) };
            }
            if now < try_at {
                claim.signal.wait(seen, Some(until.min(try_at)));
            } else if CleanupRun::new(self).settle(claim) {
                attempts += 1;
                try_at = self.config.now() + time::pause(attempts);
            } else {
                // Another thread is telling the server, or has another call of this claim under way that has to end before. That
                // thread raises the signal when it has an answer.
                claim.signal.wait(seen, Some(until));
            }
        }
    }
}

fn misuse(claim: &Claim, reason: &'static str) -> Error {
    Error::Misuse { lock: claim.lock.name.clone(), reason: reason.to_owned() }
}

const WAITS_BY_ANOTHER_NUMBER: &str =
    "this owner waits already, by another number of permits: name the same number, or wait as another owner";

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

fn unsettled(claim: &Claim, error: Option<BackendError>) -> Error {
    let error = error.unwrap_or_else(|| {
        let message = "an earlier release or withdrawal of this owner is not acknowledged yet";
        BackendError::new(BackendErrorKind::Unavailable, message)
    });
    Error::about(&claim.lock.name, error)
}

impl Parts<'_> {
    /// Asks for a caller that the claim counts: a panic of the backend gives the caller's share up.
    fn ask_for_caller(self, claim: &Arc<Claim>, sent: Instant) -> Instant {
        let share = Share { parts: self, claim };
        let answered = self.ask(claim, sent);
        mem::forget(share);
        answered
    }

    /// Asks the server, and does what follows from the answer. `sent`: the time before the ask. Returns the time after it.
    pub(crate) fn ask(self, claim: &Arc<Claim>, sent: Instant) -> Instant {
        let under_way = UnderWay { parts: self, claim, sent };
        let answer = match claim.adopts() {
            None => only(self.backend.acquire(&[claim.acquire()])),
            Some(hold) => self.ask_to_adopt(&hold, claim),
        };
        under_way.answered(answer)
    }

    /// "Busy": another owner has the hold, or nobody.
    fn ask_to_adopt(self, hold: &Hold<'_>, claim: &Claim) -> Answer<Acquired> {
        let lease = claim.terms.first_lease();
        match self.backend.adopt(hold, &claim.owner, lease)? {
            Renewal::Renewed => Ok(Acquired::Granted { token: hold.token, lease }),
            Renewal::Lost => Ok(Acquired::Busy { recheck_in: Duration::ZERO }),
            _ => Err(BackendError::senseless()),
        }
    }

    /// The same for many claims, in one call. Returns whether the server is silent: it has answered for none of them. An error that
    /// does not pass is an answer.
    pub(crate) fn ask_all(self, claims: &[Arc<Claim>]) -> bool {
        let Some(sent) = claims.first().map(|claim| claim.config.now()) else { return false };
        let under_way: Vec<_> = claims.iter().map(|claim| UnderWay { parts: self, claim, sent }).collect();
        let asks: Vec<_> = claims.iter().map(|claim| claim.acquire()).collect();
        let answers = self.backend.acquire(&asks);
        let mut is_silent = true;
        for (ask, answer) in under_way.into_iter().zip(or_missing(answers)) {
            is_silent &= answer.as_ref().is_err_and(|error| error.kind().is_transient());
            ask.answered(answer);
        }
        is_silent
    }

    fn take_answer(self, claim: &Arc<Claim>, answer: Answer<Acquired>, sent: Instant) -> Instant {
        let now = claim.config.now();
        let outcome = answer.as_ref().map(Acquired::number).map_err(BackendError::clone);
        let is_first = !claim.was_heard();
        let ahead = match answer {
            Ok(Acquired::Queued { rank, .. }) if is_first => Some(rank),
            _ => None,
        };
        let after = claim.answered(answer, sent, now);
        // A claim that has just become a hold knows its attempt's number.
        if !matches!(after, AfterAnswer::Granted(_)) {
            self.ledger.attempt_ended(claim, outcome, now);
        }
        let ahead = ahead.or((after == AfterAnswer::Granted(GrantedBy::FirstAsk)).then_some(0));
        let ahead = ahead.filter(|_| claim.lock.kind != LockKind::Plain);
        claim.stands_at(ahead); // before its caller hears of a grant
        self.follow(claim, after);
        // The cleanup of a claim that was left meanwhile has waited for this ask.
        let was_left = matches!(after, AfterAnswer::Late | AfterAnswer::Unsent)
            || after == AfterAnswer::Nothing && claim.leaving().is_some();
        self.timers.due_by(was_left.then_some(now));
        // Once for each wait: later answers of a slow wait wake no thread.
        if is_first && after == AfterAnswer::Nothing {
            self.timers.slow_by(claim.slow_at());
        }
        if let Some(ahead) = ahead {
            self.ledger.counters.meter(&claim.lock, Event::Asked(ahead));
        }
        now
    }

    /// Does what follows from an answer.
    fn follow(self, claim: &Arc<Claim>, after: AfterAnswer) {
        match after {
            AfterAnswer::Nothing => self.timers.due_by(claim.due_at()),
            AfterAnswer::PlaceLost => {
                self.place_lost(claim);
                self.timers.due_by(claim.due_at());
            }
            AfterAnswer::Granted(by) => {
                if by == GrantedBy::WakeUp {
                    self.ledger.counters.crossing.lock().granted_by_answer(claim.request);
                }
                return self.ledger.granted(claim, by);
            }
            AfterAnswer::Over => self.ledger.forget(claim),
            AfterAnswer::Unsent => self.ledger.retire(claim), // its cleanup finds nothing to do
            AfterAnswer::Withdraw => self.ledger.withdraw_soon(claim),
            AfterAnswer::Late => {}
        }
        claim.raise();
    }

    /// The server has forgotten the place, and did not put it back.
    fn place_lost(self, claim: &Claim) {
        self.ledger.counters.happened(&claim.lock, Event::PlaceLost);
        let (lock, owner) = (&claim.lock.name, &claim.owner);
        // Many requests may lose their places at once, and the watchdog has logged that.
        log_line!(debug, "fairlock::acquire",
            event = "place lost", lock = lock.as_str(), owner = owner.as_str();
            "lock {lock}: the place of {owner} was lost, it goes to the tail"
        );
    }
}

/// An ask that is under way. Only one thread asks for a claim at a time, so a backend that panics must not leave the claim
/// without an answer for ever.
struct UnderWay<'a> {
    parts: Parts<'a>,
    claim: &'a Arc<Claim>,
    sent: Instant,
}

impl UnderWay<'_> {
    fn answered(self, answer: Answer<Acquired>) -> Instant {
        let UnderWay { parts, claim, sent } = self;
        mem::forget(self);
        match &answer {
            Ok(_) => parts.outage.heard(),
            Err(error) => {
                let (lock, owner) = (&claim.lock.name, &claim.owner);
                log_line!(debug, "fairlock::acquire",
                    event = "no answer", lock = lock.as_str(), owner = owner.as_str(), error:% = error;
                    "asking for lock {lock} failed: {error}"
                );
            }
        }
        parts.take_answer(claim, answer, sent)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let error = BackendError::new(BackendErrorKind::Unavailable, "the backend panicked");
        self.parts.take_answer(self.claim, Err(error), self.sent);
    }
}
