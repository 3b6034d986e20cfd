//! When the client's threads look next. `sleeper.rs` is a thread, `queue.rs` what callers left to the watchdog, `retries.rs` when an
//! unanswered request is repeated, `outage.rs` what the log says of that, `tasks.rs` what tasks want.

mod outage;
mod queue;
mod retries;
mod sleeper;
mod tasks;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

pub(crate) use outage::Concerned;
pub(crate) use queue::{Chore, Chores, ChoresInHand, Task};
pub(crate) use retries::{Rounds, longest_pause};
pub(crate) use sleeper::Sleeper;
pub(crate) use tasks::{Batch, Errand, Errands};

use crate::losses::Unlogged;
use crate::time::{Clock, Signal};

/// How many requests go in one call of the backend that no caller makes: the renewals wait for its
/// end, and Redis takes as many in one round trip.
pub(crate) const MOST_AT_ONCE: usize = 64;

/// The schedule of a client's threads, and the threads.
pub(crate) struct Schedule {
    /// The watchdog itself.
    pub(crate) dog: Sleeper,
    /// Beside the watchdog, which may be waiting for answers: tells of holds that expire.
    pub(crate) expiry: Sleeper,
    /// Makes the first attempts of what tasks want.
    pub(crate) tasks: Sleeper,
    pub(crate) errands: Errands,
    rounds: Mutex<Rounds>,
    pub(crate) chores: Chores,
    /// A call was not answered, and no other call since.
    silent: AtomicBool,
    pub(crate) unlogged: Unlogged,
    ended: AtomicBool,
}

impl Schedule {
    pub(crate) fn new(clock: &Clock) -> Schedule {
        Schedule {
            dog: Sleeper::new("fairlock-dog", clock),
            expiry: Sleeper::new("fairlock-expiry", clock),
            tasks: Sleeper::new("fairlock-tasks", clock),
            errands: Errands::default(),
            rounds: Mutex::default(),
            chores: Chores::default(),
            silent: AtomicBool::new(false),
            unlogged: Unlogged::default(),
            ended: AtomicBool::new(false),
        }
    }

