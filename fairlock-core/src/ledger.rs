//! The claims of a client, at most one for each owner and lock, and what is done when a hold or a wait begins or ends, whichever
//! thread learns of that.
//!
//! The words for an end, in this module and in those above:
//!
//! | word | means |
//! | --- | --- |
//! | *unlock* | a holder gives up one hold; the last one is released |
//! | *release* | the server is told that a hold is given up |
//! | *withdraw* | the server is told that a request is given up |
//! | *give up* | a caller stops waiting; the last one has the request withdrawn |
//! | *lose* | a hold is over against its holder's will, and that is reported |
//! | *retire* | nothing of the claim is left, here or at the server |
//!
//! A network can deliver an attempt after its repeat was answered, and even after the request was withdrawn or its hold released.
//! The server would then make a place, or grant the lock, for nobody. The server refuses an attempt after its end, see
//! [`Backend::attempt_ttl`](crate::backend::Backend::attempt_ttl). So the request is withdrawn once more after this end, and a
//! grant is released.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::{Mutex, MutexGuard};

use crate::backend::{Acquired, Answer, Backend, BackendError, Released, Renewal};
use crate::backlog::{Backlog, Cleanup, PendingCleanup};
use crate::claim::{Claim, Grant, GrantedBy, Loss, Unlocked};
use crate::config::Config;
use crate::error::{Error, Lost, LostCause};
use crate::ids::{FencingToken, LockKind, LockName, OwnerId, hash_of};
use crate::logging::{log_line, ms};
use crate::losses::{LossCallbacks, Unlogged, log_loss};
use crate::stats::{Counters, Event};
use crate::time::Signal;
use crate::timers::Timers;

/// The claims, and all that is told of their ends. Makes no call to the server.
pub(crate) struct Ledger {
    pub(crate) registry: Registry,
    pub(crate) counters: Counters,
    pub(crate) loss_callbacks: LossCallbacks,
    pub(crate) unlogged: Unlogged,
    /// Raised when a claim is over, once a drain waits for that; and at the beginning and the end of a shutdown.
    pub(crate) ending: Signal,
    config: Arc<Config>,
    timers: Arc<Timers>,
    backlog: Arc<Backlog>,
    /// Says whether places are named by owners alone.
    backend: Arc<dyn Backend>,
}

impl Ledger {
    pub(crate) fn new(
        config: &Arc<Config>,
        backend: &Arc<dyn Backend>,
        timers: &Arc<Timers>,
        backlog: &Arc<Backlog>,
        counters: Counters,
    ) -> Ledger {
        Ledger {
            registry: Registry::default(),
            counters,
            loss_callbacks: LossCallbacks::default(),
            unlogged: Unlogged::default(),
            ending: Signal::new(&config.clock),
            config: Arc::clone(config),
            timers: Arc::clone(timers),
            backlog: Arc::clone(backlog),
            backend: Arc::clone(backend),
        }
    }

    /// A claim has become a hold: it is counted, its callers are woken, and the watchdog looks after it.
    ///
    /// The grant is counted first: a caller that has the lock finds the grant in the statistics. The rest does not delay the
    /// caller, which wakes the watchdog itself before its call returns.
    pub(crate) fn granted(&self, claim: &Claim, by: GrantedBy) {
        let Grant { token, waited, due_at, ends_at, recheck_at } = claim.take_grant();
        let grant = |by| Event::Granted { by, waited, own_end: claim.terms.own_end() };
        self.counters.count(&claim.lock, grant(self.counters.counts_by(claim.request, by)));
        claim.raise();
        self.timers.due_by(due_at);
        self.timers.ends_by(ends_at);
        self.recheck_by(claim, recheck_at);
        self.counters.meter(&claim.lock, grant(by));
        let (lock, owner, label) = (&claim.lock.name, &claim.owner, &*claim.config.label);
        log_line!(debug, "fairlock::acquire",
            event = "granted", lock = lock.as_str(), owner = owner.as_str(), label = label,
            token = token.get(), by = by.name(), waited_ms = ms(waited);
            "lock {lock} granted to {label} after {waited:.1?}, token {token} ({owner})"
        );
    }

