//! The backend itself: each operation is one step on one file.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, LockId, LockState, Place, Released, Renew,
    Renewal, Subscription, Wait, WakeSink, Withdrawn,
};
use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
use fairlock_rules::{LockEntry, OperationContext, StoreContext, lock_of, renew_by_lock};

use crate::lock_files::{LONG, LockFiles, Patience, SHORT};
use crate::machine::{self, Dir, Machine, failure, presence_of};
use crate::slots::State;
use crate::wake_ups::{self, Listener};

/// How many holders, and how many of the nearest places ahead, a waiter watches.
const WATCHED: usize = 16;

/// Locks that are kept in a directory and shared by all processes of the machine that open it. Clones are the same.
#[derive(Clone, Debug)]
pub struct FileBackend {
    pub(crate) files: Arc<LockFiles>,
    /// The clients of this process that listen, as owners spell them.
    listeners: Arc<Mutex<HashMap<String, Weak<Listener>>>>,
}

// No call runs code of the program on its thread: no panic of the program leaves the middle of one.
impl UnwindSafe for FileBackend {}
impl RefUnwindSafe for FileBackend {}

impl FileBackend {
    /// Opens the directory, and makes it if needed: for this user and the directory's group.
    ///
    /// # Errors
    /// `InvalidConfig` for a directory of a network, for a link, for a directory that others can rename, for a path that leaves no room for
    /// the name of a socket (60 bytes always do), and in a process with another clock or a short limit of a file's size; `Denied`, `Refused` or `Unavailable` if the directory can't be made.
    pub fn open(dir: impl Into<PathBuf>) -> fairlock_core::Result<FileBackend> {
        Ok(FileBackend::open_on(dir, Machine::of_boot(machine::boot()?))?)
    }

    pub(crate) fn open_on(dir: impl Into<PathBuf>, machine: Machine) -> Result<FileBackend, BackendError> {
        let files = Arc::new(LockFiles::new(Arc::new(Dir::open(dir.into())?), machine));
        Ok(FileBackend { files, listeners: Arc::default() })
    }

    /// The presence of a client of this process, for a child that is to outlive this process: give it to the child as one of its standard
    /// streams, as in `Command::stderr`. When this process is killed, the client's holds then last until the child has ended too, or
    /// until their leases end. None if this backend has no such client.
    pub fn presence(&self, client: ClientId) -> Option<File> {
        self.listener(&client.to_string())?.presence.try_clone().ok()
    }

    fn listener(&self, client: &str) -> Option<Arc<Listener>> {
        self.listeners.lock().get(client).and_then(Weak::upgrade)
    }

