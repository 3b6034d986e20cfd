//! The phases `Held` and `Lost`: how a hold is counted, renewed, leaked, unlocked and lost. And the terms of a hold:
//! leases, their margins, and the limits that a handle sets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::agenda::{Planned, Upkeep, earlier};
use super::{AfterRenewal, AnswerContext, Claim, End, Leaving, Phase};
use crate::backend::{Answer, Renewal};
use crate::config::{LONGEST, SHORTEST, at_least};
use crate::error::{Error, Lost, LostCause, Result};
use crate::ids::FencingToken;
use crate::losses::FirstLoss;

/// A hold with less than two thirds of its lease is renewed when it has lasted this long.
const RAISED_AFTER: Duration = Duration::from_millis(100);

pub(super) struct Held {
    pub(super) token: FencingToken,
    /// The holds of guards, leaked holds, and those that callers have not taken yet.
    pub(super) count: u32,
    pub(super) leaked: u32,
    /// When this client learned of the hold.
    pub(super) since: Instant,
    /// Until when the hold is certain.
    pub(super) valid_until: Instant,
    /// When the terms end the hold.
    pub(super) end: Option<Instant>,
    pub(super) renewal: Upkeep,
    /// The claim's task has not taken the hold yet.
    pub(super) untaken: bool,
    /// Where a loss is reported. The channels are kept during a release, until the server has said that the hold was still there.
    pub(super) loss_channels: Vec<FirstLoss>,
}

/// Whether a renewal was in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Punctuality {
    InTime,
    /// The renewal took more than one attempt, or was sent when more than half of its time was over.
    Late,
}

/// What the unlock of one hold comes to.
#[derive(Clone, Debug)]
pub(crate) enum Unlocked {
    /// The claim is still held, so often.
    StillHeld,
    /// That was the last hold: the claim is `Leaving`, and the server has to be told, after an ask that is under way.
    Last { token: FencingToken, held_for: Duration, is_asking: bool },
    /// The hold has expired, and has to be marked as lost first.
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
    /// The hold was being released.
    pub(crate) was_leaving: bool,
}

/// What the client has to know of a hold that was just granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) token: FencingToken,
    pub(crate) waited: Duration,
    /// When the claim is next due for the watchdog.
    pub(crate) due_at: Option<Instant>,
    /// When the hold ends, if it is not renewed.
    pub(crate) ends_at: Option<Instant>,
    /// When another waiter of this client should recheck: when this waiter would have, or when this hold ends by its terms.
    pub(crate) recheck_at: Option<Instant>,
}

impl Held {
    /// A new hold, of `count` callers.
    pub(super) fn new(context: &AnswerContext<'_>, token: FencingToken, count: u32, lease: Duration) -> Held {
        let AnswerContext { claim, sent, now, .. } = *context;
        let (valid_until, end) = (valid_until(sent, lease), claim.terms.end(sent));
        let full = claim.terms.next_lease(now, end);
        let ends_here = end.is_some_and(|end| sent.checked_add(lease).is_none_or(|until| until >= end));
        let renewal = (!ends_here).then(|| first_renewal(valid_until, full, now));
        Held {
            token,
            count,
            leaked: 0,
            since: now,
            valid_until,
            end,
            renewal: Upkeep { planned: renewal, failed: false },
            untaken: claim.is_tasks(),
            loss_channels: Vec::new(),
        }
    }

    /// Whether a grant may become a hold: not after the client's stop. A drain and a shutdown set the stop before they take the
    /// claim's mutex to fail the claim. An earlier grant is a hold, which a drain waits for and a shutdown releases. A later grant
    /// is not believed, and the withdrawal finds the hold.
    pub(super) fn may_be(&self, context: &mut AnswerContext<'_>) -> bool {
        let may = !context.claim.config.stop.is_closed();
        if may {
            context.contact.latest = context.contact.latest.max(self.token.get());
        }
        may
    }

    pub(super) fn is_certain(&self, now: Instant) -> bool {
        now < self.valid_until
    }

