//! The flows that do I/O on the thread of their caller: how a lock is acquired, passed on, renewed and released, and how a
//! caller leaves the queue.
//!
//! `acquire.rs` gets a lock, `cleanup.rs` sends what callers have left. Here: how a holder renews its hold and gives it up, how a caller
//! gives up a wait, and how a call is counted.
//!
//! A hold is unlocked and released: once by its holder, and, where the server does not answer, again and again in the background until it
//! has answered or the lease is over. A caller that stops waiting leaves no trace at the server, and the program gets the right answer.

mod acquire;
mod cleanup;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use acquire::{Taken, Wish, error_of};
pub(crate) use cleanup::{CleanupRun, STEP_LIMIT};

use crate::backend::{Answer, Backend, BackendError, LockId, Renew, Renewal, Wait, only, or_missing};
use crate::backlog::Backlog;
use crate::claim::{AfterGivingUp, AfterRenewal, Claim, GiveUp, Patience, Unlocked};
use crate::config::Config;
use crate::error::{Error, LostCause, Result};
use crate::ids::{ClientId, FencingToken};
use crate::ledger::Ledger;
use crate::logging::log_line;
use crate::outage::Outage;
use crate::stats::{Counters, Event, Outcome};
use crate::time::{self, Woken};
use crate::timers::Timers;

/// The parts of a client that the flows use.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) id: ClientId,
    pub(crate) config: &'a Arc<Config>,
    pub(crate) backend: &'a dyn Backend,
    pub(crate) ledger: &'a Ledger,
    pub(crate) timers: &'a Timers,
    pub(crate) backlog: &'a Backlog,
    pub(crate) outage: &'a Outage,
}

impl Parts<'_> {
    /// Renews the holds now, in one call. Returns for how long all of them are certain, or the first error. None is renewed if
    /// one is lost already.
    pub(crate) fn renew_now(self, claims: &[&Arc<Claim>]) -> Result<Duration> {
        let Parts { id, config, backend, ledger, .. } = self;
        let _here = config.clock.attend();
        let (mut items, mut leases) = (Vec::with_capacity(claims.len()), Vec::with_capacity(claims.len()));
        let sent = config.now();
        for claim in claims {
            ledger.lose_if_expired(claim);
            let Some((token, holds, lease)) = claim.renewal(sent) else {
                return Err(claim.loss(sent).map_or_else(|| claim.not_held(), Error::Lost));
            };
            items.push(Renew::Hold { hold: claim.hold(token), holds, lease });
            leases.push(lease);
        }
        let answers = backend.renew(id, &items);
        let renewed = claims.iter().zip(leases).zip(or_missing(answers));
        // Each answer is taken, even after an error.
        let renewed = renewed.map(|((claim, lease), answer)| renewed_now(ledger, claim, answer, sent, lease));
        renewed.reduce(|all, one| Ok(all?.min(one?))).unwrap_or(Ok(Duration::ZERO))
    }
}

fn renewed_now(
    ledger: &Ledger,
    claim: &Arc<Claim>,
    answer: Answer<Renewal>,
    sent: Instant,
    lease: Duration,
) -> Result<Duration> {
    match answer {
        Ok(Renewal::Renewed) => {
            let after = claim.renewed(Ok(Renewal::Renewed), sent, lease, claim.config.now());
            if let AfterRenewal::Renewed(punctuality) = after {
                ledger.counters.happened(&claim.lock, Event::Renewed(punctuality));
            }
            // The answer may have come after the end of the new lease, or after the hold was marked as lost.
            let now = claim.config.now();
            match claim.valid_until().filter(|until| now < *until) {
                Some(until) => Ok(until - now),
                None => Err(ledger.lose_if_expired(claim).map_or_else(|| claim.not_held(), Error::Lost)),
            }
        }
        Ok(Renewal::Lost) => Err(ledger.lose_taken(claim)),
        Err(error) => Err(Error::about(&claim.lock.name, error)),
        Ok(_) => Err(Error::about(&claim.lock.name, BackendError::senseless())),
    }
}

