//! The files of locks: opened, locked for the length of one step, and kept open for the next.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use fairlock_core::LockName;
use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_rules::LockEntry;

use crate::dir::{self, Dir};
use crate::failure::failure;
use crate::machine::{self, Machine};
use crate::slots::Content;
use crate::state::State;

/// How many files stay open.
const MOST_OPEN: usize = 64;
/// So often a caller looks for a file to become free before it sleeps in between: a step takes microseconds.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_micros(100);

/// The files of all locks in a directory. A thread takes an open file out for its step: the system's lock is one of the open file,
/// and would not keep two threads apart that share it.
#[derive(Debug)]
pub(crate) struct LockFiles {
    pub(crate) dir: Arc<Dir>,
    pub(crate) machine: Machine,
    open: Mutex<HashMap<LockName, Open>>,
}

/// An open file, and which one it is.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: File,
    identity: (u64, u64),
}

impl LockFiles {
    pub(crate) fn new(dir: Arc<Dir>, machine: Machine) -> LockFiles {
        LockFiles { dir, machine, open: Mutex::default() }
    }

    /// Calls `step` with the lock's file, which no other thread or process has meanwhile. Fails if the file is not free in time.
    pub(crate) fn with<T>(
        &self,
        lock: &LockName,
        step: impl FnOnce(&File) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let failed = |error| failure(format_args!("the file of lock {lock}"), error);
        let (began, bound) = (Instant::now(), self.machine.bound);
        let mut kept = self.open.lock().remove(lock);
        let open = loop {
            let open = kept.take().map_or_else(|| self.open(lock), Ok)?;
            wait_for(&open.file, began, bound, format_args!("lock {lock}"))?;
            // The file may have lost its name before it was ours, and keep another one: then the lock is a new file.
            if is_at(&open.path, open.identity).map_err(failed)? {
                break open;
            }
        };
        let answer = step(&open.file);
        // Explicitly: a child that was forked meanwhile has the file open as well.
        if open.file.unlock().is_ok() {
            let mut kept = self.open.lock();
            if kept.len() >= MOST_OPEN {
                kept.clear();
            }
            kept.insert(lock.clone(), open);
        }
        answer
    }

    /// The lock's file, which is made if needed.
    fn open(&self, lock: &LockName) -> Result<Open, BackendError> {
        self.dir.check()?;
        let path = self.dir.lock(lock);
        let opened = self.open_or_make(lock, &path).map_err(|error| {
            let whose = fs::symlink_metadata(&path)
                .map_or_else(|_| String::new(), |file| format!(" of user {}", file.uid()));
            let (path, error) = (path.display(), self.dir.explained(error));
            failure(format_args!("can't open or make the file {path}{whose} for lock {lock}"), error)
        });
        let (identity, file) = opened?;
        Ok(Open { path, file, identity })
    }

    /// First without `O_CREAT`: the system may refuse that for the file of another user in a sticky directory.
    fn open_or_make(&self, lock: &LockName, path: &Path) -> io::Result<((u64, u64), File)> {
        loop {
            match dir::open(path, true) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.make(lock, path)?,
                opened => {
                    let file = opened?;
                    return Ok((dir::identity(&file.metadata()?), file));
                }
            }
        }
    }

    /// The file gets its name when it is complete. If another process was faster, that file stays.
    fn make(&self, lock: &LockName, path: &Path) -> io::Result<()> {
        let (new, file) = self.dir.new_file()?;
        let content = State::encode(lock, self.machine.boot, machine::first_number(), &LockEntry::default());
        let named = Content::begin(&file, &content).and_then(|()| fs::hard_link(&new, path));
        _ = fs::remove_file(&new);
        named.or_else(|error| if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
    }
}

/// Locks the file. `File::lock` would be simpler, but has no time limit.
pub(crate) fn wait_for(
    file: &File,
    began: Instant,
    bound: Duration,
    whose: impl Display,
) -> Result<(), BackendError> {
    for look in 0_u32.. {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => {
                return Err(failure(format_args!("the file of {whose}"), error));
            }
            Err(TryLockError::WouldBlock) if look < LOOKS => thread::yield_now(),
            Err(TryLockError::WouldBlock) if began.elapsed() > bound => break,
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
        }
    }
    let message = format!("another process has had the file of {whose} for {bound:?}");
    Err(BackendError::new(BackendErrorKind::Unavailable, message))
}

/// Whether this file still has this name.
pub(crate) fn is_at(path: &Path, identity: (u64, u64)) -> io::Result<bool> {
    match dir::identity_of(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        found => Ok(found? == identity),
    }
}