    /// Starts this thread with `watch` as its body, unless it runs or all have been told to end. It stays: a thread for each wait
    /// for answers would cost more than most waits.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn start<C: Send + Sync + 'static>(
        &self,
        sleeper: &Sleeper,
        client: &Arc<C>,
        watch: fn(&Weak<C>),
    ) -> io::Result<()> {
        sleeper.start(self.signal(), || self.is_told_to_end(), client, watch)
    }

    /// A hold ends at `at`, if it is not renewed.
    pub(crate) fn ends_by(&self, at: Option<Instant>) {
        if let Some(at) = at {
            self.expiry.due_by(at);
        }
    }

    /// Something comes due for the watchdog at `at`.
    pub(crate) fn due_by(&self, at: Option<Instant>) {
        match at {
            // It does not look any more, but the shutdown that waits for it does.
            Some(_) if self.is_told_to_end() => self.signal().raise(),
            Some(at) => self.dog.due_by(at),
            None => {}
        }
    }

    /// Something is in the queue of errands.
    ///
    /// An end that has begun takes what is in that queue, and the thread does not look any more. The end is read after the errand was
    /// added: it takes the errand, or it is seen here. Then the queue must not keep the client, which would be for ever.
    pub(crate) fn errand_added(&self, now: Instant) {
        if self.is_told_to_end() {
            drop(self.errands.take_client());
            self.signal().raise();
        } else {
            self.tasks.due_by(now);
        }
    }

    /// The server probably answers again: what waits for a pause is tried at once.
    pub(crate) fn hurry(&self, now: Instant) {
        self.with_rounds(|rounds| rounds.hurry(now));
        self.due_by(Some(now));
    }

    /// A call was not answered.
    pub(crate) fn heard_nothing(&self) {
        self.silent.store(true, Ordering::Release);
    }

    /// A call was answered: if it is the first in an outage, the thread looks whether that is over.
    pub(crate) fn heard(&self) {
        if self.is_silent() {
            self.silent.store(false, Ordering::Release);
            self.signal().raise();
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    pub(crate) fn with_rounds<T>(&self, look: impl FnOnce(&mut Rounds) -> T) -> T {
        look(&mut self.rounds.lock())
    }

    /// When the next chore is due; those that were tried before wait for the pause.
    pub(crate) fn chores_due_at(&self) -> Option<Instant> {
        self.chores.due_at(self.with_rounds(|rounds| rounds.chores.not_before()))
    }

    /// Whether a chore that has failed is to be tried again only after a pause.
    pub(crate) fn chores_pause(&self, now: Instant) -> bool {
        self.with_rounds(|rounds| rounds.chores.not_before()).is_some_and(|at| at > now)
    }

    /// Ends the threads at their next step, without waiting for them.
    pub(crate) fn tell_to_end(&self) {
        self.ended.store(true, Ordering::Release);
        self.dog.signal().raise();
        self.expiry.signal().raise();
        self.tasks.signal().raise();
    }

    pub(crate) fn is_told_to_end(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Raised when something comes due for the watchdog, and when a thread has ended.
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        self.dog.signal()
    }

    /// Whether the threads have ended, or never ran.
    pub(crate) fn is_gone(&self) -> bool {
        self.dog.is_gone() && self.expiry.is_gone() && self.tasks.is_gone()
    }

    /// Waits for the threads, which are at their very end.
    pub(crate) fn join(&self) {
        self.dog.join();
        self.expiry.join();
        self.tasks.join();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossbeam_channel::{Receiver, bounded};

    use super::*;
    use crate::time::ManualClock;

    const S: Duration = Duration::from_secs(1);

    /// Whether this wakes the watchdog.
    fn wakes(schedule: &Schedule, act: impl FnOnce()) -> bool {
        let seen = schedule.signal().epoch();
        act();
        schedule.signal().epoch() != seen
    }

    #[test]
    fn the_watchdog_is_woken_only_for_what_is_due_before_it_looks() {
        let clock = Clock::from(ManualClock::new());
        let (schedule, now) = (Schedule::new(&clock), clock.now());
        schedule.dog.awake();
        let due_in = |time| wakes(&schedule, || schedule.due_by(Some(now + time)));
        assert!(!due_in(3 * S) && !due_in(4 * S), "it is awake");
        assert_eq!(schedule.dog.asleep(Some(now + 5 * S)), Some(now + 3 * S));
        assert_eq!([due_in(5 * S), due_in(6 * S), due_in(4 * S)], [false, false, true]);
        schedule.dog.awake();
        assert_eq!(schedule.dog.asleep(None), None, "it has looked");
        assert!(due_in(6 * S) && !wakes(&schedule, || schedule.due_by(None)));
    }

    /// Whoever waits for the end looks after it in its place.
    #[test]
    fn a_watchdog_that_is_told_to_end_is_woken_for_all() {
        let clock = Clock::from(ManualClock::new());
        let schedule = Schedule::new(&clock);
        schedule.dog.awake();
        assert!(wakes(&schedule, || schedule.tell_to_end()));
        assert!(wakes(&schedule, || schedule.due_by(Some(clock.now() + S))));
    }

    #[test]
    fn the_first_answer_in_an_outage_wakes_the_watchdog() {
        let schedule = Schedule::new(&Clock::system());
        assert!(!wakes(&schedule, || schedule.heard()));
        schedule.heard_nothing();
        assert!(schedule.is_silent() && wakes(&schedule, || schedule.heard()));
        assert!(!schedule.is_silent() && !wakes(&schedule, || schedule.heard()));
    }

    /// The body of a thread.
    fn wait(ends: &Weak<Receiver<()>>) {
        let _ = ends.upgrade().map(|ends| ends.recv());
    }

    #[test]
    fn a_schedule_is_gone_when_all_of_its_threads_are() {
        let clock = Clock::system();
        let threads: [fn(&Schedule) -> &Sleeper; 3] = [|s| &s.dog, |s| &s.expiry, |s| &s.tasks];
        for thread in threads {
            let schedule = Schedule::new(&clock);
            let (end, ends) = bounded(0);
            let ends = Arc::new(ends);
            schedule.start(thread(&schedule), &ends, wait).unwrap();
            assert!(!schedule.is_gone());
            drop(end);
            schedule.join();
            assert!(schedule.is_gone());
        }
    }

    #[test]
    fn no_thread_begins_once_they_are_told_to_end() {
        let schedule = Schedule::new(&Clock::system());
        let (_end, ends) = bounded(0);
        let ends = Arc::new(ends);
        schedule.tell_to_end();
        schedule.start(&schedule.dog, &ends, wait).unwrap();
        assert!(schedule.is_gone());
    }
}
