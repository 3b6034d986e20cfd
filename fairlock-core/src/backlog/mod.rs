//! The calls that callers leave to other threads: cleanups, which are releases and withdrawals; and the first attempts of tasks and
//! their other calls, to the threads for tasks (`first_attempts.rs`, [`Calls`]).
//!
//! | a cleanup is | which means | until |
//! | --- | --- | --- |
//! | late | it is a second withdrawal, for what may arrive late | its time, or the client's end: fresh |
//! | fresh | no attempt was made | a thread takes it |
//! | in hand | one thread makes an attempt: `attempt` of `flow/cleanup.rs` | an answer: done, or fresh again as the release of a grant that the withdrawal found. No answer, a refusal, a panic: tried |
//! | tried | each attempt may have been carried out | a thread takes it, after a pause; or lease and place must be over: done |
//! | done | its claim is retired | |
//!
//! | who drives | which cleanups | until |
//! | --- | --- | --- |
//! | a caller, `flow/mod.rs` | its own release, which is in no list | the outage limit, in a drop one attempt: then the release is fresh |
//! | the threads for tasks | the tasks' first attempts, which are in a list of their own | one attempt: then they are tried |
//! | the watchdog | many in a call; the repeats of all after one pause | lease and place must be over |
//! | the owner's next call | that of the owner's former claim | it is done, or the call's time is over |
//! | the threads of a shutdown | a release, or a share of the withdrawals, in a call; each repeat after a pause of its own | the shutdown's time is over |
//!
//! What can happen at the same time:
//!
//! - A call of the same claim: no thread takes the cleanup before that call has ended, see [`Cleanup::has_to_wait`]. At the end of a
//!   shutdown's time a withdrawal is sent all the same, since nobody sends it later.
//! - A caller that waits for the end of the claim: the claim's signal is raised when the cleanup comes into a list, and when an
//!   attempt has failed. Then that caller may take it.
//! - The watchdog goes to sleep while another thread has a cleanup in hand, and does not see it: that thread wakes the watchdog
//!   afterwards.
//! - A shutdown looks whether all is done: what is in hand is counted, and the thread raises the shutdown's signal afterwards.
//! - The last guard of a hold that a shutdown cuts off is dropped, and its claim forgets the token: the shutdown releases the hold by
//!   a claim of its own.

mod first_attempts;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

pub(crate) use first_attempts::{Batch, FirstAttempt, FirstAttempts, Next};

use crate::claim::Claim;
use crate::config::MOST_AT_ONCE;
use crate::time::{Retries, pause};
use crate::timers::{CALL_THREADS, Timers};

/// The cleanups in lists. A method looks only at the cleanups that it takes, but for methods that are
/// called once in an outage, or once a round while the server does not answer.
#[derive(Default)]
pub(crate) struct Backlog {
    lists: Mutex<Lists>,
    /// The pause of the cleanups that were tried before.
    pub(crate) retries: Retries,
    /// How many threads of a shutdown take cleanups.
    pub(crate) drivers: AtomicUsize,
}

#[derive(Default)]
struct Lists {
    /// Cleanups without an attempt.
    fresh: VecDeque<PendingCleanup>,
    /// Cleanups whose last attempt was not answered, or was refused.
    tried: VecDeque<PendingCleanup>,
    /// Withdrawals for later, when an attempt can no longer begin anything: by that time and the request's number.
    late: BTreeMap<(Instant, u64), Arc<Claim>>,
    /// The batches that threads have taken, by number: the first claim, and how many cleanups.
    in_hand: BTreeMap<u64, (Arc<Claim>, usize)>,
    /// How many batches were taken.
    taken: u64,
}

impl Lists {
    fn make_due(&mut self, now: Instant, is_due: impl Fn(Instant) -> bool) {
        while let Some(first) = self.late.first_entry().filter(|first| is_due(first.key().0)) {
            let ((at, _), claim) = first.remove_entry();
            self.fresh.push_back(PendingCleanup::new(claim, Cleanup::Withdraw, at.min(now)));
        }
    }

