//! The files of locks: opened, locked for the length of one step, and kept open for the next.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use fairlock_core::LockName;
use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_rules::LockEntry;

use crate::machine::{self, Dir, Machine, failure};
use crate::slots::{Content, State};

/// How many files stay open.
const MOST_OPEN: usize = 64;
/// How often a caller looks for a free file without a pause: a step takes microseconds. Then each pause is as long as the wait so far, up to
/// a limit. A crowd that looks without a pause takes the processor from the steps.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_micros(100);
/// The longest pause; and that of a release, since all waiters wait for it. Only one at a time looks so often.
pub(crate) const LONG: Duration = Duration::from_millis(25);
pub(crate) const SHORT: Duration = Duration::from_micros(200);

/// Until when a caller waits for a file, and its longest pause between two looks.
pub(crate) type Patience = (Instant, Duration);

/// The files of all locks in a directory. The threads of this process take turns on each: the system's lock is one of the open file,
/// and would not keep two threads apart that share it.
#[derive(Debug)]
pub(crate) struct LockFiles {
    pub(crate) dir: Arc<Dir>,
    pub(crate) machine: Machine,
    used: Mutex<Used>,
}

/// The files that this process uses. A child that was forked has the same open files, and so the same locks of the system: the child
/// drops them, and opens its own.
#[derive(Debug, Default)]
struct Used {
    process: u32,
    files: HashMap<LockName, Arc<LockFile>>,
}

