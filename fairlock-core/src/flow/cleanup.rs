//! Sends the cleanups (releases and withdrawals) that departed callers left behind, and repeats each until it is answered, or until
//! the hold or place must have ended by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Parts;
use crate::backend::{Answer, BackendError, Hold, Place, Released, Withdrawn, or_missing};
use crate::backlog::{Cleanup, CleanupBatch, PendingCleanup};
use crate::claim::{Claim, Failure, GrantedBy, earlier};
use crate::ids::LockName;
use crate::logging::log_line;
use crate::outage::First;
use crate::time::AfterFailure;

/// How long each step of a round of the watchdog may take before the next renewals: its cleanups, its asks, its lines in the log.
pub(crate) const STEP_LIMIT: Duration = Duration::from_millis(100);

/// A thread's run through some cleanups, and what is done once for all of them at its end.
pub(crate) struct CleanupRun<'a> {
    parts: Parts<'a>,
    /// Whether a cleanup goes back, and whether one of these had no answer.
    has_failed: bool,
    is_unanswered: bool,
    /// Whether a cleanup was carried out.
    is_heard: bool,
    /// How many cleanups were refused for the first time, and the first of them.
    refused: usize,
    first_refused: Option<First>,
    /// One departed request of each lock.
    left: HashMap<LockName, Arc<Claim>>,
}

impl<'a> CleanupRun<'a> {
    pub(crate) fn new(parts: Parts<'a>) -> CleanupRun<'a> {
        let (has_failed, is_unanswered, is_heard) = (false, false, false);
        let (refused, first_refused, left) = (0, None, HashMap::new());
        CleanupRun { parts, has_failed, is_unanswered, is_heard, refused, first_refused, left }
    }

    /// Sends the cleanup of this claim on the calling thread, which waits for the claim's end: the watchdog may be held up by the
    /// answers of other locks. False: there is no cleanup; or another thread sends it, or first has to finish a call about
    /// this claim.
    pub(crate) fn settle(mut self, claim: &Arc<Claim>) -> bool {
        let Parts { backlog, timers, .. } = self.parts;
        let Some(taken) = backlog.take(claim) else { return false };
        self.attempt(taken);
        timers.due_by(self.end());
        // The watchdog did not see the cleanup while it was taken, and may sleep without an end. The caller may leave.
        timers.due_by(backlog.due_at());
        true
    }

    /// Sends the cleanups that are due; returns when the next one is. `before` runs before each call to the server, when the
    /// cleanup is in hand: a caller may add one at any moment, so a look ahead would miss some.
    pub(crate) fn do_due(mut self, before: impl Fn()) -> Option<Instant> {
        let stop_at = self.parts.config.now() + STEP_LIMIT;
        loop {
            let now = self.parts.config.now();
            // After the stop failures set no common pause: the shutdown's threads go on, each cleanup with its own.
            if now >= stop_at || self.parts.config.stop.is_stopped() {
                break;
            }
            let Some(taken) = self.parts.backlog.next(now) else { break };
            before();
            self.attempt(taken);
        }
        if self.has_failed {
            self.abandon_what_is_over();
        }
        earlier(self.end(), self.parts.backlog.due_at())
    }

    /// One attempt, in one call.
    pub(crate) fn attempt(&mut self, taken: CleanupBatch<'_>) {
        self.make(taken);
        // A shutdown waits until nothing is in hand.
        if self.parts.config.stop.is_stopped() {
            self.parts.timers.signal().raise();
        }
    }

    /// The drop of `taken` puts back what is not done, even after a panic.
    fn make(&mut self, mut taken: CleanupBatch<'_>) {
        // The last ask was still under way when the cleanup was added, and was not sent either.
        taken.todo.retain(|pending| {
            let has_to_tell = pending.cleanup == Cleanup::Release || !pending.claim.is_unsent();
            if !has_to_tell {
                self.parts.ledger.retire(&pending.claim);
            }
            has_to_tell
        });
        if taken.todo.is_empty() {
            return;
        }
        let (sent, mut is_retry) = (self.parts.config.now(), false);
        for pending in &mut taken.todo {
            is_retry |= pending.tries > 0;
            pending.tries += 1;
            pending.pause_from(sent); // a panic is a failure, too
        }
        let (mut is_answered, mut errors) = (false, Vec::new());
        for answer in self.tell(taken.todo.make_contiguous()) {
            // The cleanup stays in hand until its answer is applied, which may panic.
            let Some(pending) = taken.todo.front_mut() else { break };
            match answer {
                Ok(answer) => {
                    is_answered = true;
                    let is_done = self.told(pending, answer, sent);
                    let Some(mut pending) = taken.todo.pop_front() else { break };
                    if !is_done {
                        pending.has_to_release();
                        taken.back.push(pending);
                    }
                }
                // As the request was, which has left nothing.
                Err(_) if pending.claim.was_refused() => {
                    self.parts.ledger.retire(&pending.claim);
                    taken.todo.pop_front();
                }
                Err(error) => {
                    let was_refused =
                        std::mem::replace(&mut pending.is_refused, !error.kind().is_transient());
                    if pending.is_refused && !was_refused {
                        self.refused += 1;
                        self.first_refused.get_or_insert_with(|| First {
                            lock: pending.claim.lock.name.clone(),
                            cleanup: pending.cleanup,
                            error: error.clone(),
                        });
                    }
                    pending.pause_from(self.parts.config.now());
                    self.parts.ledger.cleanup_failed(pending, &error);
                    errors.push((Arc::clone(&pending.claim), error));
                    taken.back.extend(taken.todo.pop_front());
                }
            }
        }
        if is_answered {
            self.is_heard = true;
            self.parts.outage.heard();
        }
        if !errors.is_empty() {
            self.failed(taken, errors, is_answered);
        } else if is_answered && is_retry {
            self.parts.backlog.retries.answered();
        }
    }

    /// All cleanups that were tried wait for a pause, as long as the client goes on.
    fn failed(
        &mut self,
        taken: CleanupBatch<'_>,
        errors: Vec<(Arc<Claim>, BackendError)>,
        others_answer: bool,
    ) {
        let now = self.parts.config.now();
        if self.parts.config.stop.is_stopped() {
            // Each waits for its own pause, and the shutdown has a line of its own.
            return errors.into_iter().for_each(|(claim, error)| claim.leaving_failed(error, now));
        }
        // The pause is set before the claims' callers learn of the failure, since they look at both.
        let after = self.parts.backlog.retries.failed(now, self.parts.config.longest_pause());
        for (claim, error) in &errors {
            claim.leaving_failed(error.clone(), now);
        }
        drop(taken); // put back before the cleanups that are over are taken out
        if after == AfterFailure::PausesBegin {
            self.parts.backlog.tell_callers();
        }
        self.has_failed = true;
        if let Some((claim, error)) = errors.into_iter().find(|(_, error)| error.kind().is_transient()) {
            self.is_unanswered = true;
            let failed = (claim.lock.name.clone(), error);
            self.parts.outage.heard_nothing(
                &self.parts.ledger.registry,
                self.parts.backlog,
                now,
                failed,
                others_answer,
            );
        }
    }

    /// Sends cleanups of one kind. Each gets one answer; after a release nothing is left.
    fn tell(&self, batch: &[PendingCleanup]) -> impl Iterator<Item = Answer<Withdrawn>> + use<> {
        let answers = match batch {
            [PendingCleanup { cleanup: Cleanup::Release, .. }, ..] => {
                let holds: Vec<Hold<'_>> = batch.iter().map(|pending| pending.claim.leaving_hold()).collect();
                let answers = batch.iter().zip(self.parts.backend.release(&holds));
                answers.map(|(pending, answer)| Ok(self.released(pending, answer?))).collect()
            }
            _ => {
                let places: Vec<Place<'_>> = batch.iter().map(|pending| pending.claim.place()).collect();
                self.parts.backend.withdraw(&places)
            }
        };
        or_missing(answers).take(batch.len())
    }

    /// A release was answered: the first attempt, which only a task leaves to this thread, says whether the hold was lost. In a repeat
    /// the earlier attempt may have released the hold.
    fn released(&self, PendingCleanup { claim, tries, .. }: &PendingCleanup, answer: Released) -> Withdrawn {
        let has_failed = claim.leaving().is_none_or(|(failed, _)| failed > 0);
        if let (Some(token), Some(held_for)) = (claim.token(), claim.held_for(self.parts.config.now()))
            && claim.is_tasks()
            && *tries == 1
            && !has_failed
        {
            self.parts.ledger.released(claim, token, held_for, answer, false);
        }
        Withdrawn::Left
    }

    /// Returns whether that is all: a lock that had been granted has to be released.
    fn told(&mut self, pending: &PendingCleanup, answer: Withdrawn, sent: Instant) -> bool {
        let claim = &pending.claim;
        match answer {
            Withdrawn::Left => {
                self.parts.ledger.retire(claim);
                if pending.cleanup == Cleanup::Withdraw {
                    self.left.entry(claim.lock.name.clone()).or_insert_with(|| Arc::clone(claim));
                }
                true
            }
            // An attempt was not answered, so the request is withdrawn once more; but the hold waits for an adopter.
            Withdrawn::WasGranted { token, .. } if claim.handed_over() == Some(token) => {
                self.parts.ledger.retire(claim);
                true
            }
            Withdrawn::WasGranted { token, lease } => {
                self.parts.ledger.counters.crossing.lock().granted_by_answer(claim.request);
                let is_taken = claim.granted_while_leaving(token, sent, lease, self.parts.config.now());
                if is_taken {
                    self.parts.ledger.granted(claim, GrantedBy::WakeUp);
                }
                is_taken // or the caller has gone
            }
        }
    }

    /// Whether the server has answered nothing.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_unanswered && !self.is_heard
    }

