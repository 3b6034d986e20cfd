//! What is left to tell the server after a caller has gone: releases and withdrawals, repeated until they are
//! answered or the server must have forgotten by itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Watchdog;
use super::retries::longest_pause;
use crate::backend::{BackendError, BackendErrorKind, Withdrawn};
use crate::claim::{Claim, GrantedBy};
use crate::say::say;
use crate::shared::Shared;

/// How long the chores of one round, and then its lines in the log, may take before renewals are looked at again.
pub(super) const TURN: Duration = Duration::from_millis(100);

/// In the order in which they are to be tried.
#[derive(Default)]
pub(super) struct Chores(Mutex<VecDeque<Chore>>);

struct Chore {
    claim: Arc<Claim>,
    task: Task,
    /// By then lease and place have run out at the server.
    until: Instant,
    since: Instant,
    tried: bool,
}

/// What the server is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// That the hold is given up.
    Release,
    /// That the request is given up, also if it was granted.
    Withdraw,
}

/// How an attempt ended.
enum Attempt {
    Done,
    /// It turned out to be a release.
    IsRelease,
}

/// Chores of one turn that are not tried any more.
#[derive(Default)]
struct GivenUp {
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
        self.pass_look_on(claim);
    }

    fn leave_to_watchdog(&self, claim: &Arc<Claim>, task: Task) {
        let now = self.now();
        let until = now + claim.terms.first_lease() + claim.place_ttl;
        let claim = Arc::clone(claim);
        let signal = Arc::clone(&claim.signal);
        self.watchdog.chores.0.lock().push_back(Chore { claim, task, until, since: now, tried: false });
        signal.raise(); // somebody may wait for its end, and do it
        self.watchdog.due_by(Some(now));
    }

    /// Somebody waits for the end of this claim, and does what is left to be told on this thread: the watchdog may be
    /// held up by the answers of other locks. False: there is nothing, or another thread is at it.
    pub(crate) fn settle(&self, claim: &Arc<Claim>) -> bool {
        let taken = self.watchdog.chores.take(|chore| Arc::ptr_eq(&chore.claim, claim));
        let Some(taken) = taken else { return false };
        let mut given_up = GivenUp::default();
        self.do_chore(taken, &mut given_up);
        given_up.write();
        // While it was taken the watchdog did not see it, and may have gone to sleep without an end. The caller may not stay.
        self.watchdog.due_by(self.watchdog.chores_due_at());
        true
    }

    /// Takes all that is left to be told: a shutdown does it itself.
    pub(crate) fn take_chores(&self) -> Vec<(Arc<Claim>, Task)> {
        let chores = std::mem::take(&mut *self.watchdog.chores.0.lock());
        chores.into_iter().map(|chore| (chore.claim, chore.task)).collect()
    }

    /// Does what is due; returns when the next is.
    pub(crate) fn do_chores(&self) -> Option<Instant> {
        let stop_at = self.now() + TURN;
        let mut given_up = GivenUp::default();
        loop {
            let now = self.now();
            if now >= stop_at {
                break;
            }
            let Some(taken) = self.watchdog.next_chore(now) else { break };
            self.do_chore(taken, &mut given_up);
        }
        given_up.write();
        self.watchdog.chores_due_at()
    }

    /// One attempt. What is not done is put back by the drop of `taken`, also by a panic.
    fn do_chore(&self, mut taken: Taken<'_>, given_up: &mut GivenUp) {
        let Some(chore) = &mut taken.chore else { return };
        let is_retry = std::mem::replace(&mut chore.tried, true);
        let attempt = match chore.task {
            Task::Release => self.try_release(&chore.claim),
            Task::Withdraw => self.try_withdraw(&chore.claim),
        };
        match attempt {
            Ok(Attempt::IsRelease) => (chore.task, chore.tried) = (Task::Release, false),
            Ok(Attempt::Done) => {
                taken.chore = None;
                if is_retry {
                    self.watchdog.with_rounds(|rounds| rounds.chores.answered());
                }
            }
            Err(error) if error.kind() == BackendErrorKind::Unavailable => {
                chore.claim.leaving_failed(error.clone());
                drop(taken); // put back before what is over is taken out
                self.chore_failed(&error, given_up);
            }
            Err(error) => {
                if let Some(chore) = taken.chore.take() {
                    given_up.add(self, chore, &error);
                }
            }
        }
    }

    /// The others that were tried wait for a pause as well, and those whose time is over are not tried again.
    fn chore_failed(&self, error: &BackendError, given_up: &mut GivenUp) {
        let (now, longest) = (self.now(), longest_pause(&self.config));
        let is_told = self.watchdog.with_rounds(|rounds| rounds.chore_failed(now, longest));
        if is_told {
            let left = self.watchdog.chores.0.lock().len();
            say(|| {
                log::warn!(
                    target: "fairlock::release",
                    event = "not answered", count = left, error:% = error;
                    "{left} releases or withdrawals are left to be repeated: {error}"
                );
            });
        }
        for chore in self.watchdog.chores.take_over(now) {
            given_up.add(self, chore, error);
        }
    }

    fn try_release(&self, claim: &Arc<Claim>) -> Result<Attempt, BackendError> {
        if let Some(token) = claim.leaving_token() {
            self.backend.release(&claim.hold(token), None)?;
        }
        self.forget(claim);
        Ok(Attempt::Done)
    }

    fn try_withdraw(&self, claim: &Arc<Claim>) -> Result<Attempt, BackendError> {
        let sent = self.now();
        match self.backend.withdraw(&claim.place())? {
            Withdrawn::Left => {
                self.forget(claim);
                self.pass_on(claim);
                Ok(Attempt::Done)
            }
            Withdrawn::WasGranted { token, lease } => {
                self.counters.granted_by_answer(claim.request);
                if claim.granted_while_leaving(token, sent, lease, self.now()) {
                    self.granted(claim, GrantedBy::WakeUp);
                    return Ok(Attempt::Done);
                }
                // The caller has gone: it is passed on, with the next turn of this loop.
                Ok(Attempt::IsRelease)
            }
        }
    }
}