    /// One step, in its bound.
    pub(crate) fn step<T>(
        &self,
        lock: &LockName,
        decide: impl FnOnce(&mut LockEntry, &mut OperationContext<'_>) -> T,
    ) -> Result<T, BackendError> {
        self.step_by((Instant::now() + self.files.machine.bound, LONG), lock, decide)
    }

    /// No other thread or process comes between the read and the write. A process that is killed on the way has changed nothing, and
    /// the system frees the file. Fails if another process does not free it in time.
    fn step_by<T>(
        &self,
        patience: Patience,
        lock: &LockName,
        decide: impl FnOnce(&mut LockEntry, &mut OperationContext<'_>) -> T,
    ) -> Result<T, BackendError> {
        let files = &*self.files;
        let failed = |error| failure(format_args!("the file {}", files.dir.lock(lock).display()), error);
        let (answer, wake_ups) = files.with(lock, patience, |file| {
            // Load.
            let (content, state) = State::read(file, files.machine.boot).map_err(failed)?;
            state.check(lock, &files.dir)?;
            let State { last, mut entry, .. } = state;
            // Decide.
            let (now, mut store_context) = (files.machine.now(), StoreContext::after(last));
            let presence = |owner: &OwnerId| presence_of(&files.dir, owner.client());
            let context = store_context.operation(lock, now, &presence);
            let answer = decide(&mut entry, &mut context.at_wall_clock(files.machine.since_1970()));
            // Write back.
            let new = State::encode(lock, files.machine.boot, store_context.last_number(), &entry);
            if new != content.bytes {
                content.replace(file, &new).map_err(failed)?;
            }
            Ok((answer, store_context.take_wake_ups()))
        })?;
        // Last, and nothing depends on it: a waiter that gets no message finds out at its next heartbeat.
        wake_ups::send(&files.dir, &wake_ups);
        Ok(answer)
    }

    /// Watches the processes that this waiter waits for.
    fn watch(&self, place: &Place<'_>, ahead: &[OwnerId]) {
        if let Some(listener) = self.listener(place.owner.client()) {
            listener.watch(place, ahead);
        }
    }

    /// The answer; or `gone` if the directory was removed, and with the directory what this client had there.
    fn or_if_removed<A>(&self, gone: A, answer: Result<A, BackendError>) -> Result<A, BackendError> {
        answer.or_else(|error| if self.files.dir.was_removed() { Ok(gone) } else { Err(error) })
    }

    /// Until when a call waits for the files of these locks. Each lock is a file of its own: where a call is about several, one that is not
    /// free must not cost the others the time of their renewals.
    pub(crate) fn patience<L: PartialEq>(&self, mut locks: impl Iterator<Item = L>) -> Patience {
        let (first, bound) = (locks.next(), self.files.machine.bound);
        let is_one = locks.all(|lock| first.as_ref() == Some(&lock));
        (Instant::now() + if is_one { bound } else { bound / 4 }, LONG)
    }
}

/// The owners in other clients whose end this place waits for.
fn ahead_of(entry: &LockEntry, place: &Place<'_>) -> Vec<OwnerId> {
    let ahead = entry.ahead_of(place.owner, place.request, WATCHED);
    ahead.filter(|owner| owner.client() != place.owner.client()).cloned().collect()
}

impl Backend for FileBackend {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        let patience = self.patience(asks.iter().map(|ask| &ask.place.lock.name));
        let acquire = |ask: &Acquire<'_>| {
            let place = &ask.place;
            let (answer, ahead) = self.step_by(patience, &place.lock.name, |entry, context| {
                entry.end_gone(context, place.lock.kind, place.units);
                let answer = entry.acquire(context, ask);
                let waits = matches!(answer, Ok(Acquired::Queued { .. } | Acquired::Busy { .. }));
                let ahead = if waits && place.wait != Wait::No { ahead_of(entry, place) } else { Vec::new() };
                (answer, ahead)
            })?;
            self.watch(place, &ahead);
            answer
        };
        asks.iter().map(acquire).collect()
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        let (until, _) = self.patience(holds.iter().map(|hold| &hold.lock.name));
        let release = |hold: &Hold<'_>| {
            let name = &hold.lock.name;
            let released = self.step_by((until, SHORT), name, |entry, context| entry.release(context, hold));
            self.or_if_removed(Released::NotHeld, released)
        };
        holds.iter().map(release).collect()
    }

    /// The adopter is present: its client subscribed before.
    fn adopt(&self, hold: &Hold<'_>, owner: &OwnerId, lease: Duration) -> Result<Renewal, BackendError> {
        let adopted = self.step(&hold.lock.name, |entry, context| entry.adopt(context, hold, owner, lease));
        self.or_if_removed(Ok(Renewal::Lost), adopted)?
    }

    fn renew(&self, _: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let patience = self.patience(items.iter().map(|item| &lock_of(item).name));
        renew_by_lock(items, |lock, items| {
            let renewed = self.step_by(patience, lock, |entry, context| {
                if let Some(Renew::Place { place, .. }) =
                    items.iter().find(|item| matches!(item, Renew::Place { .. }))
                {
                    entry.end_gone(context, place.lock.kind, u32::MAX);
                }
                let answers = entry.renew(context, items);
                let waits = items.iter().zip(&answers).filter_map(|pair| match pair {
                    (Renew::Place { place, .. }, Renewal::Waiting { .. }) => {
                        Some((*place, ahead_of(entry, place)))
                    }
                    _ => None,
                });
                let waits: Vec<_> = waits.collect();
                (answers, waits)
            });
            match renewed {
                Ok((answers, waits)) => {
                    waits.iter().for_each(|(place, ahead)| self.watch(place, ahead));
                    answers.into_iter().map(Ok).collect()
                }
                Err(error) => vec![self.or_if_removed(Renewal::Lost, Err(error)); items.len()],
            }
        })
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        let patience = self.patience(places.iter().map(|place| &place.lock.name));
        let withdraw = |place: &Place<'_>| {
            let name = &place.lock.name;
            let withdrawn = self.step_by(patience, name, |entry, context| entry.withdraw(context, place));
            self.or_if_removed(Withdrawn::Left, withdrawn)
        };
        places.iter().map(withdraw).collect()
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        self.step(&place.lock.name, |entry, context| entry.kick(context, place))
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        self.step(&lock.name, |entry, context| entry.force_release(context, lock))?
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        self.step(&hold.lock.name, |entry, context| entry.take_hold(context, hold))
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        self.step(&lock.name, |entry, context| entry.inspect(context, lock, part))?
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        let files = &self.files;
        files.dir.check()?;
        let (subscription, listener) = wake_ups::subscribe(files, client, sink).map_err(|error| {
            let dir = files.dir.path.display();
            failure(format_args!("can't make the files of a client in {dir}"), files.dir.explained(error))
        })?;
        let mut listeners = self.listeners.lock();
        listeners.retain(|_, listener| listener.strong_count() > 0);
        listeners.insert(client.to_string(), Arc::downgrade(&listener));
        Ok(subscription)
    }

    fn supports(&self, _: LockKind) -> bool {
        true
    }

    fn response_timeout(&self) -> Option<Duration> {
        Some(self.files.machine.bound)
    }
}