    /// A hold is lost: that is reported and logged.
    pub(crate) fn lose(&self, claim: &Arc<Claim>, cause: LostCause) {
        if let Some(lost) = self.report_loss(claim, cause) {
            log_loss(&lost);
        }
    }

    /// Reports a loss: to the claim's flag and the channels first, then to the callbacks. Each loss is reported here and only
    /// here, but for those of a shutdown. The result has to be logged.
    pub(crate) fn report_loss(&self, claim: &Arc<Claim>, cause: LostCause) -> Option<Lost> {
        let lost = self.loss_callbacks.report_marked(|| self.mark_lost(claim, cause));
        self.tell_end();
        lost
    }

    /// Reports a loss to all but the callbacks and the log.
    pub(crate) fn mark_lost(&self, claim: &Arc<Claim>, cause: LostCause) -> Option<Lost> {
        let held_for = claim.held_for(self.config.now());
        let Loss { lost, was_leaving } = claim.lose(cause)?;
        // A claim that is being released stays until the server was told: the owner's next request waits for that.
        let is_leaving = claim.leaving().is_some();
        if !is_leaving {
            self.forget(claim);
        }
        self.registry.remember_lost_leak(claim);
        self.counters.count(&claim.lock, Event::Lost(cause));
        claim.raise();
        self.counters.meter(&claim.lock, Event::Lost(cause));
        // The end of a leaving claim was counted at the unlock. A claim that leaves only now, since its waiters were told of
        // the loss, counts nothing more.
        if let Some(time) = held_for.filter(|_| !was_leaving) {
            self.counters.happened(&claim.lock, Event::Held(time));
        }
        Some(lost)
    }

    /// Reports the loss at once, and has the watchdog log it after its renewals: ten thousand lines to a slow logger must not take
    /// the time of the renewals.
    pub(crate) fn lose_in_background(&self, claim: &Arc<Claim>, cause: LostCause) {
        if let Some(lost) = self.report_loss(claim, cause) {
            self.unlogged.keep(lost);
        }
    }

    /// Marks an expired hold as lost, unless another thread has. Returns the loss, even if it was reported before.
    pub(crate) fn lose_if_expired(&self, claim: &Arc<Claim>) -> Option<Lost> {
        let lost = claim.loss(self.config.now())?;
        self.lose(claim, lost.cause);
        Some(lost)
    }

    /// Gives up one hold.
    pub(crate) fn unlock(&self, claim: &Arc<Claim>, now: Instant) -> Unlocked {
        match claim.unlock(now) {
            Unlocked::Expired => {
                // Marked as lost, it is released as such; or a renewal was quicker, and it is still held.
                self.lose_if_expired(claim);
                claim.unlock(now)
            }
            unlocked => unlocked,
        }
    }

    /// The release of a valid hold was answered. Returns why the hold was lost, if it was: not if an earlier attempt released it whose
    /// answer was lost, nor if its lease has ended since.
    pub(crate) fn released(
        &self,
        claim: &Arc<Claim>,
        token: FencingToken,
        held_for: Duration,
        answer: Released,
        is_repeat: bool,
    ) -> Option<LostCause> {
        let is_gone = answer == Released::NotHeld;
        let lost = is_gone.then(|| claim.loss_found_by_release(is_repeat, self.config.now())).flatten();
        match lost {
            Some(cause) => self.lose(claim, cause),
            None => log_release(claim, token, held_for),
        }
        lost
    }

    /// The server says that another client has the lock, or none.
    pub(crate) fn lose_taken(&self, claim: &Arc<Claim>) -> Error {
        self.lose(claim, LostCause::Taken);
        claim.loss(self.config.now()).map_or_else(|| claim.not_held(), Error::Lost)
    }

    /// Has the watchdog release what the claim holds.
    pub(crate) fn release_soon(&self, claim: &Arc<Claim>) {
        self.leave_to_watchdog(claim, Cleanup::Release);
    }

    /// Has the watchdog withdraw the claim's request.
    pub(crate) fn withdraw_soon(&self, claim: &Arc<Claim>) {
        self.leave_to_watchdog(claim, Cleanup::Withdraw);
        self.recheck_by(claim, claim.take_recheck());
    }

