//! The files of locks: opened, locked for the length of one step, and kept open for the next.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::ops::Deref;
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
use crate::machine;
use crate::slots::Content;
use crate::state::State;

/// The longest wait for a file: a process may stand still in a step.
pub(crate) const BOUND: Duration = Duration::from_secs(1);
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
    pub(crate) boot: u128,
    open: Mutex<HashMap<LockName, Open>>,
}

/// An open file, and which one it is.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: File,
    identity: (u64, u64),
}

/// A lock's file, which no other process changes until this is dropped.
pub(crate) struct Locked<'a> {
    files: &'a LockFiles,
    lock: &'a LockName,
    open: Option<Open>,
}

impl LockFiles {
    pub(crate) fn new(dir: Arc<Dir>, boot: u128) -> LockFiles {
        LockFiles { dir, boot, open: Mutex::default() }
    }

    /// Takes the lock's file, within the bound.
    pub(crate) fn lock<'a>(&'a self, lock: &'a LockName) -> Result<Locked<'a>, BackendError> {
        let failed = |error| failure(format_args!("the file of lock {lock}"), error);
        let give_up_at = Instant::now() + BOUND;
        let mut kept = self.open.lock().remove(lock);
        loop {
            let open = match kept.take() {
                Some(open) => open,
                None => {
                    self.dir.check()?;
                    self.open(lock).map_err(|error| self.why_not(lock, error))?
                }
            };
            if !wait_for(&open.file, give_up_at).map_err(failed)? {
                let message = format!("another process has had the file of lock {lock} for {BOUND:?}");
                return Err(BackendError::new(BackendErrorKind::Unavailable, message));
            }
            // The file may have lost its name before it was ours, and keep another one: then the lock is a new file.
            if is_at(&open.path, open.identity).map_err(failed)? {
                return Ok(Locked { files: self, lock, open: Some(open) });
            }
        }
    }

    /// The lock's file, which is made if needed. First without `O_CREAT`: the system may refuse that for the file of another user in
    /// a sticky directory.
    fn open(&self, lock: &LockName) -> io::Result<Open> {
        let path = self.dir.lock(lock);
        let file = loop {
            match dir::open(&path, true) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.make(lock, &path)?,
                opened => break opened?,
            }
        };
        let identity = dir::identity(&file.metadata()?);
        Ok(Open { path, file, identity })
    }

    /// The file gets its name when it is complete. If another process was faster, that file stays.
    fn make(&self, lock: &LockName, path: &Path) -> io::Result<()> {
        let (new, file) = self.dir.new_file()?;
        let content = State::encode(lock, self.boot, machine::first_number(), &LockEntry::default());
        let named = Content::begin(&file, &content).and_then(|()| fs::hard_link(&new, path));
        _ = fs::remove_file(&new);
        named.or_else(|error| if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
    }

    fn why_not(&self, lock: &LockName, error: io::Error) -> BackendError {
        if let Err(removed) = self.dir.check() {
            return removed;
        }
        let path = self.dir.lock(lock);
        let owner = fs::metadata(&path).map(|file| file.uid()).ok();
        match owner.filter(|_| error.kind() == ErrorKind::PermissionDenied) {
            Some(user) => failure(
                format_args!(
                    "lock {lock} is of user {user}, whose file {} is not for this process",
                    path.display()
                ),
                error,
            ),
            None => failure(
                format_args!("can't make a file in {} for lock {lock}", self.dir.path().display()),
                error,
            ),
        }
    }
}

impl Deref for Locked<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        self.open.as_ref().map_or_else(|| unreachable!("it is there until the drop"), |open| &open.file)
    }
}

impl Drop for Locked<'_> {
    /// Frees the file explicitly: a child that was forked meanwhile has it open as well.
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.file.unlock().is_ok() {
            let mut kept = self.files.open.lock();
            if kept.len() >= MOST_OPEN {
                kept.clear();
            }
            kept.insert(self.lock.clone(), open);
        }
    }
}

/// Locks the file. `File::lock` would be simpler, but has no time limit.
fn wait_for(file: &File, give_up_at: Instant) -> io::Result<bool> {
    for look in 0.. {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if look < LOOKS => thread::yield_now(),
            Err(TryLockError::WouldBlock) if Instant::now() > give_up_at => return Ok(false),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
        }
    }
    Ok(false)
}

/// Whether this file still has this name.
pub(crate) fn is_at(path: &Path, identity: (u64, u64)) -> io::Result<bool> {
    match dir::identity_of(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        found => Ok(found? == identity),
    }
}