/// How long the holder itself tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Once, in a drop.
    Once,
    /// Until the outage limit, in an explicit unlock.
    Persistent,
}

/// A hold that its holder has given up. The server is still to be told: what is not, as in a panic, is left to the watchdog.
#[must_use = "the server has to be told"]
pub(crate) struct GivenUp<'a> {
    parts: Parts<'a>,
    claim: &'a Arc<Claim>,
    now: Instant,
    unlocked: Option<Unlocked>,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if let Some(Unlocked::Last { .. } | Unlocked::Lost { last: true, .. }) = self.unlocked
            && self.claim.leaving().is_some()
        {
            self.parts.ledger.release_soon(self.claim);
        }
    }
}

impl GivenUp<'_> {
    /// Tells the server, and waits for its answer.
    pub(crate) fn tell(mut self, effort: Effort) -> Result<()> {
        let Some(unlocked) = self.unlocked.clone() else { return Ok(()) };
        let told = self.parts.tell_unlocked(self.claim, unlocked, self.now, effort);
        self.unlocked = None; // not before: the backend may panic
        self.claim.end_hold(end_of(&told, "released"));
        told
    }
}

impl<'a> Parts<'a> {
    /// Gives up one hold of the claim, and releases the last one.
    pub(crate) fn unlock(self, claim: &Arc<Claim>, effort: Effort) -> Result<()> {
        let _here = claim.config.clock.attend();
        self.give_up(claim).tell(effort)
    }

    /// Gives up one hold of the claim, here alone. From now on its lease may end: that is no loss.
    pub(crate) fn give_up<'b>(self, claim: &'b Arc<Claim>) -> GivenUp<'b>
    where
        'a: 'b,
    {
        let now = claim.config.now();
        GivenUp { parts: self, claim, now, unlocked: Some(self.ledger.unlock(claim, now)) }
    }

    fn tell_unlocked(
        self,
        claim: &Arc<Claim>,
        unlocked: Unlocked,
        now: Instant,
        effort: Effort,
    ) -> Result<()> {
        match unlocked {
            Unlocked::StillHeld => Ok(()), // the next renewal tells the store the count
            Unlocked::Last { token, held_for, is_asking } => {
                if is_asking {
                    // Another thread sent it before a push granted the lock. The server must not carry it out after the release: it
                    // would grant the free lock to a request that is over. A repeat does no harm before.
                    wait_while(claim, Claim::is_asking);
                }
                let released = self.release(claim, token, held_for, now, effort);
                self.ledger.counters.happened(&claim.lock, Event::Held(held_for));
                released
            }
            Unlocked::Lost { lost, last } => {
                match lost.cause {
                    _ if !last => {}
                    LostCause::Shutdown => self.ledger.retire(claim), // the shutdown tells the server
                    // Over by this process's clock, but the server may keep it from the others a while longer.
                    _ => {
                        self.ledger.release_soon(claim);
                        settle_renewal(claim, effort);
                    }
                }
                Err(Error::Lost(lost))
            }
            Unlocked::NotHeld | Unlocked::Expired => Err(claim.not_held()),
        }
    }

    /// Ends the claim, and leaves its only hold to an adopter.
    pub(crate) fn hand_over(self, claim: &Arc<Claim>) -> Result<()> {
        let _here = claim.config.clock.attend();
        wait_while(claim, Claim::is_asking); // as an unlock does: a late ask would begin the request anew
        let now = claim.config.now();
        let held_for = claim.held_for(now).unwrap_or_default();
        if !claim.hand_over(now) {
            self.unlock(claim, Effort::Persistent)?;
            let reason = "it is held more than once: only the last guard of an owner can hand it over, and this one was unlocked";
            return Err(Error::Misuse { lock: claim.lock.name.clone(), reason: reason.to_owned() });
        }
        // First: a late message about the grant, which finds no claim, must not release the hold.
        self.ledger.counters.crossing.lock().handed_over(claim.request);
        self.ledger.retire(claim);
        self.ledger.counters.happened(&claim.lock, Event::Held(held_for));
        claim.end_hold("handed_over");
        Ok(())
    }

    /// Gives up a hold that its caller can't use, whatever comes of that.
    pub(crate) fn unlock_unused(self, claim: &Arc<Claim>) {
        if let Err(error) = self.unlock(claim, Effort::Once) {
            log_line!(debug, "fairlock::release",
                event = "too late", lock = claim.lock.name.as_str(), error:% = error;
                "a hold that came too late was released: {error}"
            );
        }
    }

    /// Releases the last hold.
    fn release(
        self,
        claim: &Arc<Claim>,
        token: FencingToken,
        held_for: Duration,
        now: Instant,
        effort: Effort,
    ) -> Result<()> {
        let give_up_at = now + claim.config.outage_limit;
        let mut unanswered = 0;
        let lost = loop {
            match only(self.backend.release(&[claim.hold(token)])) {
                Ok(answer) => break self.ledger.released(claim, token, held_for, answer, unanswered > 0),
                Err(error) => {
                    unanswered += 1;
                    claim.leaving_failed(error.clone(), claim.config.now());
                    let wait = time::pause(unanswered);
                    let hopeless = !error.kind().is_transient();
                    if hopeless || effort == Effort::Once || claim.config.now() + wait >= give_up_at {
                        self.ledger.release_soon(claim);
                        settle_renewal(claim, effort);
                        return Err(Error::about(&claim.lock.name, error));
                    }
                    claim.config.clock.sleep(wait);
                }
            }
        };
        self.outage.heard();
        self.ledger.retire(claim);
        settle_renewal(claim, effort);
        lost.map_or(Ok(()), |cause| Err(Error::Lost(claim.lost(token, cause))))
    }
}

