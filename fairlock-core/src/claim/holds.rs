//! How a hold is counted, given back and lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::agenda::Pauses;
use super::terms::valid_until;
use super::{Claim, Held, Phase, State, Terms};
use crate::backend::BackendError;
use crate::{FencingToken, HeldLock, LockKind, Lost, LostCause, WaitingRequest};

/// What giving back one hold comes to.
#[derive(Debug)]
pub(crate) enum Given {
    /// It is still held, so often.
    Inner { token: FencingToken, count: u32 },
    /// That was the last: the claim is `Leaving`, and the server has to be told.
    Last { token: FencingToken, held_for: Duration },
    /// It is over by the clock, and has to be marked as lost first.
    Over,
    /// The hold is over. `last`: nobody needs to know any more, so the server can be told for good measure.
    Lost { lost: Lost, last: bool },
    /// There is nothing to give back.
    NotHeld,
}

/// Whether a holder may pass its hold on to the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedOn {
    /// The claim is `Leaving`, and the server has to be asked.
    Leaving(FencingToken),
    /// It is held more than once, or the lock has no line: it stays.
    Stays,
    /// It is not held, or that is not certain.
    NotHeld,
}

/// Whether anything goes on when a claim is over. Nothing new begins then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterEnd {
    Quiet,
    /// A renewal is under way.
    Renewing,
}

/// What is to be said of a hold that has just been granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) token: FencingToken,
    pub(crate) waited: Duration,
    /// When the watchdog has to look after it.
    pub(crate) due_at: Option<Instant>,
    /// When another waiter of this client should look without a wake-up: when this one would have, or when its own hold
    /// ends by its terms.
    pub(crate) recheck_at: Option<Instant>,
}

