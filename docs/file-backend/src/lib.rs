//! A small, complete backend of fairlock: locks among the processes of one machine, kept in one file.
//!
//! It is made for reading (`docs/writing-a-backend.md` walks through it), and passes the whole conformance suite. Its rules are
//! those of `fairlock-rules`: what stands here is a store. Its limits keep it small. Each step rewrites the whole file: enough for
//! dozens of locks, not for thousands. The clock is the machine's, which must not be set back.
//!
//! ```text
//!  <dir>/mutex         locked by File::lock for the length of one step
//!  <dir>/state         all locks, as text; replaced by a rename, so it is never half written
//!  <dir>/<client>.wake a socket for each client: its wake-ups arrive here
//! ```
#![cfg(unix)]

#[cfg(test)]
mod conformance;
mod locks;
mod wake_ups;

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, HoldCountSet, HoldKept,
    LockId, LockState, Place, Released, Renew, Renewal, RequestId, Subscription, WakeSink, Withdrawn,
    one_by_one,
};
use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
use fairlock_rules::{LockEntry, OperationContext, StoreContext, renew_by_lock};

use locks::Locks;

/// The longest wait for the mutex: a process may have been stopped while holding it.
const BOUND: Duration = Duration::from_secs(1);

/// Locks kept in a directory and shared by all processes that open it.
#[derive(Debug)]
pub struct FileBackend {
    dir: PathBuf,
}

impl FileBackend {
    /// Opens the directory, and creates it if needed. Its path must leave room for the name of a socket; 60 bytes are
    /// always short enough.
    ///
    /// # Errors
    /// `Unavailable` with the reason.
    pub fn open(dir: impl Into<PathBuf>) -> Result<FileBackend, BackendError> {
        let dir = dir.into();
        fs::create_dir_all(&dir).map_err(|error| unavailable("can't make the directory", error))?;
        Ok(FileBackend { dir })
    }

    /// One step: no other thread or process comes between the read and the write. A process that is killed on the way
    /// has changed nothing, and its lock on the mutex ends with it.
    fn step<T>(
        &self,
        lock: &LockName,
        decide: impl FnOnce(&mut LockEntry, &mut OperationContext<'_>) -> T,
    ) -> Result<T, BackendError> {
        let mutex = self.mutex()?;
        // Load.
        let mut locks = self.load()?;
        let mut entry = locks.entries.remove(lock).unwrap_or_default();
        // Decide.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut store_context = StoreContext::after(locks.last);
        let is_listening = |owner: &OwnerId| wake_ups::socket_of(&self.dir, owner.client()).exists();
        let answer = decide(&mut entry, &mut store_context.operation(lock, now, &is_listening));
        // Write back. What nobody uses any more goes, also of other locks.
        locks.last = store_context.last_number();
        locks.entries.insert(lock.clone(), entry);
        locks.entries.retain(|_, entry| now < entry.over_at());
        self.save(&locks)?;
        drop(mutex);
        // Last, and nothing depends on it: a waiter that gets no message finds out at its next heartbeat.
        store_context.take_wake_ups().iter().for_each(|wake_up| wake_ups::send(&self.dir, wake_up));
        Ok(answer)
    }

    fn load(&self) -> Result<Locks, BackendError> {
        let state = self.dir.join("state");
        let text = match fs::read_to_string(&state) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Locks::default()),
            read => read.map_err(|error| unavailable("can't read the state", error))?,
        };
        text.parse().map_err(|cause| {
            let message = format!("{} is no state of a file backend: {cause}", state.display());
            BackendError::new(BackendErrorKind::Corrupt, message)
        })
    }

    fn save(&self, locks: &Locks) -> Result<(), BackendError> {
        let new = self.dir.join("state.new");
        let written = fs::write(&new, locks.to_string());
        let renamed = written.and_then(|()| fs::rename(&new, self.dir.join("state")));
        renamed.map_err(|error| unavailable("can't write the state", error))
    }

    /// `File::lock` would be simpler, but has no time limit. The lock ends with the file.
    fn mutex(&self) -> Result<File, BackendError> {
        let failed = |error| unavailable("can't lock the mutex", error);
        let file = File::create(self.dir.join("mutex")).map_err(failed)?;
        let give_up_at = Instant::now() + BOUND;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if Instant::now() > give_up_at => {
                    return Err(unavailable("another process has the mutex", ErrorKind::TimedOut.into()));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

impl Backend for FileBackend {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        one_by_one(asks, |ask| {
            self.step(&ask.place.lock.name, |entry, context| entry.acquire(context, ask))?
        })
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        self.step(&hold.lock.name, |entry, context| entry.set_hold_count(context, hold, holds))
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        one_by_one(holds, |hold| self.step(&hold.lock.name, |entry, context| entry.release(context, hold)))
    }

    fn keep(&self, hold: &Hold<'_>, keeper: RequestId, lease: Duration) -> Result<HoldKept, BackendError> {
        self.step(&hold.lock.name, |entry, context| entry.keep(context, hold, keeper, lease))
    }

    fn renew(&self, _: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let mut failed: Option<BackendError> = None;
        renew_by_lock(items, |lock, items| {
            // After a lock that could not be asked about no other is: each might wait as long.
            let renewed = failed
                .clone()
                .map_or_else(|| self.step(lock, |entry, context| entry.renew(context, items)), Err);
            failed = renewed.as_ref().err().cloned();
            renewed
                .map_or_else(|error| vec![Err(error); items.len()], |all| all.into_iter().map(Ok).collect())
        })
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        one_by_one(places, |place| {
            self.step(&place.lock.name, |entry, context| entry.withdraw(context, place))
        })
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
        wake_ups::subscribe(&self.dir, client, sink).map_err(|error| unavailable("can't subscribe", error))
    }

    fn supports(&self, _: LockKind) -> bool {
        true
    }
}

fn unavailable(what: &str, error: std::io::Error) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, format!("{what}: {error}")).with_source(error)
}
