//! What a task wants of a lock, without a thread that waits for it: a thread of the client makes the first attempts of all tasks, many
//! in a call. It makes no second one. What is not answered is left to the watchdog, as a request on which no caller waits, or as a
//! chore, so all else is as for threads.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::acquire::{Wish, error_of};
use super::chores::Turn;
use crate::claim::{AfterGivingUp, Claim, Failure, Unlocked};
use crate::error::{Error, LostCause, Result};
use crate::logging::log_line;
use crate::schedule::{Batch, Errand, Task};
use crate::shared::Shared;

/// Errands in the thread's hands. The watchdog gets those that are left when this is dropped, also by a panic, and goes on with the
/// requests.
struct InHand<'a>(&'a Shared, Batch);

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let InHand(shared, Batch { releases, withdrawals, asks, .. }) = self;
        releases.drain(..).for_each(|claim| shared.release_soon(&claim));
        withdrawals.drain(..).for_each(|claim| shared.leave_to_watchdog(&claim, Task::Withdraw));
        asks.drain(..).for_each(|claim| shared.schedule.due_by(claim.stop_attending()));
        // The watchdog did not see the chores that were put back while they were in hand, and may have gone to sleep without an end.
        shared.schedule.due_by(shared.schedule.chores_due_at());
    }
}

impl Shared {
    /// Makes a request and has it asked for. Its owner has no other claim on the lock.
    ///
    /// # Errors
    /// No request was made.
    pub(crate) fn begin_task(self: &Arc<Self>, wish: Wish<'_>) -> Result<Arc<Claim>> {
        let Wish { lock, owner, terms, takes, patience } = wish;
        let name = &lock.name;
        self.may_begin_task(&wish)?;
        // Before the first request: no hold may be granted that no thread can renew.
        self.start_watchdog().map_err(|error| Error::about(name, error))?;
        let (lock, owner) = (lock.clone(), owner.clone());
        let claim = Claim::new(lock, owner, patience.wait, terms, takes, &self.config, self.now());
        let claim = Arc::new(claim.of_task(patience.deadline));
        let join = |_: &Arc<Claim>| None;
        self.registry.get_or_make(name, &claim.owner, join, || (Arc::clone(&claim), ()));
        // A drain or a shutdown that began meanwhile may have listed the claims before this one was there.
        if let Err(error) = self.may_begin_task(&wish) {
            self.leave_task(&claim);
            return Err(error);
        }
        self.schedule.due_by(claim.due_at());
        self.run_errand(&claim, Errand::Ask);
        Ok(claim)
    }

    /// Its owner holds nothing, so a drain refuses it.
    fn may_begin_task(&self, wish: &Wish<'_>) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(error_of(&wish.lock.name, Failure::Shutdown)) }
    }

    /// A task stops waiting: it leaves the line, or gives back what it was granted.
    pub(crate) fn leave_task(self: &Arc<Self>, claim: &Arc<Claim>) {
        match claim.give_up_request().map(|give_up| give_up.after) {
            Some(AfterGivingUp::Withdraw) => {
                self.run_errand(claim, Errand::Tell(Task::Withdraw));
                self.recheck_by(claim, claim.take_recheck());
            }
            Some(AfterGivingUp::Nothing | AfterGivingUp::OthersWait) => self.retire(claim),
            None => _ = self.unlock_task(claim), // a loss was logged, and a claim that has failed holds nothing
        }
    }