    pub(crate) fn leave_to_watchdog(&self, claim: &Arc<Claim>, cleanup: Cleanup) {
        let now = self.config.now();
        self.backlog.add(claim, cleanup, now);
        self.timers.due_by(Some(now));
    }

    /// Nothing of the claim is left, here or at the server.
    pub(crate) fn retire(&self, claim: &Arc<Claim>) {
        claim.retire();
        self.forget(claim);
        claim.raise();
        self.tell_end();
    }

    /// A hold or a wait is over: a drain and a shutdown wait until all are.
    fn tell_end(&self) {
        if self.config.stop.is_closed() {
            self.ending.raise();
        }
        if self.config.stop.is_stopped() {
            self.timers.signal().raise();
        }
    }

    /// The claim has a reason to ask the server.
    pub(crate) fn wake_claim(&self, claim: &Arc<Claim>) {
        if claim.wake() {
            self.timers.due_by(Some(self.config.now()));
        }
    }

    /// The claim leaves without the lock. A wake-up of a plain lock is for any waiter: the claim's goes to another waiter.
    pub(crate) fn pass_wake_up_on(&self, claim: &Claim) {
        if claim.lock.kind == LockKind::Plain
            && let Some(other) = self.registry.any(claim.lock.name.as_str(), Claim::is_waiting)
        {
            self.wake_claim(&other);
        }
    }

    /// Has another claim of this client on the same lock recheck at `at`, since this one waits no longer: the server tells only the
    /// first waiter of a client when the holder's lease ends. A waiter for a plain lock rechecks by itself.
    pub(crate) fn recheck_by(&self, claim: &Claim, at: Option<Instant>) {
        // A claim without a place yet is told when to recheck by the answer that gives it one.
        if let Some(time) = at
            && claim.lock.kind != LockKind::Plain
            && self.registry.any(claim.lock.name.as_str(), |other| other.recheck_by(time)).is_some()
        {
            self.timers.due_by(at);
        }
    }

    /// An attempt to ask for this claim, or to keep its place, has ended: with an answer of this number, or without an answer.
    pub(crate) fn attempt_ended(&self, claim: &Arc<Claim>, outcome: Answer<Option<u64>>, now: Instant) {
        let is_over = match outcome {
            Ok(number) => number.is_some_and(|number| claim.told_of(number, now)),
            Err(error) => claim.attempt_failed(&error, now),
        };
        // The claim has ended while the attempt was under way, and nobody else will look.
        if is_over {
            self.forget(claim);
        }
    }

    /// An attempt to tell the server of the claim's end has failed. Where owners name places, a withdrawal that arrives late would
    /// remove the place of the owner's next request, which waits for that as for a late ask.
    pub(crate) fn cleanup_failed(&self, pending: &PendingCleanup, error: &BackendError) {
        if pending.cleanup == Cleanup::Withdraw
            && self.backend.keeps_place_by_owner(&pending.claim.lock)
            && !self.config.stop.is_stopped()
        {
            self.attempt_ended(&pending.claim, Err(error.clone()), self.config.now());
        }
    }

    /// The claim has ended: its owner's next call makes a new one.
    pub(crate) fn forget(&self, claim: &Arc<Claim>) {
        let Some(until) = claim.take_late_until() else { return self.registry.remove(claim) };
        let once_more = claim.once_more(self.config.now());
        // If places are named by owners, a late attempt may make a place that looks like the place of the owner's next request,
        // and the withdrawal would remove it. So the next request waits until the withdrawal is done. The claim is replaced and
        // not removed: otherwise another claim could come in between. The claim has ended, so the next request may have come
        // before this: then the late attempt and the next request have one name at the server, and the end of that request
        // withdraws once more.
        if !self.backend.keeps_place_by_owner(&claim.lock) {
            self.registry.remove(claim);
        } else if let Some(next) = self.registry.replace(claim, &once_more) {
            if next.withdraw_again_at(until) {
                self.forget(&next); // has ended, too
            }
            return;
        }
        self.backlog.add_late(once_more, until);
        self.timers.due_by(Some(until));
    }

    /// How many of these claims are certain holds.
    pub(crate) fn holding(&self, which: impl Fn(&Claim) -> bool) -> u64 {
        let (mut holding, now) = (0, self.config.now());
        self.registry.for_each(|claim| holding += u64::from(which(claim) && claim.hold_count(now) > 0));
        holding
    }