    /// Takes cleanups of one kind that follow each other, from the first that `may_go`: first attempts before repeats.
    fn take(
        &mut self,
        may_repeat: bool,
        most: impl Fn(Cleanup) -> usize,
        may_go: impl Fn(&PendingCleanup) -> bool,
    ) -> Option<VecDeque<PendingCleanup>> {
        let repeats = may_repeat.then_some(&mut self.tried);
        [Some(&mut self.fresh), repeats].into_iter().flatten().find_map(|list| {
            let first = list.iter().position(&may_go)?;
            let PendingCleanup { cleanup, .. } = list[first];
            let goes_too = |pending: &&PendingCleanup| pending.cleanup == cleanup && may_go(pending);
            let of_kind = list.iter().skip(first).take(most(cleanup)).take_while(goes_too).count();
            Some(list.drain(first..first + of_kind).collect())
        })
    }
}

pub(crate) struct PendingCleanup {
    pub(crate) claim: Arc<Claim>,
    pub(crate) cleanup: Cleanup,
    since: Instant,
    /// How many attempts were begun. Each may have been carried out, even if a panic has hidden its answer.
    pub(crate) tries: u32,
    /// When the next attempt is due at the client's end. Before, all cleanups that were tried have one pause.
    due: Instant,
    /// The last attempt was refused, which is no outage. It is repeated all the same: nobody else ends what it is about, and what
    /// the server refuses now it may do in a moment.
    pub(crate) is_refused: bool,
    /// A release of the grant that the withdrawal has found.
    is_found: bool,
}

impl PendingCleanup {
    fn new(claim: Arc<Claim>, cleanup: Cleanup, since: Instant) -> PendingCleanup {
        PendingCleanup { claim, cleanup, since, tries: 0, due: since, is_refused: false, is_found: false }
    }

    /// The withdrawal has found that the lock was granted.
    pub(crate) fn has_to_release(&mut self) {
        (self.cleanup, self.tries, self.is_found) = (Cleanup::Release, 0, true);
        self.due = self.since; // the server has just answered
    }

    /// An attempt begins, or has failed.
    pub(crate) fn pause_from(&mut self, now: Instant) {
        self.due = now + pause(self.tries);
    }

    fn has_to_wait(&self) -> bool {
        self.cleanup.has_to_wait(&self.claim)
    }

    /// From then on lease and place are over at the server, even if a late attempt began them at its very end.
    fn until(&self) -> Instant {
        let PendingCleanup { claim, since, .. } = self;
        let late = claim.config.attempt_ttl.unwrap_or_default();
        *since + late + claim.terms.first_lease() + claim.config.place_ttl
    }
}

/// A call that ends something at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cleanup {
    /// Ends a hold.
    Release,
    /// Ends a request, even if it was granted.
    Withdraw,
}

impl Cleanup {
    /// Releases go first: others wait for them.
    pub(crate) const ALL: [Cleanup; 2] = [Cleanup::Release, Cleanup::Withdraw];

    /// Whether a call of this claim is under way that has to end before the cleanup; a claim with a cleanup begins no such call. No
    /// thread takes the cleanup meanwhile. The thread that makes the call has the watchdog look afterwards, or is the watchdog. An
    /// ask that the server carried out after the cleanup would begin anew what the cleanup ends. A heartbeat begins nothing, but if its
    /// answer tells of a place after the withdrawal, the request is withdrawn once more: where owners name places, that would
    /// remove the place of the owner's next request. (The renewal of a hold finds nothing after the release.)
    pub(crate) fn has_to_wait(self, claim: &Claim) -> bool {
        match self {
            Cleanup::Release => claim.is_asking(),
            Cleanup::Withdraw => claim.may_make_a_place(),
        }
    }
}

impl Backlog {
    pub(crate) fn add(&self, claim: &Arc<Claim>, cleanup: Cleanup, now: Instant) {
        self.lists.lock().fresh.push_back(PendingCleanup::new(Arc::clone(claim), cleanup, now));
        claim.raise(); // a caller may wait for the claim's end, and do it itself
    }

    /// Has the request withdrawn at `at`, and not before.
    pub(crate) fn add_late(&self, claim: Arc<Claim>, at: Instant) {
        self.lists.lock().late.insert((at, claim.request.get()), claim);
    }