    /// Gives a task's hold up. Its release is under way when this returns: `Claim::release_step` says how it ends.
    ///
    /// # Errors
    /// [`Error::Lost`]; [`Error::NotHeld`] for a claim that holds nothing.
    pub(crate) fn unlock_task(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<()> {
        let now = self.now();
        let mut unlocked = claim.unlock(now);
        if let Unlocked::Expired = unlocked {
            self.lose_if_expired(claim);
            unlocked = claim.unlock(now);
        }
        match unlocked {
            // From here on the watchdog begins no renewal.
            Unlocked::Last { held_for, .. } => {
                self.run_errand(claim, Errand::Tell(Task::Release));
                self.counters.held(&claim.lock.name, held_for);
                Ok(())
            }
            Unlocked::Lost { lost, .. } => {
                match lost.cause {
                    LostCause::Shutdown => self.retire(claim), // the shutdown tells the server
                    _ => self.run_errand(claim, Errand::Tell(Task::Release)),
                }
                Err(Error::Lost(lost))
            }
            Unlocked::StillHeld { .. } | Unlocked::NotHeld | Unlocked::Expired => Err(self.not_held(claim)),
        }
    }

    /// A task has dropped the last handle. What is left to be told to the server is told by a thread: this drop must not wait for it.
    pub(crate) fn end_elsewhere(self) {
        if self.schedule.chores.is_clear() {
            return;
        }
        let clock = self.config.clock.clone();
        clock.announce_background();
        let run = move || {
            let _here = clock.attend_in_background();
            drop(self);
        };
        if let Err(error) = thread::Builder::new().name("fairlock-end".into()).spawn(run) {
            log_line!(warn, "fairlock::release",
                event = "no thread", error:% = error;
                "no thread to end the client, so the drop of its last handle did: {error}"
            );
        }
    }

    fn run_errand(self: &Arc<Self>, claim: &Arc<Claim>, errand: Errand) {
        self.schedule.errands.add(claim, errand, Arc::clone(self) as _);
        self.schedule.errand_added(self.now());
    }

    /// A look of the thread for tasks: all that is in the queue.
    pub(crate) fn run_errands(self: &Arc<Self>) -> Option<Instant> {
        while !self.schedule.is_told_to_end()
            && let Some(batch) = self.schedule.errands.next()
        {
            // All are in hand before the first call, which may panic.
            let mut hand = InHand(self, batch);
            let is_silent = self.tell_first(&mut hand) || self.ask_first(&hand);
            drop(hand);
            // Each call would wait for a time-out, one after the other. The watchdog has pauses for that, and gives up.
            while is_silent && let Some(batch) = self.schedule.errands.next() {
                drop(InHand(self, batch));
            }
        }
        None
    }

    /// Releases, and then withdrawals. Returns whether the server is silent.
    fn tell_first(&self, hand: &mut InHand<'_>) -> bool {
        let Batch { releases, withdrawals, .. } = &mut hand.1;
        let mut turn = Turn::default();
        // A call of the watchdog's that is under way could make a place after this one. It is the only other thread that makes such
        // calls for a task, so its own chore comes after them. (The renewal of a hold finds nothing after the release.)
        let is_busy = |task, claim: &Claim| match task {
            Task::Release => claim.is_asking(),
            Task::Withdraw => claim.may_make_a_place(),
        };
        for (queue, task) in [(releases, Task::Release), (withdrawals, Task::Withdraw)] {
            if turn.is_silent() {
                break;
            }
            let (busy, claims) = queue.drain(..).partition::<Vec<_>, _>(|claim| is_busy(task, claim));
            busy.iter().for_each(|claim| self.leave_to_watchdog(claim, task));
            if !claims.is_empty() {
                self.attempt(self.schedule.chores.in_hand(claims, task, self.now()), &mut turn);
            }
        }
        turn.end(self);
        turn.is_silent()
    }

    /// The first attempts of requests. Returns whether the server is silent.
    fn ask_first(&self, hand: &InHand<'_>) -> bool {
        // Not of tasks that have left.
        let claims: Vec<_> = hand.1.asks.iter().filter(|claim| claim.begin_to_ask()).cloned().collect();
        if !claims.is_empty() {
            self.ask_all(&claims);
        }
        !claims.is_empty() && claims.iter().all(|claim| claim.asked_in_vain())
    }
}
