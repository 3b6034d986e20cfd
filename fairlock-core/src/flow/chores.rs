//! Tells the server what departed callers left behind: releases and withdrawals, repeated until they are answered or the
//! server must have forgotten by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Answer, BackendError, Hold, Place, Released, Withdrawn, or_missing};
use crate::claim::{Claim, Failure, GrantedBy};
use crate::error::LostCause;
use crate::ids::LockName;
use crate::logging::log_line;
use crate::schedule::{Chore, ChoresInHand, Task, longest_pause};
use crate::shared::Shared;

/// How long the chores of one round, and then its lines in the log, may take before the next renewals.
pub(crate) const TURN: Duration = Duration::from_millis(100);

/// What the chores of one turn leave to be done at its end, once for all of them.
#[derive(Default)]
pub(super) struct Turn {
    /// The last chore that was not answered.
    failed: Option<BackendError>,
    /// Another one was.
    is_heard: bool,
    /// The chores that are not tried any more.
    abandoned: usize,
    first_abandoned: Option<(Arc<Claim>, Task, BackendError)>,
    /// A request of each lock that left it.
    left: HashMap<LockName, Arc<Claim>>,
}

impl Shared {
    /// Has the watchdog release what the claim holds.
    pub(crate) fn release_soon(&self, claim: &Arc<Claim>) {
        self.leave_to_watchdog(claim, Task::Release);
    }

    /// Has the watchdog withdraw the claim's request.
    pub(crate) fn withdraw_soon(&self, claim: &Arc<Claim>) {
        self.leave_to_watchdog(claim, Task::Withdraw);
        self.recheck_by(claim, claim.take_recheck());
    }

    pub(super) fn leave_to_watchdog(&self, claim: &Arc<Claim>, task: Task) {
        let now = self.now();
        self.schedule.chores.add(claim, task, now);
        self.schedule.due_by(Some(now));
    }

    /// Does the chore of this claim on the calling thread, which waits for the claim's end: the watchdog may be held up by the
    /// answers of other locks. False: there is none, or another thread is at it.
    pub(crate) fn settle(&self, claim: &Arc<Claim>) -> bool {
        let Some(taken) = self.schedule.chores.take(claim) else { return false };
        let mut turn = Turn::default();
        self.attempt(taken, &mut turn);
        turn.end(self);
        // The watchdog did not see it while it was taken, and may have gone to sleep without an end. The caller may leave.
        self.schedule.due_by(self.schedule.chores_due_at());
        true
    }

    /// Does the chores that are due; returns when the next one is. `before` runs before each call to the server, when the
    /// chore is in hand: a caller may add one at any moment, so a look ahead would miss some.
    pub(crate) fn do_chores(&self, before: impl Fn()) -> Option<Instant> {
        let stop_at = self.now() + TURN;
        let mut turn = Turn::default();
        loop {
            let now = self.now();
            if now >= stop_at {
                break;
            }
            let Some(taken) = self.schedule.chores.next(!self.schedule.chores_pause(now), now) else { break };
            before();
            self.attempt(taken, &mut turn);
        }
        if let Some(error) = turn.failed.take() {
            for chore in self.schedule.chores.take_over(self.now()) {
                turn.abandon(self, chore, &error);
            }
        }
        turn.end(self);
        self.schedule.chores_due_at()
    }

    /// One attempt, in one call. What is not done is put back by the drop of `taken`, also after a panic.
    pub(super) fn attempt(&self, mut taken: ChoresInHand<'_>, turn: &mut Turn) {
        let mut is_retry = false;
        for chore in &mut taken.todo {
            chore.again = std::mem::replace(&mut chore.tried, true);
            is_retry |= chore.again;
        }
        let sent = self.now();
        let (mut is_answered, mut errors) = (false, Vec::new());
        for answer in self.tell(taken.todo.make_contiguous()) {
            // It stays in hand until all is done that follows from its answer, which may panic.
            let Some(chore) = taken.todo.front_mut() else { break };
            match answer {
                Ok(answer) => {
                    is_answered = true;
                    let next = self.told(chore, answer, sent, turn);
                    let Some(mut chore) = taken.todo.pop_front() else { break };
                    if let Some(task) = next {
                        (chore.task, chore.tried) = (task, false);
                        taken.back.push(chore);
                    }
                }
                Err(error) if !chore.claim.is_told_in_vain(&error) => {
                    self.chore_failed(chore, &error);
                    errors.push((Arc::clone(&chore.claim), error));
                    taken.back.extend(taken.todo.pop_front());
                }
                Err(error) => turn.abandon(self, taken.todo.pop_front(), &error),
            }
        }
        if is_answered {
            turn.is_heard = true;
            self.schedule.heard();
        }
        if !errors.is_empty() {
            self.chores_failed(taken, errors, is_answered, turn);
        } else if is_answered && is_retry {
            self.schedule.with_rounds(|rounds| rounds.chores.answered());
        }
    }