    /// When this claim is to be withdrawn, if that is later.
    pub(crate) fn late_at(&self, claim: &Arc<Claim>) -> Option<Instant> {
        let lists = self.lists.lock();
        lists.late.iter().find(|(_, late)| Arc::ptr_eq(late, claim)).map(|((at, _), _)| *at)
    }

    /// The claims that are to be withdrawn later.
    pub(crate) fn later(&self) -> Vec<Arc<Claim>> {
        self.lists.lock().late.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        let lists = self.lists.lock();
        lists.fresh.len() + lists.tried.len()
    }

    /// Whether no cleanup is left, not even for later.
    pub(crate) fn is_clear(&self) -> bool {
        let Lists { fresh, tried, late, .. } = &*self.lists.lock();
        fresh.is_empty() && tried.is_empty() && late.is_empty()
    }

    /// How many cleanups are left or in hand, and the first claim of these.
    pub(crate) fn open(&self) -> Option<(usize, Arc<Claim>)> {
        let Lists { fresh, tried, in_hand, .. } = &*self.lists.lock();
        let left = fresh.iter().chain(tried).map(|pending| &pending.claim);
        let first = in_hand.values().map(|(claim, _)| claim).chain(left).next()?;
        let in_hand = in_hand.values().map(|(_, count)| count).sum::<usize>();
        Some((fresh.len() + tried.len() + in_hand, Arc::clone(first)))
    }

    /// Whether a cleanup without an answer is left.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.lists.lock().tried.iter().any(|pending| !pending.is_refused)
    }

    /// Takes the cleanup of this claim, unless another thread has taken it, or makes a call that has to end first: the claim's signal
    /// is raised when that call has ended.
    pub(crate) fn take(&self, claim: &Arc<Claim>) -> Option<CleanupBatch<'_>> {
        let mut lists = self.lists.lock();
        let Lists { fresh, tried, .. } = &mut *lists;
        let pending = [fresh, tried].into_iter().find_map(|list| {
            // The latest cleanup first: as a rule the caller has just left, and come back.
            let at = list.iter().rposition(|pending| Arc::ptr_eq(&pending.claim, claim))?;
            (!list[at].has_to_wait()).then(|| list.remove(at))?
        })?;
        Some(self.hand_out(&mut lists, VecDeque::from([pending])))
    }

    /// Has callers that wait for an answer look again whether to go on waiting.
    pub(crate) fn tell_callers(&self) {
        let claims: Vec<_> = {
            let lists = self.lists.lock();
            lists.fresh.iter().chain(&lists.tried).map(|pending| Arc::clone(&pending.claim)).collect()
        };
        claims.iter().for_each(|claim| claim.raise()); // without the mutex: it may run a waker
    }

    /// Makes later withdrawals due at once: the client ends, and can't wait for what may arrive late.
    pub(crate) fn make_late_ones_due(&self, now: Instant) {
        self.lists.lock().make_due(now, |_| true);
    }

    /// The client ends: what was tried waits no longer, and its pauses begin anew.
    pub(crate) fn begin_to_end(&self, now: Instant) {
        let mut lists = self.lists.lock();
        lists.make_due(now, |_| true);
        lists.tried.iter_mut().for_each(|pending| (pending.tries, pending.due) = (1, now));
    }

    /// Takes out the cleanups that failed before and whose time is over.
    pub(crate) fn take_over(&self, now: Instant) -> VecDeque<PendingCleanup> {
        let mut lists = self.lists.lock();
        let (over, left) = lists.tried.drain(..).partition(|pending: &PendingCleanup| pending.until() <= now);
        lists.tried = left;
        over
    }

    /// The same cleanup of many claims, for the calling thread, without a detour through the list.
    pub(crate) fn batch_of(
        &self,
        claims: Vec<Arc<Claim>>,
        cleanup: Cleanup,
        now: Instant,
    ) -> CleanupBatch<'_> {
        let todo = claims.into_iter().map(|claim| PendingCleanup::new(claim, cleanup, now)).collect();
        CleanupBatch { backlog: self, number: None, todo, back: Vec::new() }
    }

    fn hand_out(&self, lists: &mut Lists, todo: VecDeque<PendingCleanup>) -> CleanupBatch<'_> {
        lists.taken += 1;
        lists.in_hand.extend(todo.front().map(|first| (lists.taken, (Arc::clone(&first.claim), todo.len()))));
        CleanupBatch { backlog: self, number: Some(lists.taken), todo, back: Vec::new() }
    }

    /// Takes the next cleanups that are due, for one call: those of one kind that follow each other. First attempts go before
    /// retries, which wait for the pause.
    pub(crate) fn next(&self, now: Instant) -> Option<CleanupBatch<'_>> {
        let may_retry = !self.retries.is_pausing(now);
        let mut lists = self.lists.lock();
        lists.make_due(now, |at| at <= now);
        let todo = lists.take(may_retry, |_| MOST_AT_ONCE, |pending| !pending.has_to_wait())?;
        Some(self.hand_out(&mut lists, todo))
    }

    /// Takes what is due at the client's end, for a thread that shares it with others: a release, or withdrawals for one call. Once
    /// the time `is_over`, withdrawals that have waited for a call until now, and grants that a withdrawal has found.
    pub(crate) fn next_at_the_end(&self, now: Instant, is_over: bool) -> Option<CleanupBatch<'_>> {
        let mut lists = self.lists.lock();
        let threads = self.drivers.load(Ordering::SeqCst).max(1);
        let share = (lists.fresh.len() + lists.tried.len()).div_ceil(threads).min(MOST_AT_ONCE);
        let most = |cleanup| if cleanup == Cleanup::Withdraw { share } else { 1 };
        let todo = lists.take(true, most, |pending| match is_over {
            true => pending.tries == 0 && (pending.is_found || pending.has_to_wait()),
            false => pending.due <= now && !pending.has_to_wait(),
        })?;
        Some(self.hand_out(&mut lists, todo))
    }

    /// When the next cleanup is due at the client's end that waits for no call; `until` if all wait. None: no cleanup is left.
    pub(crate) fn due_at_the_end(&self, until: Instant) -> Option<Instant> {
        let Lists { fresh, tried, .. } = &*self.lists.lock();
        let due = |pending: &PendingCleanup| if pending.has_to_wait() { until } else { pending.due };
        fresh.iter().map(due).chain(tried.iter().map(|pending| pending.due.min(until))).min()
    }

    /// When the next cleanup is due that waits for no call; retries wait for the pause.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let retries = self.retries.not_before();
        let lists = self.lists.lock();
        let since = |list: &VecDeque<PendingCleanup>| {
            list.iter().find(|pending| !pending.has_to_wait()).map(|pending| pending.since)
        };
        let again = since(&lists.tried).map(|since| retries.unwrap_or(since));
        let late = lists.late.first_key_value().map(|((at, _), _)| *at);
        [since(&lists.fresh), again, late].into_iter().flatten().min()
    }
}

