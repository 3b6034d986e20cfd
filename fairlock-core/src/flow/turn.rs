//! Makes the releases and withdrawals that departed callers left behind, and repeats them until they are answered, or until the
//! hold or place must have ended by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Parts;
use crate::backend::{Answer, BackendError, Hold, Place, Released, Withdrawn, or_missing};
use crate::backoff::AfterFailure;
use crate::chores::{Chore, ChoresInHand, Duty};
use crate::claim::{Claim, Failure, GrantedBy, earlier};
use crate::ids::LockName;
use crate::ledger::log_release;
use crate::logging::log_line;
use crate::outage::First;

/// How long the chores of one round, and then its lines in the log, may take before the next renewals.
pub(crate) const TURN: Duration = Duration::from_millis(100);

/// The chores of one turn, and what they leave to be done at its end, once for all of them.
pub(crate) struct Turn<'a> {
    parts: Parts<'a>,
    /// The last chore that was not answered.
    failed: Option<BackendError>,
    /// Whether a chore was answered.
    is_heard: bool,
    /// How many chores are given up, and the first of them.
    abandoned: usize,
    first_abandoned: Option<First>,
    /// One departed request of each lock.
    left: HashMap<LockName, Arc<Claim>>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(parts: Parts<'a>) -> Turn<'a> {
        let (abandoned, first_abandoned, left) = (0, None, HashMap::new());
        Turn { parts, failed: None, is_heard: false, abandoned, first_abandoned, left }
    }

    /// Does the chore of this claim on the calling thread, which waits for the claim's end: the watchdog may be held up by the
    /// answers of other locks. False: there is no chore; or another thread does it, or first has to finish a call about this
    /// claim.
    pub(crate) fn settle(mut self, claim: &Arc<Claim>) -> bool {
        let Parts { chores, timers, .. } = self.parts;
        let Some(taken) = chores.take(claim) else { return false };
        self.attempt(taken);
        timers.due_by(self.end());
        // The watchdog did not see the chore while it was taken, and may sleep without an end. The caller may leave.
        timers.due_by(chores.due_at());
        true
    }

    /// Does the chores that are due; returns when the next one is. `before` runs before each call to the server, when the
    /// chore is in hand: a caller may add one at any moment, so a look ahead would miss some.
    pub(crate) fn do_due(mut self, before: impl Fn()) -> Option<Instant> {
        let stop_at = self.parts.config.now() + TURN;
        loop {
            let now = self.parts.config.now();
            if now >= stop_at {
                break;
            }
            let Some(taken) = self.parts.chores.next(now) else { break };
            before();
            self.attempt(taken);
        }
        if let Some(error) = self.failed.take() {
            for chore in self.parts.chores.take_over(self.parts.config.now()) {
                self.abandon(chore, &error);
            }
        }
        earlier(self.end(), self.parts.chores.due_at())
    }

    /// One attempt, in one call. The drop of `taken` puts back what is not done, even after a panic.
    pub(crate) fn attempt(&mut self, mut taken: ChoresInHand<'_>) {
        // The last ask was still under way when the chore was added, and was not sent either.
        taken.todo.retain(|chore| {
            let has_to_tell = chore.duty == Duty::Release || !chore.claim.is_unsent();
            if !has_to_tell {
                self.parts.ledger.retire(&chore.claim);
            }
            has_to_tell
        });
        if taken.todo.is_empty() {
            return;
        }
        let mut is_retry = false;
        for chore in &mut taken.todo {
            chore.again = std::mem::replace(&mut chore.tried, true);
            is_retry |= chore.again;
        }
        let sent = self.parts.config.now();
        let (mut is_answered, mut errors) = (false, Vec::new());
        for answer in self.tell(taken.todo.make_contiguous()) {
            // The chore stays in hand until its answer is applied, which may panic.
            let Some(chore) = taken.todo.front_mut() else { break };
            match answer {
                Ok(answer) => {
                    is_answered = true;
                    let next = self.told(chore, answer, sent);
                    let Some(mut chore) = taken.todo.pop_front() else { break };
                    if let Some(duty) = next {
                        (chore.duty, chore.tried) = (duty, false);
                        taken.back.push(chore);
                    }
                }
                Err(error) if !chore.claim.needs_no_repeat(&error) => {
                    self.parts.ledger.chore_failed(chore, &error);
                    errors.push((Arc::clone(&chore.claim), error));
                    taken.back.extend(taken.todo.pop_front());
                }
                Err(error) => self.abandon(taken.todo.pop_front(), &error),
            }
        }
        if is_answered {
            self.is_heard = true;
            self.parts.outage.heard();
        }
        if !errors.is_empty() {
            self.unanswered(taken, errors, is_answered);
        } else if is_answered && is_retry {
            self.parts.chores.retries.answered();
        }
    }

    /// All chores that were tried wait for a pause.
    fn unanswered(
        &mut self,
        taken: ChoresInHand<'_>,
        errors: Vec<(Arc<Claim>, BackendError)>,
        others_answer: bool,
    ) {
        let now = self.parts.config.now();
        // The pause is set before the claims' callers learn of the failure, since they look at both.
        let after = self.parts.chores.retries.failed(now, self.parts.config.longest_pause());
        for (claim, error) in &errors {
            claim.leaving_failed(error.clone());
        }
        drop(taken); // put back before the chores that are over are taken out
        if after == AfterFailure::PausesBegin {
            self.parts.chores.tell_callers();
        }
        if let Some((claim, error)) = errors.into_iter().next() {
            self.failed = Some(error.clone());
            let failed = (claim.lock.name.clone(), error);
            self.parts.outage.heard_nothing(
                &self.parts.ledger.registry,
                self.parts.chores,
                now,
                failed,
                others_answer,
            );
        }
    }

    /// Tells the server of chores with one duty. Each gets one answer; after that of a release nothing is left.
    fn tell(&self, chores: &[Chore]) -> impl Iterator<Item = Answer<Withdrawn>> + use<> {
        let answers = match chores {
            [Chore { duty: Duty::Release, .. }, ..] => {
                let holds: Vec<Hold<'_>> = chores.iter().map(|chore| chore.claim.leaving_hold()).collect();
                let answers = chores.iter().zip(self.parts.backend.release(&holds));
                answers.map(|(chore, answer)| Ok(self.released(chore, answer?))).collect()
            }
            _ => {
                let places: Vec<Place<'_>> = chores.iter().map(|chore| chore.claim.place()).collect();
                self.parts.backend.withdraw(&places)
            }
        };
        or_missing(answers).take(chores.len())
    }

    /// A release was answered. If the first attempt, which only a task leaves to this thread, finds no hold, the hold was lost,
    /// unless its lease has ended since. In a repeat the earlier attempt may have released the hold.
    fn released(&self, chore: &Chore, answer: Released) -> Withdrawn {
        let claim = &chore.claim;
        let has_failed = claim.leaving().is_none_or(|(failed, _)| failed > 0);
        let is_first = claim.is_tasks() && !chore.again && !has_failed;
        let now = self.parts.config.now();
        match (answer, claim.token(), claim.held_for(now)) {
            (Released::NotHeld, ..) if is_first => {
                if let Some(cause) = claim.loss_found_by_release(false, now) {
                    self.parts.ledger.lose(claim, cause);
                }
            }
            (Released::Released, Some(token), Some(held_for)) if is_first => {
                log_release(claim, token, held_for);
            }
            _ => {}
        }
        Withdrawn::Left
    }

    /// Returns what is to be done next: a lock that had been granted has to be released.
    fn told(&mut self, chore: &Chore, answer: Withdrawn, sent: Instant) -> Option<Duty> {
        let claim = &chore.claim;
        match answer {
            Withdrawn::Left => {
                self.parts.ledger.retire(claim);
                if chore.duty == Duty::Withdraw {
                    self.left.entry(claim.lock.name.clone()).or_insert_with(|| Arc::clone(claim));
                }
                None
            }
            Withdrawn::WasGranted { token, lease } => {
                self.parts.ledger.counters.granted_by_answer(claim.request);
                if claim.granted_while_leaving(token, sent, lease, self.parts.config.now()) {
                    self.parts.ledger.granted(claim, GrantedBy::WakeUp);
                    return None;
                }
                // The caller has gone.
                Some(Duty::Release)
            }
        }
    }

    /// Whether the server has answered nothing.
    pub(crate) fn is_silent(&self) -> bool {
        self.failed.is_some() && !self.is_heard
    }

    fn abandon(&mut self, chore: impl Into<Option<Chore>>, error: &BackendError) {
        let Some(chore) = chore.into() else { return };
        if error.kind().is_transient() {
            chore.claim.take_late_until(); // its time has passed, and with it all that an attempt may have begun
        }
        chore.claim.abandon_end(Failure::Backend(error.clone()));
        self.parts.ledger.retire(&chore.claim);
        // As the request was refused, which has left nothing.
        if chore.claim.was_refused() {
            return;
        }
        self.abandoned += 1;
        self.first_abandoned.get_or_insert_with(|| First {
            lock: chore.claim.lock.name.clone(),
            duty: chore.duty,
            error: error.clone(),
        });
    }

    /// Passes wake-ups on, one for each lock: the search for a waiter walks over those that leave as well. Logs one line, however
    /// many chores were given up. Returns when that line is due, if that is later.
    pub(crate) fn end(&mut self) -> Option<Instant> {
        self.left.values().for_each(|claim| self.parts.ledger.pass_wake_up_on(claim));
        let (first, count) = (self.first_abandoned.take()?, self.abandoned);
        if !first.error.kind().is_transient() {
            return self.parts.outage.given_up.tell(count, first, self.parts.config.now());
        }
        let First { lock, duty, error } = first;
        // The outage has its own lines; and what the server was not told of is over there by now.
        log_line!(debug, "fairlock::release",
            event = "given up", lock = lock.as_str(), task:? = duty, count = count, error:% = error;
            "{count} releases or withdrawals given up; the first is {duty:?} for lock {lock}: {error}"
        );
        None
    }
}