/// Normally no renewal of a hold is sent after its explicit unlock has returned: the unlock waits for a renewal that is under
/// way. It does not wait for long: the watchdog renews all due holds by one call, which other holds may delay. A late renewal is
/// harmless: it names owner, request and token, and finds nothing to prolong.
fn settle_renewal(claim: &Claim, effort: Effort) {
    if effort == Effort::Persistent {
        wait_while(claim, Claim::is_renewing);
    }
}

/// For how long an unlock waits for a call of its claim that is under way.
const CALL_WAIT: Duration = Duration::from_millis(500);

fn wait_while(claim: &Claim, is_under_way: impl Fn(&Claim) -> bool) {
    let mut until = None;
    loop {
        let seen = claim.signal.generation();
        if !is_under_way(claim) {
            return; // the usual case, without reading the clock
        }
        let now = claim.config.now();
        let until = *until.get_or_insert(now + CALL_WAIT);
        if now >= until {
            return;
        }
        claim.signal.wait(seen, Some(until));
    }
}

/// How a caller's wait ended.
pub(crate) enum WaitOutcome {
    /// The caller has a hold, with this token.
    Granted(FencingToken),
    NotGranted,
    /// The claim is over, but the caller's time is not: it needs a new claim.
    Again,
}

impl Parts<'_> {
    /// Follows a caller's decision to stop waiting.
    pub(crate) fn give_up_request(
        self,
        claim: &Arc<Claim>,
        patience: &Patience,
        give_up: GiveUp,
    ) -> Result<WaitOutcome> {
        follow_giving_up(self.ledger, claim, give_up.after);
        if give_up.cancelled {
            return Err(Error::Cancelled { lock: claim.lock.name.clone() });
        }
        // "Not granted" means that another client has the lock, and nothing else. Where the last attempt was refused or not
        // answered, that is not known. An answer to the withdrawal only says that the caller does not have it.
        let error = match give_up.after {
            AfterGivingUp::Withdraw if patience.wait != Wait::No => match last_word(self.backlog, claim) {
                LastWord::Granted(token) => return Ok(WaitOutcome::Granted(token)),
                LastWord::Left => give_up.error,
                LastWord::Missing(error) => error.or_else(|| claim.silence(claim.config.now())),
            },
            _ => give_up.error.or_else(|| claim.silence(claim.config.now())),
        };
        match error {
            Some(error) => Err(Error::about(&claim.lock.name, error)),
            None => Ok(WaitOutcome::NotGranted),
        }
    }

    /// Gives up a caller's share of a claim: the place, or the hold that it has become.
    pub(crate) fn drop_share(self, claim: &Arc<Claim>) {
        let _here = claim.config.clock.attend();
        match claim.give_up_request() {
            Some(give_up) => follow_giving_up(self.ledger, claim, give_up.after),
            None => self.unlock_unused(claim),
        }
        claim.end_wait(Outcome::Cancelled.name());
    }
}