    /// Abandons the cleanups whose time has passed, and with it all that an attempt may have begun.
    fn abandon_what_is_over(&self) {
        let over = self.parts.backlog.take_over(self.parts.config.now());
        let last_error = |claim: &Claim| claim.leaving().and_then(|(_, error)| error);
        if let Some(PendingCleanup { claim, cleanup, .. }) = over.front()
            && let Some(error) = last_error(claim)
        {
            // An outage, and what is refused, have their own lines.
            let (lock, count) = (&claim.lock.name, over.len());
            log_line!(debug, "fairlock::release",
                event = "given up", lock = lock.as_str(), task:? = cleanup, count = count, error:% = error;
                "{count} releases or withdrawals given up; the first is {cleanup:?} for lock {lock}: {error}"
            );
        }
        for PendingCleanup { claim, .. } in over {
            claim.take_late_until();
            if let Some(error) = last_error(&claim) {
                claim.abandon_end(Failure::Backend(error));
            }
            self.parts.ledger.retire(&claim);
        }
    }

    /// Passes wake-ups on, one for each lock: the search for a waiter walks over those that leave as well. Logs one line, however
    /// many cleanups were refused. Returns when that line is due, if that is later.
    pub(crate) fn end(&mut self) -> Option<Instant> {
        self.left.values().for_each(|claim| self.parts.ledger.pass_wake_up_on(claim));
        self.parts.outage.refused.tell(self.refused, self.first_refused.take()?, self.parts.config.now())
    }
}
