//! What becomes of a hold: it is counted, unlocked, passed on to the line, and lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::agenda::earlier;
use super::terms::valid_until;
use super::{Claim, Held, Phase, State, Terms};
use crate::backend::{BackendError, Hold};
use crate::config::Config;
use crate::error::{Error, Lost, LostCause};
use crate::ids::FencingToken;
use crate::losses::FirstLoss;

/// What the unlock of one hold comes to.
#[derive(Debug)]
pub(crate) enum Unlocked {
    /// The claim is still held, so often.
    StillHeld { token: FencingToken, count: u32 },
    /// That was the last hold: the claim is `Leaving`, and the server has to be told, after an ask that is under way.
    Last { token: FencingToken, held_for: Duration, is_asking: bool },
    /// Its time is over, and it has to be marked as lost first.
    Expired,
    /// The hold is lost. `last`: that was the last guard, so the server can be told for good measure.
    Lost { lost: Lost, last: bool },
    /// There is nothing to unlock.
    NotHeld,
}

/// A hold that was found to be over.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) lost: Lost,
    /// It was being released.
    pub(crate) was_leaving: bool,
}

/// What the client has to know of a hold that was just granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) token: FencingToken,
    pub(crate) waited: Duration,
    /// When it is next due for the watchdog.
    pub(crate) due_at: Option<Instant>,
    /// When it ends, if it is not renewed.
    pub(crate) ends_at: Option<Instant>,
    /// When another waiter of this client should recheck: when this one would have, or when this hold ends by its terms.
    pub(crate) recheck_at: Option<Instant>,
}