    /// All chores that were tried wait for a pause.
    fn chores_failed(
        &self,
        taken: ChoresInHand<'_>,
        errors: Vec<(Arc<Claim>, BackendError)>,
        others_answer: bool,
        turn: &mut Turn,
    ) {
        let (now, longest) = (self.now(), longest_pause(&self.config));
        // The pause is set before the claims' callers hear of the failure, since they go by both.
        let begins_to_pause = self.schedule.with_rounds(|rounds| {
            rounds.chores.failed(now, longest);
            rounds.chores.begins_to_pause()
        });
        for (claim, error) in &errors {
            claim.leaving_failed(error.clone());
        }
        drop(taken); // put back before the chores that are over are taken out
        if begins_to_pause {
            self.schedule.chores.tell_callers();
        }
        if let Some((claim, error)) = errors.into_iter().next() {
            turn.failed = Some(error.clone());
            self.heard_nothing(now, (claim.lock.name.clone(), error), others_answer);
        }
    }

    /// Tells the server of chores with one task. One answer each; that of a release says that nothing is left.
    fn tell(&self, chores: &[Chore]) -> impl Iterator<Item = Answer<Withdrawn>> + use<> {
        let answers = match chores {
            [Chore { task: Task::Release, .. }, ..] => {
                let holds: Vec<Hold<'_>> = chores.iter().map(|chore| chore.claim.leaving_hold()).collect();
                let answers = chores.iter().zip(self.backend.release_all(&holds));
                answers.map(|(chore, answer)| Ok(self.released(chore, answer?))).collect()
            }
            _ => {
                let places: Vec<Place<'_>> = chores.iter().map(|chore| chore.claim.place()).collect();
                self.backend.withdraw_all(&places)
            }
        };
        or_missing(answers).take(chores.len())
    }

    /// The first attempt to release a task's hold is made here. If the server does not have that hold it was lost. A thread makes its own
    /// attempt before; and after an attempt without an answer it may be that one which released the hold.
    fn released(&self, chore: &Chore, answer: Released) -> Withdrawn {
        let claim = &chore.claim;
        let has_failed = claim.leaving().is_none_or(|(failed, _)| failed > 0);
        let is_first = claim.is_tasks() && !chore.again && !has_failed;
        match (answer, claim.token(), claim.held_for(self.now())) {
            (Released::NotHeld, ..) if is_first => self.lose(claim, LostCause::Taken),
            (Released::Released, Some(token), Some(held_for)) if is_first => {
                self.log_release(claim, token, held_for);
            }
            _ => {}
        }
        Withdrawn::Left
    }

    /// Returns what is to be done next: a lock that had been granted has to be released.
    fn told(&self, chore: &Chore, answer: Withdrawn, sent: Instant, turn: &mut Turn) -> Option<Task> {
        let claim = &chore.claim;
        match answer {
            Withdrawn::Left => {
                self.retire(claim);
                if chore.task == Task::Withdraw {
                    turn.left.entry(claim.lock.name.clone()).or_insert_with(|| Arc::clone(claim));
                }
                None
            }
            Withdrawn::WasGranted { token, lease } => {
                self.counters.granted_by_answer(claim.request);
                if claim.granted_while_leaving(token, sent, lease, self.now()) {
                    self.granted(claim, GrantedBy::WakeUp);
                    return None;
                }
                // The caller has gone.
                Some(Task::Release)
            }
        }
    }
}

impl Turn {
    /// Whether the server has answered nothing.
    pub(super) fn is_silent(&self) -> bool {
        self.failed.is_some() && !self.is_heard
    }

    fn abandon(&mut self, shared: &Shared, chore: impl Into<Option<Chore>>, error: &BackendError) {
        let Some(chore) = chore.into() else { return };
        if error.kind().is_transient() {
            chore.claim.take_late_until(); // its time has passed, and with it all that an attempt may have begun
        }
        chore.claim.abandon_end(Failure::Backend(error.clone()));
        shared.retire(&chore.claim);
        // As the request was, which has left nothing.
        if chore.claim.was_refused() {
            return;
        }
        self.abandoned += 1;
        self.first_abandoned.get_or_insert_with(|| (chore.claim, chore.task, error.clone()));
    }

    /// Passes wake-ups on, once a lock: the search for a waiter passes those that leave as well. Writes one line, however many
    /// chores were given up.
    pub(super) fn end(&self, shared: &Shared) {
        self.left.values().for_each(|claim| shared.pass_wake_up_on(claim));
        let Some((claim, task, error)) = &self.first_abandoned else { return };
        let (lock, count) = (&claim.lock.name, self.abandoned);
        // The outage has its lines; and what the server was not told is over there by now.
        let in_outage = error.kind().is_transient();
        let level = if in_outage { log::Level::Debug } else { log::Level::Warn };
        log_line!(log, "fairlock::release", level,
            event = "given up", lock = lock.as_str(), task:? = task, count = count, error:% = error;
            "{count} releases or withdrawals given up; the first is {task:?} for lock {lock}: {error}"
        );
    }
}
