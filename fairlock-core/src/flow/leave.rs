//! How a caller stops waiting: it leaves no trace at the server, and the program gets the right answer.

use std::sync::Arc;
use std::time::Duration;

use super::Parts;
use crate::backend::{BackendError, Wait};
use crate::backlog::Backlog;
use crate::claim::{AfterGivingUp, Claim, GiveUp, Patience};
use crate::error::{Error, Result};
use crate::ids::FencingToken;
use crate::ledger::Ledger;
use crate::stats::Outcome;
use crate::time::Woken;

/// For how long a caller whose time is over waits for the answer to its withdrawal, at most.
const LAST_WORD_WAIT: Duration = Duration::from_millis(50);

/// How a caller's wait ended.
pub(crate) enum WaitOutcome {
    /// The caller has a hold, with this token.
    Granted(FencingToken),
    NotGranted,
    /// The claim is over, but the caller's time is not: it needs a new claim.
    Again,
}

/// What the server said to a withdrawal.
enum LastWord {
    Granted(FencingToken),
    Left,
    /// No answer in time, or the error.
    Missing(Option<BackendError>),
}

pub(crate) fn give_up(
    ledger: &Ledger,
    backlog: &Backlog,
    claim: &Arc<Claim>,
    patience: &Patience,
    give_up: GiveUp,
) -> Result<WaitOutcome> {
    follow_giving_up(ledger, claim, give_up.after);
    if give_up.cancelled {
        return Err(Error::Cancelled { lock: claim.lock.name.clone() });
    }
    // "Not granted" means that another client has the lock, and nothing else. Where the last attempt was refused or not
    // answered, that is not known. An answer to the withdrawal only says that the caller does not have it.
    let error = match give_up.after {
        AfterGivingUp::Withdraw if patience.wait != Wait::No => match last_word(backlog, claim) {
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

/// The share of a caller in a claim, during a call to the backend. The drop, after a panic of the backend, gives the share up; the
/// watchdog tells the server.
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

impl Parts<'_> {
    /// Makes a call to the backend for a caller that the claim counts.
    pub(super) fn for_caller<T>(self, claim: &Arc<Claim>, call: impl FnOnce() -> T) -> T {
        let share = Share { parts: self, claim };
        let answer = call();
        std::mem::forget(share);
        answer
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