impl Claim {
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.lock_state().held().map(|held| held.token)
    }

    /// Until when the hold is certain. None if there is no hold, or it is lost.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        match &self.lock_state().phase {
            Phase::Held(held) => Some(held.valid_until),
            _ => None,
        }
    }

    /// The token of a hold that is certain.
    pub(crate) fn valid_token(&self, now: Instant) -> Option<FencingToken> {
        self.lock_state().certain(now).map(|held| held.token)
    }

    /// How often it is held; zero if that is not certain.
    pub(crate) fn hold_count(&self, now: Instant) -> u32 {
        self.lock_state().certain(now).map_or(0, |held| held.count)
    }

    /// How long the hold has lasted, also one that is lost or being released.
    pub(crate) fn held_for(&self, now: Instant) -> Option<Duration> {
        self.lock_state().held().map(|held| now.saturating_duration_since(held.since))
    }

    /// For a hold that was just granted. Its end may have overtaken this: then the token is 0, for the log alone.
    pub(crate) fn take_grant(&self) -> Grant {
        let mut state = self.lock_state();
        let held = state.held().map(|held| (held.token, held.since, held.end));
        let (token, since, end) = held.unwrap_or((FencingToken::new(0), self.since, None));
        Grant {
            token,
            waited: since.saturating_duration_since(self.since),
            due_at: self.due_at_of(&state),
            ends_at: state.held().map(|held| held.valid_until),
            recheck_at: earlier(state.take_recheck(), end),
        }
    }

    /// The claim waits no longer: takes the time when it would have rechecked.
    pub(crate) fn take_recheck(&self) -> Option<Instant> {
        let mut state = self.lock_state();
        if matches!(state.phase, Phase::Waiting) {
            return None;
        }
        state.take_recheck()
    }

    /// Rechecks for another claim at `at`. False: the claim has no place in line.
    pub(crate) fn recheck_by(&self, at: Instant) -> bool {
        let mut state = self.lock_state();
        let waits = matches!(state.phase, Phase::Waiting) && state.in_line;
        if waits {
            state.passed_recheck = Some(state.passed_recheck.map_or(at, |by| by.min(at)));
        }
        waits
    }

    /// Sends the loss to `channel` when the hold is lost; at once if it is.
    pub(crate) fn tell_when_lost(&self, channel: &FirstLoss) {
        let mut state = self.lock_state();
        if let Phase::Lost(held, cause) = &state.phase {
            let lost = self.lost(held.token, *cause);
            drop(state);
            channel.tell(&lost);
            channel.end_waits();
        } else if state.held().is_some() {
            state.loss_channels.retain(FirstLoss::is_open); // a hold may outlive many guards of it
            state.loss_channels.push(channel.clone());
        }
    }

    /// A guard becomes a hold without a guard.
    pub(crate) fn leak(&self) {
        if let Phase::Held(held) | Phase::Lost(held, _) = &mut self.lock_state().phase {
            held.leaked += 1;
        }
    }

    /// Makes one leaked hold ready to be unlocked. An error says how many guards hold the claim instead.
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

    /// Whether it is lost with leaked holds that were not unlocked.
    pub(crate) fn has_lost_leak(&self) -> bool {
        matches!(&self.lock_state().phase, Phase::Lost(held, _) if held.leaked > 0)
    }

    /// How many leaked holds are still kept.
    pub(crate) fn leaked(&self) -> u32 {
        match &self.lock_state().phase {
            Phase::Held(held) => held.leaked,
            _ => 0,
        }
    }

    /// Gives up one hold.
    pub(crate) fn unlock(&self, now: Instant) -> Unlocked {
        self.unlock_one(&mut self.lock_state(), now)
    }

    /// Gives up the only hold, if it is certain. None if there are others, or none.
    pub(crate) fn unlock_only(&self, now: Instant) -> Option<Unlocked> {
        let mut state = self.lock_state();
        let is_only = state.certain(now).is_some_and(|held| held.count == 1);
        is_only.then(|| self.unlock_one(&mut state, now))
    }

    fn unlock_one(&self, state: &mut State, now: Instant) -> Unlocked {
        match &mut state.phase {
            Phase::Held(held) if held.valid_until <= now => Unlocked::Expired,
            Phase::Held(held) => {
                held.count -= 1;
                let held = *held;
                if held.count > 0 {
                    return Unlocked::StillHeld { token: held.token, count: held.count };
                }
                // From here on the watchdog begins no renewal; one that is under way is waited for.
                state.leave(held, None);
                let held_for = now.saturating_duration_since(held.since);
                Unlocked::Last { token: held.token, held_for, is_asking: state.asking }
            }
            Phase::Lost(held, cause) => {
                held.count = held.count.saturating_sub(1);
                let (held, cause) = (*held, *cause);
                if held.count == 0 {
                    // The watchdog may have seen the end as well, and be about to report it: it was told already.
                    state.leave(held, Some(cause));
                }
                Unlocked::Lost { lost: self.lost(held.token, cause), last: held.count == 0 }
            }
            Phase::Waiting | Phase::Leaving { .. } | Phase::Over => Unlocked::NotHeld,
        }
    }

    /// A release has found nothing. Why the hold was lost, if it was. It was certain when it was given up, so while its lease lasts
    /// somebody has taken it; after that it may have ended by itself, with the release still under way. Where an earlier attempt was
    /// not answered (`is_repeat`), that one may have released it.
    pub(crate) fn loss_found_by_release(&self, is_repeat: bool, now: Instant) -> Option<LostCause> {
        match &self.lock_state().phase {
            Phase::Leaving { lost: Some(cause), .. } => Some(*cause), // that was told meanwhile
            Phase::Leaving { held: Some(held), .. } if !is_repeat && now < held.valid_until => {
                Some(LostCause::Taken)
            }
            _ => None,
        }
    }

    /// Whether its last hold was unlocked.
    pub(crate) fn is_unlocked(&self) -> bool {
        matches!(self.lock_state().phase, Phase::Leaving { .. } | Phase::Over)
    }

    /// The hold is over, also one that is being released. Returns none if that was known already.
    ///
    /// The channels are told in the same step, so a caller that finds the claim lost, and asks anew, finds them told.
    pub(crate) fn lose(&self, cause: LostCause) -> Option<Loss> {
        let mut state = self.lock_state();
        let (held, was_leaving) = match &mut state.phase {
            Phase::Held(held) => {
                let held = *held;
                state.phase = Phase::Lost(held, cause);
                (held, false)
            }
            Phase::Leaving { held: Some(held), lost: lost @ None, .. } => {
                *lost = Some(cause);
                (*held, true)
            }
            _ => return None,
        };
        state.renew = None;
        let lost = self.lost(held.token, cause);
        let channels = std::mem::take(&mut state.loss_channels);
        channels.iter().for_each(|channel| channel.tell(&lost));
        drop(state);
        channels.iter().for_each(FirstLoss::end_waits);
        Some(Loss { lost, was_leaving })
    }

    /// The server was told of the end, or never will be: nothing is left here. A renewal may be under way; none begins after that.
    pub(crate) fn retire(&self) {
        let mut state = self.lock_state();
        if let Phase::Leaving { lost, .. } = state.phase {
            state.ended_lost = lost;
        }
        state.phase = Phase::Over;
        state.asking = false;
        state.loss_channels.clear();
        self.decided(&mut state);
    }

    /// The withdrawal found that the lock had been granted. Returns whether a caller takes it; if not, it has to be
    /// released.
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
        if wanted && now < valid_until && state.hold(held, &self.config) {
            state.renew = Some(self.first_renewal(&held, now));
            state.in_line = false;
            return true;
        }
        state.phase = Phase::Leaving { held: Some(held), wanted: false, lost: None };
        false
    }

    /// The caller that gave up waits no longer for the answer to its withdrawal: a grant that turns up later is released.
    /// False: it was answered.
    pub(crate) fn decline_grant(&self) -> bool {
        match &mut self.lock_state().phase {
            Phase::Leaving { wanted, .. } => {
                *wanted = false;
                true
            }
            _ => false,
        }
    }

    /// The renewal of [`Claim::watchdog_step`] was answered, or was not sent.
    pub(crate) fn renewal_done(&self) {
        self.lock_state().renewing = false;
        self.raise();
    }

    /// An attempt to tell the server of the end was not answered.
    pub(crate) fn leaving_failed(&self, error: BackendError) {
        let mut state = self.lock_state();
        state.failures += 1;
        if !error.kind().is_transient() {
            self.task_is_due(); // it waits no longer; else it waits on, for as long as an outage may last
        }
        state.last_error = Some(error);
        drop(state);
        self.raise();
    }

    /// While the server is being told of its end: how often that failed, and the last error.
    pub(crate) fn leaving(&self) -> Option<(u32, Option<BackendError>)> {
        let state = self.lock_state();
        matches!(state.phase, Phase::Leaving { .. }).then(|| (state.failures, state.last_error.clone()))
    }

    pub(crate) fn is_renewing(&self) -> bool {
        self.lock_state().renewing
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.lock_state().asking
    }

    /// The token of the hold that is being released.
    pub(crate) fn leaving_token(&self) -> Option<FencingToken> {
        match &self.lock_state().phase {
            Phase::Leaving { held, .. } => held.map(|held| held.token),
            _ => None,
        }
    }

    /// The hold that is being released. If it is over by now it has the token 0, which no hold has.
    pub(crate) fn leaving_hold(&self) -> Hold<'_> {
        self.hold(self.leaving_token().unwrap_or(FencingToken::new(0)))
    }

    /// What a renewal by the holder itself says: token, count and lease. A fixed lease begins anew; a longest hold stays
    /// what it is.
    pub(crate) fn renewal(&self, now: Instant) -> Option<(FencingToken, u32, Duration)> {
        let state = self.lock_state();
        let held = state.certain(now)?;
        let end = held.end.filter(|_| !matches!(self.terms, Terms::Fixed(_)));
        Some((held.token, held.count, self.terms.next_lease(now, end)))
    }

    /// The loss of this hold, if it was marked as lost or has expired.
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
        let (lock, owner, label) =
            (self.lock.name.clone(), self.owner.clone(), Arc::clone(&self.config.label));
        Lost { lock, owner, label, token, cause }
    }

    pub(crate) fn not_held(&self) -> Error {
        let (lock, owner) = (self.lock.name.clone(), self.owner.clone());
        Error::NotHeld { lock, owner, label: Arc::clone(&self.config.label), guards: 0, held_by: None }
    }
}