    /// What `read` says of each claim.
    pub(crate) fn snapshot<T>(&self, read: impl Fn(&Claim, Instant) -> Option<T>) -> Vec<T> {
        let now = self.config.now();
        // The registry's mutex is held for no longer than it takes to copy the list.
        self.registry.all().iter().filter_map(|claim| read(claim, now)).collect()
    }
}

/// The server was told of the end of a hold.
fn log_release(claim: &Claim, token: FencingToken, held_for: Duration) {
    let (lock, owner, label) = (&claim.lock.name, &claim.owner, &*claim.config.label);
    log_line!(debug, "fairlock::release",
        event = "released", lock = lock.as_str(), owner = owner.as_str(), label = label,
        token = token.get(), held_ms = ms(held_for);
        "lock {lock} released by {label} after {held_for:.1?}, token {token} ({owner})"
    );
}

impl Acquired {
    /// The token of the grant, or the least that a grant to the place may have.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Acquired::Granted { token, .. } => Some(token.get()),
            Acquired::Queued { latest, .. } => Some(latest.saturating_add(1)),
            Acquired::Busy { .. } | Acquired::Declined(_) => None,
        }
    }
}

impl Renewal {
    /// The number of [`Acquired::number`], for the answer to a heartbeat.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Renewal::Granted { token, .. } => Some(token.get()),
            Renewal::Waiting { latest, .. } => Some(latest.saturating_add(1)),
            Renewal::Renewed | Renewal::Lost => None,
        }
    }
}

/// How many lost claims with leaked holds are remembered, the latest: a program that leaks holds and never unlocks them must
/// not grow.
const LOST_LEAKS: usize = 256;

/// The number of shards: many more than a machine has cores, so that two threads rarely meet in one shard.
const SHARDS: usize = 64;

/// Up to this many locks a shard keeps the entries of idle locks: they are used again.
const FEW_LOCKS: usize = 4;

/// Has shards by the lock's name, so that threads with different locks seldom wait for one another. No thread takes the mutexes of
/// two shards at once. A look at all claims sees one shard after the other; a claim stays in the shard of its lock.
pub(crate) struct Registry {
    shards: [Shard; SHARDS],
    /// Lost claims with leaked holds: no guard reports the loss, so `unlock` has to.
    lost_leaks: Mutex<VecDeque<Arc<Claim>>>,
}

/// Aligned, so that no two shards share a line of a processor's cache.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<HashTable<LockClaims>>);

/// The claims on one lock, by owner.
struct LockClaims {
    lock: LockName,
    claims: HashTable<Arc<Claim>>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry { shards: std::array::from_fn(|_| Shard::default()), lost_leaks: Mutex::default() }
    }
}

impl Registry {
    pub(crate) fn get(&self, lock: &str, owner: &str) -> Option<Arc<Claim>> {
        let (lock_hash, owner_hash) = (hash_of(lock), hash_of(owner));
        let locks = self.locks(lock_hash);
        let of_lock = locks.find(lock_hash, |of_lock| of_lock.lock.as_str() == lock)?;
        of_lock.claims.find(owner_hash, |claim| claim.owner.as_str() == owner).cloned()
    }

    /// The owner's claim on the lock if `join` accepts it, else the one of `make`. Both run under the shard's mutex, so that
    /// two threads with one owner can't make two claims.
    pub(crate) fn get_or_make<T>(
        &self,
        lock: &LockName,
        owner: &OwnerId,
        join: impl FnOnce(&Arc<Claim>) -> Option<T>,
        make: impl FnOnce() -> (Arc<Claim>, T),
    ) -> T {
        let mut _former = None; // dropped without the mutex: its end may run a subscriber of the program
        match owners(&mut self.locks(lock.hash_code()), lock, owner) {
            Entry::Occupied(mut found) => join(found.get()).unwrap_or_else(|| {
                debug_assert!(found.get().has_ended(), "a second claim of {owner} on {lock}");
                let (claim, made) = make();
                _former = Some(std::mem::replace(found.get_mut(), claim));
                made
            }),
            Entry::Vacant(free) => {
                let (claim, made) = make();
                free.insert(claim);
                made
            }
        }
    }

