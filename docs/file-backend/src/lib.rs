//! A small, complete backend of fairlock: locks among the processes of one machine, kept in one file.
//!
//! It is made for reading (`docs/writing-a-backend.md` walks through it), and passes the whole conformance suite. Its
//! limits keep it small. It rewrites its file at every step, so it is for dozens of locks, not thousands. It uses the
//! machine's clock, which must not be set back. And if all waiters are stopped for longer than a place lives, the
//! first one to continue is served first.
//!
//! ```text
//!  <dir>/mutex         locked by File::lock for the length of one step
//!  <dir>/state         all locks, as text; replaced by a rename, so it is never half written
//!  <dir>/<client>.wake a socket for each client: its wake-ups arrive here
//! ```
#![cfg(unix)]

#[cfg(test)]
mod conformance;
mod entry;
mod table;
mod text;
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
};
use fairlock_core::{ClientId, LockKind};

use table::Table;

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
    fn step<T>(&self, operate: impl FnOnce(&mut Table) -> T) -> Result<T, BackendError> {
        let mutex = self.mutex()?;
        let state = self.dir.join("state");
        let before = match fs::read_to_string(&state) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| unavailable("can't read the state", error))?,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut table = Table::parse(&before, now).ok_or_else(|| {
            BackendError::new(
                BackendErrorKind::Corrupt,
                format!("{} is no state of a file backend", state.display()),
            )
        })?;
        let answer = operate(&mut table);
        let after = table.to_string();
        if after != before {
            let new = self.dir.join("state.new");
            let written = fs::write(&new, after).and_then(|()| fs::rename(&new, &state));
            written.map_err(|error| unavailable("can't write the state", error))?;
        }
        drop(mutex);
        // Last, and nothing depends on it: a waiter that gets no message finds out at its next heartbeat.
        table.wake_ups.iter().for_each(|wake_up| wake_ups::send(&self.dir, wake_up));
        Ok(answer)
    }

    /// One step for many questions, each with an answer.
    fn steps<Q, A>(
        &self,
        questions: &[Q],
        mut operate: impl FnMut(&mut Table, &Q) -> A,
    ) -> Vec<Result<A, BackendError>> {
        match self.step(|table| questions.iter().map(|asked| operate(table, asked)).collect::<Vec<_>>()) {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => questions.iter().map(|_| Err(error.clone())).collect(),
        }
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
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        self.step(|table| table.acquire(ask))?
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        self.step(|table| table.set_hold_count(hold, holds))
    }

    fn release(&self, hold: &Hold<'_>) -> Result<Released, BackendError> {
        self.step(|table| table.release(hold))
    }

    fn release_all(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        self.steps(holds, Table::release)
    }

    fn keep(&self, hold: &Hold<'_>, keeper: RequestId, lease: Duration) -> Result<HoldKept, BackendError> {
        self.step(|table| table.keep(hold, keeper, lease))
    }

    fn renew(&self, _: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        match self.step(|table| table.renew(items)) {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); items.len()],
        }
    }

    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        self.step(|table| table.withdraw(place))
    }

    fn withdraw_all(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        self.steps(places, Table::withdraw)
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        self.step(|table| table.kick(place))
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        self.step(|table| table.force_release(lock))?
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        self.step(|table| table.take_hold(hold))
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        self.step(|table| table.inspect(lock, part))?
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        wake_ups::subscribe(&self.dir, client, sink).map_err(|error| unavailable("can't subscribe", error))
    }

    fn keeps(&self, _: LockKind) -> bool {
        true
    }
}

fn unavailable(what: &str, error: std::io::Error) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, format!("{what}: {error}")).with_source(error)
}