/// Cleanups in a thread's hands. The drop puts those that are left back into the list, even after a panic.
pub(crate) struct CleanupBatch<'a> {
    backlog: &'a Backlog,
    /// None: the batch is of no list.
    number: Option<u64>,
    pub(crate) todo: VecDeque<PendingCleanup>,
    /// The cleanups that go back: not answered, or followed by a release.
    pub(crate) back: Vec<PendingCleanup>,
}

impl Drop for CleanupBatch<'_> {
    fn drop(&mut self) {
        let back = self.todo.drain(..).chain(self.back.drain(..));
        let (fresh, tried): (Vec<_>, Vec<_>) = back.partition(|pending| pending.tries == 0);
        let claims: Vec<_> = fresh.iter().chain(&tried).map(|pending| Arc::clone(&pending.claim)).collect();
        if self.number.is_none() && claims.is_empty() {
            return;
        }
        let mut lists = self.backlog.lists.lock();
        let _first = self.number.and_then(|number| lists.in_hand.remove(&number)); // dropped without the mutex
        lists.fresh.extend(fresh);
        lists.tried.extend(tried);
        drop(lists);
        claims.iter().for_each(|claim| claim.raise()); // a caller may wait until it can send the cleanup itself
    }
}

/// A call of a task that is no first attempt: an operator's look, for example.
pub(crate) type TaskCall = Box<dyn FnOnce() + Send>;