impl Watchdog {
    /// When something is left to be told; those that were tried before wait for the pause.
    pub(super) fn chores_due_at(&self) -> Option<Instant> {
        let pause = self.with_rounds(|rounds| rounds.chores.not_before());
        let chores = self.chores.0.lock();
        chores.iter().map(|chore| pause.filter(|_| chore.tried).unwrap_or(chore.since)).min()
    }

    /// The next one that is due. First attempts go before those that failed, which wait for the pause.
    fn next_chore(&self, now: Instant) -> Option<Taken<'_>> {
        let may_retry = self.with_rounds(|rounds| rounds.chores.not_before()).is_none_or(|at| at <= now);
        self.chores.take(|chore| !chore.tried).or_else(|| self.chores.take(|_| may_retry))
    }
}

impl Chores {
    fn take(&self, is_wanted: impl Fn(&Chore) -> bool) -> Option<Taken<'_>> {
        let mut chores = self.0.lock();
        let at = chores.iter().position(is_wanted)?;
        Some(Taken { chores: self, chore: chores.remove(at) })
    }

    /// Those that failed before and whose time is over.
    fn take_over(&self, now: Instant) -> VecDeque<Chore> {
        let mut chores = self.0.lock();
        let (over, left) = chores.drain(..).partition(|chore: &Chore| chore.tried && chore.until <= now);
        *chores = left;
        over
    }
}

/// A chore that a thread is at.
struct Taken<'a> {
    chores: &'a Chores,
    chore: Option<Chore>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(chore) = self.chore.take() {
            let signal = Arc::clone(&chore.claim.signal);
            self.chores.0.lock().push_back(chore);
            signal.raise(); // a caller may wait for its turn to do it
        }
    }
}

impl GivenUp {
    fn add(&mut self, shared: &Shared, chore: Chore, error: &BackendError) {
        shared.forget(&chore.claim);
        self.count += 1;
        self.first.get_or_insert_with(|| (chore.claim, chore.task, error.clone()));
    }

    /// One line, however many there are.
    fn write(&self) {
        let Some((claim, task, error)) = &self.first else { return };
        let (lock, count) = (&claim.lock.name, self.count);
        say(|| {
            log::warn!(
                target: "fairlock::release",
                event = "given up", lock = lock.as_str(), task:? = task, count = count, error:% = error;
                "{count} releases or withdrawals given up; the first is {task:?} for lock {lock}: {error}"
            );
        });
    }
}