    /// Removes the claim, if it is still the owner's claim on the lock.
    pub(crate) fn remove(&self, claim: &Arc<Claim>) {
        let lock = &claim.lock.name;
        let mut locks = self.locks(lock.hash_code());
        let is_full = locks.len() > FEW_LOCKS;
        let Ok(mut of_lock) = locks.find_entry(lock.hash_code(), |of_lock| of_lock.lock == *lock) else {
            return;
        };
        let claims = &mut of_lock.get_mut().claims;
        if let Ok(current) = claims.find_entry(claim.owner.hash_code(), |other| Arc::ptr_eq(other, claim)) {
            current.remove();
            if claims.is_empty() && is_full {
                of_lock.remove();
            }
        }
    }

    /// Makes `new` the owner's claim in place of `old`; unless the owner has another claim by now, which is returned.
    pub(crate) fn replace(&self, old: &Arc<Claim>, new: &Arc<Claim>) -> Option<Arc<Claim>> {
        let lock = &old.lock.name;
        match owners(&mut self.locks(lock.hash_code()), lock, &old.owner) {
            Entry::Occupied(found) if !Arc::ptr_eq(found.get(), old) => return Some(Arc::clone(found.get())),
            Entry::Occupied(mut found) => *found.get_mut() = Arc::clone(new),
            Entry::Vacant(free) => _ = free.insert(Arc::clone(new)),
        }
        None
    }

    /// Remembers the claim, if it is lost and has leaked holds.
    pub(crate) fn remember_lost_leak(&self, claim: &Arc<Claim>) {
        if !claim.has_lost_leak() {
            return;
        }
        let _forgotten; // dropped without the mutex, as above
        let mut lost = self.lost_leaks.lock();
        if lost.iter().any(|other| Arc::ptr_eq(other, claim)) {
            return;
        }
        _forgotten = if lost.len() < LOST_LEAKS { None } else { lost.pop_back() };
        lost.push_front(Arc::clone(claim));
    }

    /// Takes one leaked hold of the owner that was lost, the latest one.
    pub(crate) fn take_lost_leak(&self, lock: &str, owner: &OwnerId) -> Option<Arc<Claim>> {
        let mut lost = self.lost_leaks.lock();
        let is_of_owner = |claim: &Arc<Claim>| claim.lock.name.as_str() == lock && claim.owner == *owner;
        let at = lost.iter().position(|claim| is_of_owner(claim) && claim.unleak().is_ok())?;
        let claim = Arc::clone(lost.get(at)?);
        if !claim.has_lost_leak() {
            lost.remove(at);
        }
        Some(claim)
    }

    /// Any claim on the lock that `is_wanted`, which must be quick.
    pub(crate) fn any(&self, lock: &str, is_wanted: impl Fn(&Claim) -> bool) -> Option<Arc<Claim>> {
        let hash = hash_of(lock);
        let locks = self.locks(hash);
        let of_lock = locks.find(hash, |of_lock| of_lock.lock.as_str() == lock)?;
        of_lock.claims.iter().find(|claim| is_wanted(claim)).cloned()
    }

    /// Calls `visit`, which must be quick, with every claim.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<Claim>)) {
        for shard in &self.shards {
            shard.0.lock().iter().flat_map(|of_lock| &of_lock.claims).for_each(&mut visit);
        }
    }

    /// Whether any claim `is_it`, which must be quick.
    pub(crate) fn has(&self, is_it: impl Fn(&Claim) -> bool) -> bool {
        let has = |shard: &Shard| {
            shard.0.lock().iter().flat_map(|of_lock| &of_lock.claims).any(|claim| is_it(claim))
        };
        self.shards.iter().any(has)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Claim>> {
        let mut all = Vec::new();
        self.for_each(|claim| all.push(Arc::clone(claim)));
        all
    }

    /// The shard of the locks with this hash.
    fn locks(&self, hash: u64) -> MutexGuard<'_, HashTable<LockClaims>> {
        self.shards[shard_of(hash)].0.lock()
    }
}