fn follow_giving_up(ledger: &Ledger, claim: &Arc<Claim>, after: AfterGivingUp) {
    match after {
        AfterGivingUp::OthersWait => {}
        AfterGivingUp::Nothing => ledger.retire(claim),
        AfterGivingUp::Withdraw => ledger.withdraw_soon(claim),
    }
}

/// What the server said to a withdrawal.
enum LastWord {
    Granted(FencingToken),
    Left,
    /// No answer in time, or the error.
    Missing(Option<BackendError>),
}

/// For how long a caller whose time is over waits for the answer to its withdrawal, at most.
const LAST_WORD_WAIT: Duration = Duration::from_millis(50);

/// The watchdog withdraws the request. The caller waits a moment for the answer, which may be a grant of this very moment; a
/// later grant is released. The caller stops waiting when an attempt has failed and the next attempt comes after a pause. So the
/// call of a client that was cut off ends even on a manual clock that stands still at the end of the wait.
///
/// Attempts of several callers may fail in turn, and only the second failure leads to a pause. The failing thread sets the pause
/// before it raises this claim's signal. When the pauses begin, it raises the signals of the earlier claims.
fn last_word(backlog: &Backlog, claim: &Claim) -> LastWord {
    let until = claim.config.now() + LAST_WORD_WAIT;
    loop {
        let seen = claim.signal.generation();
        let Some((failed, error)) = claim.leaving() else {
            return claim.valid_token(claim.config.now()).map_or(LastWord::Left, LastWord::Granted);
        };
        let is_hopeless = failed > 0 && backlog.retries.is_pausing(claim.config.now());
        if (is_hopeless || claim.signal.wait(seen, Some(until)) == Woken::TimeOut) && claim.decline_grant() {
            return LastWord::Missing(error);
        }
    }
}

/// The share of a caller in a claim, which is forgotten after a call to the backend. The drop, after a panic of the backend, gives the share
/// up; the watchdog tells the server.
struct Share<'a> {
    parts: Parts<'a>,
    claim: &'a Arc<Claim>,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let Share { parts, claim } = self;
        match claim.give_up_request() {
            Some(give_up) => follow_giving_up(parts.ledger, claim, give_up.after),
            None => drop(parts.give_up(claim)),
        }
        parts.timers.due_by(claim.stop_attending());
    }
}

/// A call has ended, with the lock or without it. `began`: when it did, if that is known.
pub(crate) fn count(
    counters: &Counters,
    config: &Config,
    lock: &LockId,
    wait: Wait,
    is_granted: std::result::Result<bool, &Error>,
    began: Option<Instant>,
) {
    let outcome = match is_granted {
        Ok(true) => None,
        Ok(false) => Some(without(wait)),
        Err(error) => Outcome::of(error),
    };
    if let Some(outcome) = outcome {
        let now = config.now();
        let waited = now.saturating_duration_since(began.unwrap_or(now));
        counters.happened(lock, Event::NotGranted(outcome, waited));
    }
}

/// The outcome of a wait that was answered, and ended without the lock.
pub(crate) fn without(wait: Wait) -> Outcome {
    if wait == Wait::No { Outcome::Busy } else { Outcome::TimedOut }
}

/// What the span of a wait or a hold says of its end; `done` unless that was an error.
pub(crate) fn end_of<T>(ended: &Result<T>, done: &'static str) -> &'static str {
    match ended {
        Ok(_) => done,
        Err(Error::Lost(_) | Error::NotHeld { .. }) => "lost",
        Err(Error::Shutdown { .. }) => "shutdown",
        Err(error) => Outcome::of(error).map_or("refused", Outcome::name),
    }
}