    /// The answer to a renewal.
    pub(super) fn renewed(
        &mut self,
        context: AnswerContext<'_>,
        answer: Answer<Renewal>,
        lease: Duration,
    ) -> AfterRenewal {
        let AnswerContext { claim, contact, sent, now } = context;
        match answer {
            // The hold had expired before the answer came. A belief that has ended never revives: a server that has forgotten the
            // hold may have granted the lock to another owner, and a later server may have let this claim in again.
            Ok(Renewal::Renewed) if !self.is_certain(now) => AfterRenewal::Nothing,
            Ok(Renewal::Renewed) => {
                let due = self.renewal.planned.map(|planned| planned.at);
                let last_moment = due.map(|at| at + self.valid_until.saturating_duration_since(at) / 2);
                let late = self.renewal.failed || last_moment.is_some_and(|at| sent > at);
                if let Terms::Fixed(_) = claim.terms {
                    // The holder itself asked for another full lease.
                    self.end = self.end.max(sent.checked_add(lease));
                }
                // Two renewals can be answered in the wrong order: the longer one counts.
                self.valid_until = self.valid_until.max(valid_until(sent, lease));
                let done = self.end.is_some_and(|end| sent + lease >= end);
                let next = (!done).then(|| Planned::gathered(sent, sent + lease / 3));
                self.renewal = Upkeep { planned: next, failed: false };
                contact.heard = contact.heard.max(Some(sent));
                AfterRenewal::Renewed(if late { Punctuality::Late } else { Punctuality::InTime })
            }
            Ok(Renewal::Lost) => AfterRenewal::HoldLost,
            // The answer to a heartbeat of the place: a push was quicker.
            Ok(Renewal::Waiting { .. } | Renewal::Granted { .. }) => AfterRenewal::Nothing,
            Err(_) => {
                self.renewal.not_answered(now);
                AfterRenewal::Unanswered
            }
        }
    }

    /// Moves the hold out, for the next phase.
    fn take(&mut self) -> Held {
        Held { loss_channels: std::mem::take(&mut self.loss_channels), ..*self }
    }
}

