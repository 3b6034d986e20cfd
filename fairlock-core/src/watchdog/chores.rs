//! What is left to tell the server after a caller has gone: releases and withdrawals, repeated until they are
//! answered or the server must have forgotten by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Watchdog;
use crate::backend::{BackendError, BackendErrorKind, Withdrawn};
use crate::backoff;
use crate::claim::{Claim, GrantedBy};
use crate::shared::Shared;

/// How long the chores of one round may take before renewals are looked at again.
const TURN: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Chores(Mutex<Vec<Chore>>);

struct Chore {
    claim: Arc<Claim>,
    task: Task,
    at: Instant,
    /// By then lease and place have run out at the server.
    until: Instant,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Release,
    Withdraw,
}

impl Shared {
    /// Has the watchdog release what the claim holds.
    pub(crate) fn release_soon(&self, claim: &Arc<Claim>) {
        self.leave_to_watchdog(claim, Task::Release);
    }

    /// Has the watchdog withdraw the claim's request.
    pub(crate) fn withdraw_soon(&self, claim: &Arc<Claim>) {
        self.leave_to_watchdog(claim, Task::Withdraw);
    }

    fn leave_to_watchdog(&self, claim: &Arc<Claim>, task: Task) {
        let now = self.now();
        let until = now + claim.terms.first_lease() + claim.place_ttl;
        self.watchdog.chores.0.lock().push(Chore {
            claim: Arc::clone(claim),
            task,
            at: now,
            until,
            failures: 0,
        });
        self.watchdog.due_by(Some(now));
    }

    /// Somebody waits for the end of this claim: what is left to be told is told now.
    pub(crate) fn hurry(&self, claim: &Arc<Claim>) {
        let now = self.now();
        for chore in self.watchdog.chores.0.lock().iter_mut().filter(|chore| Arc::ptr_eq(&chore.claim, claim))
        {
            chore.at = now;
        }
        self.watchdog.due_by(Some(now));
    }

    /// Does what is due; returns when the next is. It stops at the first failure: where one call ran into its
    /// time-out the next would too.
    pub(crate) fn do_chores(&self) -> Option<Instant> {
        let stop_at = self.now() + TURN;
        while let Some(mut chore) = self.watchdog.take_chore(self.now()) {
            let done = match chore.task {
                Task::Release => self.try_release(&chore.claim),
                Task::Withdraw => self.try_withdraw(&mut chore),
            };
            let now = self.now();
            match done {
                Ok(true) => {}
                Ok(false) => self.watchdog.chores.0.lock().push(chore),
                Err(error) if error.kind() != BackendErrorKind::Unavailable || now >= chore.until => {
                    let (task, lock) = (chore.task, &chore.claim.lock.name);
                    log::warn!(
                        target: "fairlock::release",
                        event = "given up", lock = lock.as_str(), task:? = task, error:% = error;
                        "lock {lock}: {task:?} given up: {error}"
                    );
                    self.forget(&chore.claim);
                }
                Err(error) => {
                    chore.claim.leaving_failed(error);
                    chore.failures += 1;
                    chore.at = now + backoff::pause(chore.failures);
                    self.watchdog.chores.0.lock().push(chore);
                    break;
                }
            }
            if now >= stop_at {
                break;
            }
        }
        self.watchdog.chores.0.lock().iter().map(|chore| chore.at).min()
    }

    fn try_release(&self, claim: &Arc<Claim>) -> Result<bool, BackendError> {
        if let Some(token) = claim.leaving_token() {
            self.backend.release(&claim.hold(token), None)?;
        }
        self.forget(claim);
        Ok(true)
    }

    /// False: it turned out to be a release.
    fn try_withdraw(&self, chore: &mut Chore) -> Result<bool, BackendError> {
        let claim = &chore.claim;
        let sent = self.now();
        match self.backend.withdraw(&claim.place())? {
            Withdrawn::Left => {
                self.forget(claim);
                self.pass_on(claim);
                Ok(true)
            }
            Withdrawn::WasGranted { token, lease } => {
                if claim.granted_while_leaving(token, sent, lease, self.now()) {
                    self.granted(claim, GrantedBy::WakeUp);
                    return Ok(true);
                }
                // The caller has gone: it is passed on, with the next turn of this loop.
                chore.task = Task::Release;
                Ok(false)
            }
        }
    }
}

impl Watchdog {
    pub(super) fn has_chore(&self, now: Instant) -> bool {
        self.chores.0.lock().iter().any(|chore| chore.at <= now)
    }

    fn take_chore(&self, now: Instant) -> Option<Chore> {
        let mut chores = self.chores.0.lock();
        let due = chores.iter().position(|chore| chore.at <= now)?;
        Some(chores.remove(due))
    }
}