/// The calls that no thread has in hand, in their order.
#[derive(Default)]
pub(crate) struct Calls(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    left: VecDeque<TaskCall>,
    /// Which threads take a call before they sleep.
    awake: [bool; CALL_THREADS],
}

impl Calls {
    /// The first thread runs, and has a call if another thread is wanted: what is added here is taken.
    pub(crate) fn add(&self, call: TaskCall, timers: &Timers, now: Instant) {
        let mut inner = self.0.lock();
        inner.left.push_back(call);
        let Some(thread) = inner.awake.iter().position(|is_awake| !is_awake) else { return };
        inner.awake[thread] = true;
        drop(inner);
        let sleeper = &timers.calls[thread];
        match timers.start(sleeper) {
            Ok(()) => sleeper.due_by(now),
            Err(_) => self.0.lock().awake[thread] = false,
        }
    }

    /// The next call for this thread; none if the thread may sleep.
    pub(crate) fn next(&self, thread: usize) -> Option<TaskCall> {
        let inner = &mut *self.0.lock();
        let next = inner.left.pop_front();
        inner.awake[thread] = next.is_some();
        next
    }

    pub(crate) fn take_all(&self) -> VecDeque<TaskCall> {
        std::mem::take(&mut self.0.lock().left)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::{BackendError, BackendErrorKind};
    use crate::ids::LockName;

    /// Whether `of` has the claim's callers look again.
    fn hears<T>(claim: &Claim, of: impl FnOnce() -> T) -> bool {
        let seen = claim.signal.generation();
        of();
        claim.signal.generation() != seen
    }

    /// A caller of the same owner may wait for the cleanup: that caller then does it itself, or goes on waiting.
    #[test]
    fn the_callers_of_a_claim_hear_of_its_cleanup() {
        let (backlog, claim) = (Backlog::default(), Claim::of_tests(&LockName::new("a").unwrap(), "u:1"));
        assert!(hears(&claim, || backlog.add(&claim, Cleanup::Withdraw, Instant::now())), "it is there");
        assert!(hears(&claim, || backlog.tell_callers()));
        for tried in [false, true] {
            let mut taken = backlog.take(&claim).unwrap();
            assert!(!hears(&claim, || backlog.tell_callers()), "it is in hand");
            taken.todo[0].tries = u32::from(tried);
            assert!(hears(&claim, || drop(taken)), "it is back");
            assert_eq!((backlog.len(), backlog.is_unanswered()), (1, tried));
            assert!(hears(&claim, || backlog.tell_callers()));
        }
    }

    /// Whichever thread makes the call. The others go meanwhile.
    #[test]
    fn no_cleanup_is_taken_before_a_call_of_its_claim_has_ended() {
        let (backlog, now) = (Backlog::default(), Instant::now());
        let [asks, other] = ["u:1", "u:2"].map(|owner| Claim::of_tests(&LockName::new("a").unwrap(), owner));
        assert!(asks.begin_to_ask() && other.begin_to_ask());
        asks.give_up_request();
        backlog.add(&asks, Cleanup::Withdraw, now);
        backlog.begin_to_end(now);
        let next = || backlog.next(now).map(|taken| Arc::clone(&taken.todo[0].claim));
        let at_the_end = |is_over| backlog.next_at_the_end(now, is_over).map(|taken| taken.todo.len());
        let later = now + Duration::from_secs(1);
        assert!(next().is_none() && backlog.take(&asks).is_none() && backlog.due_at().is_none());
        assert_eq!((at_the_end(false), backlog.due_at_the_end(later)), (None, Some(later)));
        assert_eq!(at_the_end(true), Some(1), "nobody else sends it");
        let late = BackendError::new(BackendErrorKind::Unavailable, "down");
        other.answered(Err(late.clone()), now, now);
        other.give_up_request();
        backlog.add(&other, Cleanup::Withdraw, now);
        assert!(next().is_some_and(|claim| Arc::ptr_eq(&claim, &other)));
        asks.answered(Err(late), now, now);
        assert!(next().is_some_and(|claim| Arc::ptr_eq(&claim, &asks)) && backlog.due_at() == Some(now));
        assert_eq!(
            (at_the_end(true), at_the_end(false), backlog.due_at_the_end(later)),
            (None, Some(2), Some(now))
        );
    }
}