/// Where the owner's claim on the lock is, or would be.
fn owners<'a>(
    locks: &'a mut HashTable<LockClaims>,
    lock: &LockName,
    owner: &OwnerId,
) -> Entry<'a, Arc<Claim>> {
    let of_lock = locks
        .entry(lock.hash_code(), |of_lock| of_lock.lock == *lock, |of_lock| of_lock.lock.hash_code())
        .or_insert_with(|| LockClaims { lock: lock.clone(), claims: HashTable::new() })
        .into_mut();
    let is_owners = |claim: &Arc<Claim>| claim.owner == *owner;
    of_lock.claims.entry(owner.hash_code(), is_owners, |claim| claim.owner.hash_code())
}

/// From the middle of the hash: its ends find the place in the shard's table.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Adds the first claim of this owner on this lock.
    fn add(registry: &Registry, lock: &LockName, owner: &str) -> Arc<Claim> {
        let claim = Claim::of_tests(lock, owner);
        let join = |_: &Arc<Claim>| panic!("it is there");
        registry.get_or_make(lock, &claim.owner, join, || (Arc::clone(&claim), ()));
        claim
    }

    /// The number of locks in one shard.
    fn of_one_shard(count: usize) -> Vec<LockName> {
        let names = (0..10_000).map(|n| LockName::new(&format!("lock:{n}")).unwrap());
        names.filter(|name| shard_of(name.hash_code()) == 0).take(count).collect()
    }

    #[test]
    fn a_claim_that_goes_takes_no_other_of_its_lock_along() {
        let registry = Registry::default();
        let pairs: Vec<_> = of_one_shard(FEW_LOCKS + 1)
            .iter()
            .map(|lock| ["u:1", "u:2"].map(|owner| add(&registry, lock, owner)))
            .collect();
        for [gone, kept] in &pairs {
            registry.remove(gone);
            let find = |claim: &Claim| registry.get(claim.lock.name.as_str(), claim.owner.as_str());
            assert!(find(gone).is_none() && find(kept).is_some());
        }
    }

    /// A claim that was followed by another claim does not take its successor along when it is removed.
    #[test]
    fn a_claim_does_not_take_its_successor_along() {
        let registry = Registry::default();
        let lock = &of_one_shard(1)[0];
        let (old, new) = (add(&registry, lock, "u:1"), Claim::of_tests(lock, "u:1"));
        old.retire();
        registry.get_or_make(lock, &new.owner, |_| None, || (Arc::clone(&new), ()));
        registry.remove(&old);
        assert!(registry.get(lock.as_str(), "u:1").is_some_and(|claim| Arc::ptr_eq(&claim, &new)));
        let newest = Claim::of_tests(lock, "u:1");
        assert!(registry.replace(&old, &newest).is_some_and(|claim| Arc::ptr_eq(&claim, &new)));
        assert!(!registry.has(|claim| std::ptr::eq(claim, &*newest)));
        assert!(registry.replace(&new, &newest).is_none());
        assert!(registry.has(|claim| std::ptr::eq(claim, &*newest)));
        registry.remove(&newest);
        assert!(registry.replace(&newest, &new).is_none() && registry.get(lock.as_str(), "u:1").is_some());
    }

    #[test]
    fn a_shard_keeps_the_entries_of_a_few_idle_locks_only() {
        let registry = Registry::default();
        let locks = of_one_shard(FEW_LOCKS + 2);
        let claims: Vec<_> = locks.iter().map(|lock| add(&registry, lock, "u:1")).collect();
        claims.iter().for_each(|claim| registry.remove(claim));
        assert_eq!((registry.all().len(), registry.shards[0].0.lock().len()), (0, FEW_LOCKS));
    }

    #[test]
    fn a_lock_does_not_wait_for_a_lock_of_another_shard() {
        let registry = Arc::new(Registry::default());
        let shard = |name: &str| shard_of(hash_of(name));
        let other =
            (0..1000).map(|n| format!("other:{n}")).find(|name| shard(name) != shard("held")).unwrap();
        let held = registry.locks(hash_of("held"));
        let (sender, found) = mpsc::channel();
        let asks = Arc::clone(&registry);
        thread::spawn(move || sender.send(asks.get(&other, "owner").is_some()));
        assert_eq!(found.recv_timeout(Duration::from_secs(10)), Ok(false));
        drop(held);
    }
}