impl State {
    /// The only way to become a hold, and closed by the client's stop. A drain and a shutdown set the stop before they take this
    /// mutex to fail the claim. So a grant comes before that and is a hold, which the one waits for and the other releases; or it
    /// comes after and is left to the withdrawal, which finds it.
    pub(super) fn hold(&mut self, held: Held, config: &Config) -> bool {
        if config.stop.is_closed() {
            return false;
        }
        self.latest = self.latest.max(held.token.get());
        self.phase = Phase::Held(held);
        true
    }

    fn take_recheck(&mut self) -> Option<Instant> {
        earlier(self.recheck_at.take(), self.passed_recheck.take())
    }

    /// The `loss_channels` stay until the server has said that it was still held.
    fn leave(&mut self, held: Held, lost: Option<LostCause>) {
        self.phase = Phase::Leaving { held: Some(held), wanted: false, lost };
        self.renew = None;
    }

    /// The hold, if it is certain.
    pub(super) fn certain(&self, now: Instant) -> Option<&Held> {
        match &self.phase {
            Phase::Held(held) if now < held.valid_until => Some(held),
            _ => None,
        }
    }

    /// The hold, also one that is lost or being released.
    fn held(&self) -> Option<&Held> {
        match &self.phase {
            Phase::Held(held) | Phase::Lost(held, _) => Some(held),
            Phase::Leaving { held, .. } => held.as_ref(),
            Phase::Waiting | Phase::Over => None,
        }
    }
}