/// The first renewal of a new hold: when two thirds of a `full` lease are left. A hold that was handed over has less from the
/// start, the rest of its place's time: it is raised once it has lasted longer than most critical sections.
fn first_renewal(valid_until: Instant, full: Duration, now: Instant) -> Planned {
    let left = valid_until.saturating_duration_since(now);
    let wait = left.saturating_sub(full / 3 * 2).max(RAISED_AFTER).min(left / 3);
    if wait <= RAISED_AFTER {
        // Hardly earlier, even with other renewals: by then most critical sections are over, and have saved this script.
        return Planned { at: now + wait, early: wait / 10 };
    }
    Planned::gathered(now, now + wait)
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

    /// The hold count; zero if the hold is not certain.
    pub(crate) fn hold_count(&self, now: Instant) -> u32 {
        self.lock_state().certain(now).map_or(0, |held| held.count)
    }

    /// How long the hold has lasted, even if it is lost or being released.
    pub(crate) fn held_for(&self, now: Instant) -> Option<Duration> {
        self.lock_state().held().map(|held| now.saturating_duration_since(held.since))
    }

    /// What follows from a grant. If the hold has ended by now, the token is 0, for the log alone.
    pub(crate) fn take_grant(&self) -> Grant {
        let state = &mut *self.lock_state();
        let due_at = self.due_at_of(state);
        let recheck = state.recheck.take();
        let held = state.held();
        Grant {
            token: held.map_or(FencingToken::new(0), |held| held.token),
            waited: held.map_or(self.since, |held| held.since).saturating_duration_since(self.since),
            due_at,
            ends_at: held.map(|held| held.valid_until),
            recheck_at: earlier(recheck, held.and_then(|held| held.end)),
        }
    }

    /// Sends the loss to `channel` when the hold is lost; at once if it is lost already.
    pub(crate) fn tell_when_lost(&self, channel: &FirstLoss) {
        let mut state = self.lock_state();
        match &mut state.phase {
            Phase::Lost(held, cause) => {
                let lost = self.lost(held.token, *cause);
                drop(state);
                channel.tell(&lost);
                channel.end_waits();
            }
            Phase::Held(held) | Phase::Leaving(Leaving { held: Some(held), .. }) => {
                held.loss_channels.retain(FirstLoss::is_open); // a hold may outlive many guards of it
                held.loss_channels.push(channel.clone());
            }
            Phase::Waiting(_) | Phase::Leaving(_) | Phase::Over(_) => {}
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

    /// Whether the hold is lost, and has leaked holds that were not unlocked.
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

    /// The hold is over here, and the server is not told. False: it is not certain, or is held more than once.
    pub(crate) fn hand_over(&self, now: Instant) -> bool {
        let mut state = self.lock_state();
        let only = state.certain(now).filter(|held| held.count == 1);
        let Some(handed_over) = only.map(|held| Some(held.token)) else { return false };
        let former = self.enter(&mut state, Phase::Over(End { handed_over, ..End::default() }));
        drop(state);
        drop(former); // without the mutex: a channel may keep a waker
        true
    }

    /// Gives up one hold.
    pub(crate) fn unlock(&self, now: Instant) -> Unlocked {
        let state = &mut *self.lock_state();
        let (held, lost) = match &mut state.phase {
            Phase::Held(held) if !held.is_certain(now) => return Unlocked::Expired,
            Phase::Held(held) => (held, None),
            Phase::Lost(held, cause) => (held, Some(*cause)),
            Phase::Waiting(_) | Phase::Leaving(_) | Phase::Over(_) => return Unlocked::NotHeld,
        };
        held.count = held.count.saturating_sub(1);
        let (token, count) = (held.token, held.count);
        let held_for = now.saturating_duration_since(held.since);
        if count == 0 {
            // From here on the watchdog begins no renewal; the release waits for a renewal under way. The watchdog may be about to
            // report the loss of this hold, but `lost` says that it was reported.
            let end = End { lost, ..End::default() };
            let leaving = Leaving { held: Some(held.take()), end, ..Leaving::default() };
            self.enter(state, Phase::Leaving(leaving));
        }
        match lost {
            Some(cause) => Unlocked::Lost { lost: self.lost(token, cause), last: count == 0 },
            None if count > 0 => Unlocked::StillHeld,
            None => Unlocked::Last { token, held_for, is_asking: state.contact.ask.is_under_way() },
        }
    }

    /// Marks the hold as lost, even during its release. Returns none if the loss was known already.
    ///
    /// The channels get the loss in the same step: before a caller can find the claim lost and ask anew.
    pub(crate) fn lose(&self, cause: LostCause) -> Option<Loss> {
        let mut state = self.lock_state();
        let (token, channels, was_leaving) = match &mut state.phase {
            Phase::Held(held) => {
                let (token, channels) = (held.token, std::mem::take(&mut held.loss_channels));
                let held = held.take();
                self.enter(&mut state, Phase::Lost(held, cause));
                self.task_is_due(); // its work is dropped
                (token, channels, false)
            }
            Phase::Leaving(Leaving { held: Some(held), end: End { lost: lost @ None, .. }, .. }) => {
                *lost = Some(cause);
                (held.token, std::mem::take(&mut held.loss_channels), true)
            }
            _ => return None,
        };
        let lost = self.lost(token, cause);
        channels.iter().for_each(|channel| channel.tell(&lost));
        drop(state);
        channels.iter().for_each(FirstLoss::end_waits);
        Some(Loss { lost, was_leaving })
    }

    /// Token, count and lease of a renewal by the holder itself. A fixed lease begins anew; a longest hold does not.
    pub(crate) fn renewal(&self, now: Instant) -> Option<(FencingToken, u32, Duration)> {
        let state = self.lock_state();
        let held = state.certain(now)?;
        let end = held.end.filter(|_| !matches!(self.terms, Terms::Fixed(_)));
        Some((held.token, held.count, self.terms.next_lease(now, end)))
    }

    /// What is said of a hold that could not be adopted.
    pub(crate) fn not_adopted(&self) -> Lost {
        let token = self.adopts.as_ref().map_or(FencingToken::new(0), |adopts| adopts.1);
        self.lost(token, LostCause::Taken)
    }

    /// The loss of this hold, if the hold was marked as lost or has expired.
    pub(crate) fn loss(&self, now: Instant) -> Option<Lost> {
        match &self.lock_state().phase {
            Phase::Lost(held, cause) => Some(self.lost(held.token, *cause)),
            Phase::Held(held) if !held.is_certain(now) => {
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

/// How the holds of a request live and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// The watchdog renews this lease for as long as the hold lasts.
    Renewed(Duration),
    /// The hold ends by itself after this time.
    Fixed(Duration),
    /// The lease is renewed, but not beyond `limit` after the grant.
    Capped { lease: Duration, limit: Duration },
}

impl Terms {
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for a duration that is too short.
    pub(crate) fn check(self) -> Result<Terms> {
        match self {
            Terms::Renewed(_) => Ok(self),
            Terms::Fixed(lease) => at_least("fixed_lease", lease, SHORTEST).map(Terms::Fixed),
            Terms::Capped { lease, limit } => {
                at_least("max_hold", limit, SHORTEST).map(|limit| Terms::Capped { lease, limit })
            }
        }
    }

    /// The lease to ask for with the lock.
    pub(crate) fn first_lease(self) -> Duration {
        match self {
            Terms::Renewed(lease) | Terms::Fixed(lease) => lease,
            Terms::Capped { lease, limit } => lease.min(limit),
        }
    }

    /// When a hold ends for good whose request was sent at `base`. By the server's clock it ends no earlier.
    pub(crate) fn end(self, base: Instant) -> Option<Instant> {
        match self {
            Terms::Renewed(_) => None,
            Terms::Fixed(time) | Terms::Capped { limit: time, .. } => base.checked_add(time),
        }
    }

    /// The lease to ask for in a renewal that is sent at `now`.
    pub(crate) fn next_lease(self, now: Instant, end: Option<Instant>) -> Duration {
        let lease = match self {
            Terms::Renewed(lease) | Terms::Fixed(lease) | Terms::Capped { lease, .. } => lease,
        };
        end.map_or(lease, |end| lease.min(end.saturating_duration_since(now)))
    }

    /// How a hold on these terms may end that no other can.
    pub(crate) fn own_end(self) -> Option<LostCause> {
        match self {
            Terms::Renewed(_) => None,
            Terms::Fixed(_) => Some(LostCause::LeaseOver),
            Terms::Capped { .. } => Some(LostCause::MaxHold),
        }
    }

    /// Why a hold on these terms expired at `now`.
    pub(crate) fn cause_of_end(self, now: Instant, end: Option<Instant>) -> LostCause {
        let ended = end.is_some_and(|end| end <= now + margin(self.first_lease()));
        match self {
            Terms::Fixed(_) if ended => LostCause::LeaseOver,
            Terms::Capped { .. } if ended => LostCause::MaxHold,
            _ => LostCause::NotRenewed,
        }
    }
}

/// What a client leaves unused of each lease, for clocks that run at different rates: 1 % and 2 ms.
pub(crate) fn margin(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Until when a client may rely on a lease that was asked for at `sent`. The client's lease counts from before the request was
/// sent, never from the answer, and so ends before the server's lease.
pub(crate) fn valid_until(sent: Instant, lease: Duration) -> Instant {
    let certain = lease.saturating_sub(margin(lease));
    sent.checked_add(certain).unwrap_or_else(|| sent + LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn validity_ends_before_the_lease() {
        let sent = Instant::now();
        assert_eq!(valid_until(sent, 30 * S), sent + Duration::from_millis(29_698));
        assert_eq!(valid_until(sent, Duration::from_millis(1)), sent);
        assert!(valid_until(sent, Duration::MAX) > sent);
    }

    #[test]
    fn the_last_renewal_of_a_capped_hold_is_cut() {
        let terms = Terms::Capped { lease: 30 * S, limit: 70 * S };
        let base = Instant::now();
        let end = terms.end(base);
        assert_eq!(terms.next_lease(base + 10 * S, end), 30 * S);
        assert_eq!(terms.next_lease(base + 50 * S, end), 20 * S);
        assert_eq!(terms.next_lease(base + 71 * S, end), Duration::ZERO);
        assert_eq!(terms.cause_of_end(base + 70 * S, end), LostCause::MaxHold);
        assert_eq!(terms.cause_of_end(base + 40 * S, end), LostCause::NotRenewed);
    }

    #[test]
    fn a_fixed_lease_that_ends_early_was_not_renewed() {
        let (terms, base) = (Terms::Fixed(30 * S), Instant::now());
        let cause = |at: Duration| terms.cause_of_end(base + at, terms.end(base));
        let early = 30 * S - margin(30 * S);
        assert_eq!(cause(early - Duration::from_nanos(1)), LostCause::NotRenewed);
        assert_eq!(cause(early), LostCause::LeaseOver);
    }

    #[test]
    fn only_limited_terms_have_an_end_of_their_own() {
        let all = [Terms::Renewed(S), Terms::Fixed(S), Terms::Capped { lease: S, limit: S }];
        assert_eq!(all.map(Terms::own_end), [None, Some(LostCause::LeaseOver), Some(LostCause::MaxHold)]);
    }

    #[test]
    fn durations_that_are_too_short_are_refused_by_name() {
        let error = Terms::Fixed(Duration::ZERO).check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid configuration: the time is 0 s, it has to be from 10 ms to 100 years (fixed_lease)"
        );
        let longest = Terms::Capped { lease: S, limit: LONGEST };
        assert_eq!(Terms::Capped { lease: S, limit: Duration::MAX }.check().unwrap(), longest);
        assert!(Terms::Fixed(SHORTEST).check().is_ok());
    }
}