/// The file of one lock.
#[derive(Debug, Default)]
struct LockFile {
    /// Kept open from the last step.
    open: Mutex<Option<Open>>,
    /// Whether the last step waited in vain for the file, which stood still. Then the next one takes a quarter of its time: a file that stands still must not
    /// cost other locks theirs.
    is_stuck: AtomicBool,
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
        LockFiles { dir, machine, used: Mutex::default() }
    }

    /// Calls `step` with the lock's file, which no other thread or process has meanwhile. Fails if the file is not free in time.
    pub(crate) fn with<T>(
        &self,
        lock: &LockName,
        (give_up_at, pause): Patience,
        step: impl FnOnce(&File) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let (used, began) = (self.used(lock), Instant::now());
        let mut left = give_up_at.saturating_duration_since(began);
        if used.is_stuck.load(Ordering::Relaxed) {
            left /= 4;
        }
        let give_up_at = began + left;
        // Held over the step: the other threads of this process wait here, each until its own time is over.
        let kept = used.open.try_lock_until(give_up_at);
        let mut kept = kept.ok_or_else(|| not_free(format_args!("lock {lock}"), "another thread"))?;
        let open = loop {
            let open = kept.take().map_or_else(|| self.open(lock), Ok)?;
            wait_for(&open.file, (give_up_at, pause), format_args!("lock {lock}")).inspect_err(|_| {
                // Not one that others write meanwhile, as in a crowd; and a single look says nothing.
                let found = open.file.metadata().ok().filter(|_| !left.is_zero());
                let is_still = found.is_some_and(|found| machine::is_older(&found, left));
                used.is_stuck.fetch_or(is_still, Ordering::Relaxed);
            })?;
            // The file may have lost its name before it was ours, and keep another one: then the lock is a new file.
            let is_at = machine::is_at(&open.path, open.identity);
            if is_at.map_err(|error| failure(format_args!("the file {}", open.path.display()), error))? {
                break open;
            }
        };
        used.is_stuck.store(false, Ordering::Relaxed);
        let answer = step(&open.file);
        // Explicitly: a child that was forked meanwhile has the file open as well.
        if open.file.unlock().is_ok() {
            *kept = Some(open);
        }
        answer
    }

    fn used(&self, lock: &LockName) -> Arc<LockFile> {
        let (mut used, process) = (self.used.lock(), std::process::id());
        if used.process != process || used.files.len() >= MOST_OPEN && !used.files.contains_key(lock) {
            // A thread in a step goes on with its file: another one that opens the file anew waits for the system's lock.
            *used = Used { process, files: HashMap::new() };
        }
        Arc::clone(used.files.entry(lock.clone()).or_default())
    }

    /// The lock's file, which is made if needed.
    fn open(&self, lock: &LockName) -> Result<Open, BackendError> {
        self.dir.check()?;
        let path = self.dir.lock(lock);
        self.open_or_make(lock, &path).map_err(|error| {
            let whose = fs::symlink_metadata(&path)
                .map_or_else(|_| String::new(), |file| format!(" of user {}", file.uid()));
            let (path, error) = (path.display(), self.dir.explained(error));
            failure(format_args!("can't open or make the file {path}{whose} for lock {lock}"), error)
        })
    }

    /// First without `O_CREAT`: the system may refuse that for the file of another user in a sticky directory.
    fn open_or_make(&self, lock: &LockName, path: &Path) -> io::Result<Open> {
        loop {
            match machine::open(path, true) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.make(lock, path)?,
                opened => {
                    let file = opened?;
                    let found = file.metadata()?;
                    let identity = machine::identity(&found);
                    if found.nlink() > 1 {
                        self.dir.remove_first_name(identity);
                    }
                    return Ok(Open { path: path.to_owned(), file, identity });
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
pub(crate) fn wait_for(file: &File, patience: Patience, whose: impl Display) -> Result<(), BackendError> {
    let ((give_up_at, longest), mut looks, began) = (patience, 0, Instant::now());
    loop {
        looks += 1;
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => {
                return Err(failure(format_args!("the file of {whose}"), error));
            }
            Err(TryLockError::WouldBlock) if looks <= LOOKS => thread::yield_now(),
            Err(TryLockError::WouldBlock) => {
                let now = Instant::now();
                if now >= give_up_at {
                    break;
                }
                thread::sleep((now - began).clamp(PAUSE, longest).min(give_up_at - now));
            }
        }
    }
    // Without a wait the file may be free again in a moment.
    let holder = if began < give_up_at { holder_of(file) } else { None };
    Err(not_free(whose, &holder.map_or_else(|| "another process".into(), |id| format!("process {id}"))))
}

fn not_free(whose: impl Display, holder: &str) -> BackendError {
    let message = format!("{holder} has the file of {whose}, and does not free it");
    BackendError::new(BackendErrorKind::Unavailable, message)
}

/// Which process has the file locked, if the system tells.
fn holder_of(file: &File) -> Option<u32> {
    let found = file.metadata().ok()?;
    // As in `1: FLOCK  ADVISORY  WRITE 4711 fd:01:262145 0 EOF`. A line of a process that waits has an arrow.
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let id = format!("{major:02x}:{minor:02x}:{}", found.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut words = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = words.find(|words| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&&*id))?;
    line[4].parse().ok().filter(|id| *id > 0)
}

#[cfg(test)]
mod tests {
    use fairlock_core::ClientId;

    use super::*;

    /// Its parent is in a step: the two have one open file, and so one lock of the system. No test can fork: that is unsafe.
    #[test]
    fn a_forked_child_does_not_step_into_its_parents_step() {
        let path = std::env::temp_dir().join(ClientId::random().to_string());
        let files = LockFiles::new(Arc::new(Dir::open(path.clone()).unwrap()), Machine::of_boot(1));
        let lock = LockName::new("x").unwrap();
        let step = || files.with(&lock, (Instant::now(), LONG), |_| Ok(()));
        step().unwrap();
        let parents = files.used(&lock).open.lock().as_ref().unwrap().file.try_clone().unwrap();
        parents.lock().unwrap();
        files.used.lock().process = 0;
        assert_eq!(step().unwrap_err().kind(), BackendErrorKind::Unavailable);
        parents.unlock().unwrap();
        step().unwrap();
        fs::remove_dir_all(path).unwrap();
    }
}