impl Claim {
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.lock_state().held().map(|held| held.token)
    }

    /// Until when the hold is certain; none when there is no hold, or it is lost.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        match &self.lock_state().phase {
            Phase::Held(held) => Some(held.valid_until),
            _ => None,
        }
    }

    /// The token of a hold that is certain.
    pub(crate) fn valid_token(&self, now: Instant) -> Option<FencingToken> {
        match &self.lock_state().phase {
            Phase::Held(held) if now < held.valid_until => Some(held.token),
            _ => None,
        }
    }

    /// How often it is held; zero when that is not certain.
    pub(crate) fn hold_count(&self, now: Instant) -> u32 {
        match &self.lock_state().phase {
            Phase::Held(held) if now < held.valid_until => held.count,
            _ => 0,
        }
    }

    /// What there is to say of a hold that has just been granted. The end may have overtaken this.
    pub(crate) fn take_grant(&self) -> Grant {
        let mut state = self.lock_state();
        let held = state.held().map(|held| (held.token, held.since, held.end));
        let (token, since, end) = held.unwrap_or((FencingToken::new(0), state.since, None));
        Grant {
            token,
            waited: since.saturating_duration_since(state.since),
            due_at: state.agenda(self.outage_limit, Pauses::default()).for_watchdog(state.attended > 0),
            recheck_at: [state.take_recheck(), end].into_iter().flatten().min(),
        }
    }

    /// The claim waits no longer: when it would have looked without a wake-up.
    pub(crate) fn take_recheck(&self) -> Option<Instant> {
        let mut state = self.lock_state();
        if matches!(state.phase, Phase::Waiting) {
            return None;
        }
        state.take_recheck()
    }

    /// Takes over the look of another claim. False: it has no place in line that could look.
    pub(crate) fn recheck_by(&self, at: Instant) -> bool {
        let mut state = self.lock_state();
        let waits = matches!(state.phase, Phase::Waiting) && state.in_line;
        if waits {
            state.looks_by = Some(state.looks_by.map_or(at, |by| by.min(at)));
        }
        waits
    }

    /// For the list of what a client holds.
    pub(crate) fn as_held(&self, now: Instant) -> Option<HeldLock> {
        let state = self.lock_state();
        let Phase::Held(held) = &state.phase else { return None };
        (now < held.valid_until).then(|| HeldLock {
            lock: self.lock.name.clone(),
            owner: self.owner.clone(),
            token: held.token,
            hold_count: held.count,
            leaked: held.leaked,
            held_for: now.saturating_duration_since(held.since),
            valid_for: held.valid_until.saturating_duration_since(now),
        })
    }

    /// For the list of what a client waits for.
    pub(crate) fn as_waiting(&self, now: Instant) -> Option<WaitingRequest> {
        let state = self.lock_state();
        matches!(state.phase, Phase::Waiting).then(|| WaitingRequest {
            lock: self.lock.name.clone(),
            owner: self.owner.clone(),
            rank: state.rank,
            waiting_for: now.saturating_duration_since(state.since),
        })
    }

    /// Sends `mourner` a word when the hold is lost; at once if it is.
    pub(crate) fn tell_when_lost(&self, mourner: Sender<Lost>) {
        let mut state = self.lock_state();
        if let Phase::Lost(held, cause) = &state.phase {
            let _ = mourner.try_send(self.lost(held.token, *cause));
        } else if state.held().is_some() {
            state.mourners.push(mourner);
        }
    }

    /// A guard becomes a hold without a guard.
    pub(crate) fn leak(&self) {
        if let Phase::Held(held) | Phase::Lost(held, _) = &mut self.lock_state().phase {
            held.leaked += 1;
        }
    }

    /// Takes back one leaked hold, to be given back; or says how many guards hold it.
    pub(crate) fn unleak(&self) -> Result<(), u32> {
        match &mut self.lock_state().phase {
            Phase::Held(held) | Phase::Lost(held, _) if held.leaked > 0 => {
                held.leaked -= 1;
                Ok(())
            }
            Phase::Held(held) => Err(held.count),
            _ => Err(0),
        }
    }

    /// Whether it is lost, and holds were leaked that nobody has given back.
    pub(crate) fn has_lost_leak(&self) -> bool {
        matches!(&self.lock_state().phase, Phase::Lost(held, _) if held.leaked > 0)
    }

    /// How many holds were leaked and are still kept.
    pub(crate) fn leaked(&self) -> u32 {
        match &self.lock_state().phase {
            Phase::Held(held) => held.leaked,
            _ => 0,
        }
    }

    /// Gives back one hold.
    pub(crate) fn give_back(&self, now: Instant) -> Given {
        let mut state = self.lock_state();
        match &mut state.phase {
            Phase::Held(held) if held.valid_until <= now => Given::Over,
            Phase::Held(held) => {
                held.count -= 1;
                let held = *held;
                if held.count > 0 {
                    return Given::Inner { token: held.token, count: held.count };
                }
                // From here on the watchdog renews it no more; a renewal that is under way is waited for.
                state.leave(held);
                Given::Last { token: held.token, held_for: now.saturating_duration_since(held.since) }
            }
            Phase::Lost(held, cause) => {
                held.count = held.count.saturating_sub(1);
                let (held, cause) = (*held, *cause);
                if held.count == 0 {
                    state.leave(held);
                }
                Given::Lost { lost: self.lost(held.token, cause), last: held.count == 0 }
            }
            Phase::Waiting | Phase::Leaving { .. } | Phase::Over => Given::NotHeld,
        }
    }

    /// Its last hold has been given back.
    pub(crate) fn is_given_back(&self) -> bool {
        matches!(self.lock_state().phase, Phase::Leaving { .. } | Phase::Over)
    }

    /// The only hold is to be passed on to whoever waits. Until the server has said what came of it no answer to a
    /// renewal is believed: one that crosses the release would be answered "lost", and taken for a loss.
    pub(crate) fn pass_on(&self, now: Instant) -> PassedOn {
        let mut state = self.lock_state();
        match &state.phase {
            Phase::Held(held) if now < held.valid_until => {
                if held.count > 1 || self.lock.kind == LockKind::Plain {
                    return PassedOn::Stays;
                }
                let held = *held;
                state.phase = Phase::Leaving { held: Some(held), wanted: false, lost: None };
                PassedOn::Leaving(held.token)
            }
            _ => PassedOn::NotHeld,
        }
    }

    /// Nobody waits, so the hold stays what it was before [`Claim::pass_on`].
    pub(crate) fn keep(&self) {
        let mut state = self.lock_state();
        if let Phase::Leaving { held: Some(held), lost: None, .. } = state.phase
            && !self.stop.is_set()
        {
            state.phase = Phase::Held(held);
        }
    }

    /// The hold is over, also one that is being given back. Returns none if that was known already.
    ///
    /// The channels are told in the same step: whoever finds the claim lost, and asks anew, finds them told.
    pub(crate) fn lose(&self, cause: LostCause) -> Option<Lost> {
        let mut state = self.lock_state();
        let held = match &mut state.phase {
            Phase::Held(held) => {
                let held = *held;
                state.phase = Phase::Lost(held, cause);
                held
            }
            Phase::Leaving { held: Some(held), lost: lost @ None, .. } => {
                *lost = Some(cause);
                *held
            }
            _ => return None,
        };
        state.renew = None;
        let lost = self.lost(held.token, cause);
        for mourner in state.mourners.drain(..) {
            // One message fits; dropping the sender then wakes every clone of the receiver.
            let _ = mourner.try_send(lost.clone());
        }
        Some(lost)
    }

    /// The server was told of the end, or will never hear of it: nothing is left here.
    pub(crate) fn end(&self) -> AfterEnd {
        let mut state = self.lock_state();
        state.phase = Phase::Over;
        state.asking = false;
        state.mourners.clear();
        state.decided();
        if state.renewing { AfterEnd::Renewing } else { AfterEnd::Quiet }
    }

    /// The withdrawal found that the lock had been granted. Returns whether a caller takes it; if not, it has to
    /// be released.
    pub(crate) fn granted_while_leaving(
        &self,
        token: FencingToken,
        sent: Instant,
        lease: Duration,
        now: Instant,
    ) -> bool {
        let mut state = self.lock_state();
        let Phase::Leaving { wanted, .. } = state.phase else { return false };
        let valid_until = valid_until(sent, lease);
        let held = Held { token, count: 1, leaked: 0, since: now, valid_until, end: self.terms.end(sent) };
        if wanted && now < valid_until && !self.stop.is_set() {
            state.phase = Phase::Held(held);
            state.renew = Some(self.first_renewal(&held, now));
            state.in_line = false;
            return true;
        }
        state.phase = Phase::Leaving { held: Some(held), wanted: false, lost: None };
        false
    }

    /// The caller who gave up waits no longer for the answer to his withdrawal: a grant that turns up later is passed
    /// on. False: it has been answered.
    pub(crate) fn stop_leaving(&self) -> bool {
        match &mut self.lock_state().phase {
            Phase::Leaving { wanted, .. } => {
                *wanted = false;
                true
            }
            _ => false,
        }
    }

    /// The renewal that [`Claim::duty`] asked for has been answered, or was not sent.
    pub(crate) fn renewal_done(&self) {
        self.lock_state().renewing = false;
        self.signal.raise();
    }

    /// An attempt to tell the server of the end was not answered.
    pub(crate) fn leaving_failed(&self, error: BackendError) {
        let mut state = self.lock_state();
        state.failures += 1;
        state.last_error = Some(error);
        drop(state);
        self.signal.raise();
    }

    /// While its end is being told to the server: how often that failed, and what was said last.
    pub(crate) fn leaving(&self) -> Option<(u32, Option<BackendError>)> {
        let state = self.lock_state();
        matches!(state.phase, Phase::Leaving { .. }).then(|| (state.failures, state.last_error.clone()))
    }

    pub(crate) fn is_renewing(&self) -> bool {
        self.lock_state().renewing
    }

    /// The token of the hold that is being given back.
    pub(crate) fn leaving_token(&self) -> Option<FencingToken> {
        match &self.lock_state().phase {
            Phase::Leaving { held, .. } => held.map(|held| held.token),
            _ => None,
        }
    }

    /// What a renewal that the holder himself asks for has to say: token, count and lease. A fixed lease begins anew;
    /// a longest hold stays what it is.
    pub(crate) fn renewal(&self, now: Instant) -> Option<(FencingToken, u32, Duration)> {
        match &self.lock_state().phase {
            Phase::Held(held) if now < held.valid_until => {
                let end = held.end.filter(|_| !matches!(self.terms, Terms::Fixed(_)));
                Some((held.token, held.count, self.terms.next_lease(now, end)))
            }
            _ => None,
        }
    }

    /// What is known of the loss of this hold, by its flag or by the clock.
    pub(crate) fn loss(&self, now: Instant) -> Option<Lost> {
        match &self.lock_state().phase {
            Phase::Lost(held, cause) => Some(self.lost(held.token, *cause)),
            Phase::Held(held) if held.valid_until <= now => {
                Some(self.lost(held.token, self.terms.cause_of_end(now, held.end)))
            }
            _ => None,
        }
    }

    pub(crate) fn lost(&self, token: FencingToken, cause: LostCause) -> Lost {
        let (lock, owner, label) = (self.lock.name.clone(), self.owner.clone(), Arc::clone(&self.label));
        Lost { lock, owner, label, token, cause }
    }
}

impl State {
    fn take_recheck(&mut self) -> Option<Instant> {
        [self.look_at.take(), self.looks_by.take()].into_iter().flatten().min()
    }

    /// Its mourners stay until the server has said that it was still held.
    fn leave(&mut self, held: Held) {
        self.phase = Phase::Leaving { held: Some(held), wanted: false, lost: None };
        self.renew = None;
    }

    fn held(&self) -> Option<&Held> {
        match &self.phase {
            Phase::Held(held) | Phase::Lost(held, _) => Some(held),
            Phase::Leaving { held, .. } => held.as_ref(),
            Phase::Waiting | Phase::Over => None,
        }
    }
}
