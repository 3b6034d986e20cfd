//! Tells the server what departed callers left behind: releases and withdrawals, repeated until they are answered or the
//! server must have forgotten by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{BackendError, BackendErrorKind, Withdrawn};
use crate::claim::{Claim, GrantedBy};
use crate::logging::log_safely;
use crate::schedule::{Chore, ChoreInHand, Task, longest_pause};
use crate::shared::Shared;

/// How long the chores of one round, and then its lines in the log, may take before the next renewals.
pub(crate) const TURN: Duration = Duration::from_millis(100);

/// The chores of one turn that are not tried any more.
#[derive(Default)]
struct Abandoned {
    count: usize,
    first: Option<(Arc<Claim>, Task, BackendError)>,
}

impl Shared {
    /// Has the watchdog release what the claim holds.
    pub(crate) fn release_soon(&self, claim: &Arc<Claim>) {
        self.leave_to_watchdog(claim, Task::Release);
    }

    /// Has the watchdog withdraw the claim's request.
    pub(crate) fn withdraw_soon(&self, claim: &Arc<Claim>) {
        self.leave_to_watchdog(claim, Task::Withdraw);
        self.pass_recheck_on(claim);
    }

    fn leave_to_watchdog(&self, claim: &Arc<Claim>, task: Task) {
        let now = self.now();
        self.schedule.chores.add(claim, task, now);
        self.schedule.due_by(Some(now));
    }

    /// Does the chore of this claim on the calling thread, which waits for the claim's end: the watchdog may be held up by the
    /// answers of other locks. False: there is none, or another thread is at it.
    pub(crate) fn settle(&self, claim: &Arc<Claim>) -> bool {
        let Some(taken) = self.schedule.chores.take(claim) else { return false };
        let mut abandoned = Abandoned::default();
        self.do_chore(taken, &mut abandoned);
        abandoned.write();
        // The watchdog did not see it while it was taken, and may have gone to sleep without an end. The caller may leave.
        self.schedule.due_by(self.schedule.chores_due_at());
        true
    }

    /// Does the chores that are due; returns when the next one is.
    pub(crate) fn do_chores(&self) -> Option<Instant> {
        let stop_at = self.now() + TURN;
        let mut abandoned = Abandoned::default();
        loop {
            let now = self.now();
            if now >= stop_at {
                break;
            }
            let Some(taken) = self.schedule.next_chore(now) else { break };
            self.do_chore(taken, &mut abandoned);
        }
        abandoned.write();
        self.schedule.chores_due_at()
    }

    /// One attempt. A chore that is not done is put back by the drop of `taken`, also after a panic.
    fn do_chore(&self, mut taken: ChoreInHand<'_>, abandoned: &mut Abandoned) {
        let Some(chore) = &mut taken.chore else { return };
        let is_retry = std::mem::replace(&mut chore.tried, true);
        let attempt = match chore.task {
            Task::Release => self.try_release(&chore.claim),
            Task::Withdraw => self.try_withdraw(&chore.claim),
        };
        if attempt.is_ok() {
            self.schedule.heard();
        }
        match attempt {
            Ok(Some(next)) => (chore.task, chore.tried) = (next, false),
            Ok(None) => {
                taken.chore = None;
                if is_retry {
                    self.schedule.with_rounds(|rounds| rounds.chores.answered());
                }
            }
            Err(error) if error.kind() == BackendErrorKind::Unavailable => {
                self.chore_failed(taken, &error, abandoned);
            }
            Err(error) => {
                if let Some(chore) = taken.chore.take() {
                    abandoned.add(self, chore, &error);
                }
            }
        }
    }

    /// All chores that were tried wait for a pause, and those whose time is over are not tried again.
    fn chore_failed(&self, taken: ChoreInHand<'_>, error: &BackendError, abandoned: &mut Abandoned) {
        let (now, longest) = (self.now(), longest_pause(&self.config));
        // The pause is set before the claim's caller hears of the failure, since it goes by both.
        let begins_to_pause = self.schedule.with_rounds(|rounds| {
            rounds.chores.failed(now, longest);
            rounds.chores.begins_to_pause()
        });
        let claim = taken.chore.as_ref().map(|chore| Arc::clone(&chore.claim));
        if let Some(claim) = &claim {
            claim.leaving_failed(error.clone());
        }
        drop(taken); // put back before the chores that are over are taken out
        if begins_to_pause {
            self.schedule.chores.tell_callers();
        }
        if let Some(claim) = &claim {
            self.heard_nothing(now, &claim.lock.name, error, false);
        }
        for chore in self.schedule.chores.take_over(now) {
            abandoned.add(self, chore, error);
        }
    }

    fn try_release(&self, claim: &Arc<Claim>) -> Result<Option<Task>, BackendError> {
        if let Some(token) = claim.leaving_token() {
            self.backend.release(&claim.hold(token), None)?;
        }
        self.retire(claim);
        Ok(None)
    }

    /// One attempt. Returns what is to be done next: a lock that had been granted has to be released.
    fn try_withdraw(&self, claim: &Arc<Claim>) -> Result<Option<Task>, BackendError> {
        let sent = self.now();
        match self.backend.withdraw(&claim.place())? {
            Withdrawn::Left => {
                self.retire(claim);
                self.pass_wake_up_on(claim);
                Ok(None)
            }
            Withdrawn::WasGranted { token, lease } => {
                self.counters.granted_by_answer(claim.request);
                if claim.granted_while_leaving(token, sent, lease, self.now()) {
                    self.granted(claim, GrantedBy::WakeUp);
                    return Ok(None);
                }
                // The caller has gone: the hold is released with the next turn of this loop.
                Ok(Some(Task::Release))
            }
        }
    }
}

impl Abandoned {
    fn add(&mut self, shared: &Shared, chore: Chore, error: &BackendError) {
        shared.retire(&chore.claim);
        self.count += 1;
        self.first.get_or_insert_with(|| (chore.claim, chore.task, error.clone()));
    }

    /// One line, however many there are.
    fn write(&self) {
        let Some((claim, task, error)) = &self.first else { return };
        let (lock, count) = (&claim.lock.name, self.count);
        // The outage has its lines; and what the server was not told is over there by now.
        let in_outage = error.kind() == BackendErrorKind::Unavailable;
        let level = if in_outage { log::Level::Debug } else { log::Level::Warn };
        log_safely(|| {
            log::log!(
                target: "fairlock::release", level,
                event = "given up", lock = lock.as_str(), task:? = task, count = count, error:% = error;
                "{count} releases or withdrawals given up; the first is {task:?} for lock {lock}: {error}"
            );
        });
    }
}
