//! The backend itself: each operation is one step on one file; and what an operator asks: which locks are in use, and whether locks work in this
//! directory, and how quickly.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, Facts, Finding, ForceReleased, Hold, LockId, LockState, Place,
    Released, Renew, Renewal, Subscription, Table, Verdict, Wait, WakeSink, Withdrawn, probe, try_out,
};
use fairlock_core::{ClientId, Error, LockKind, LockName, OwnerId};
use fairlock_rules::{LockEntry, OperationContext, StoreContext, fits_pattern, lock_of, renew_by_lock};
use parking_lot::Mutex;

use crate::lock_files::{LONG, LockFiles, Patience, SHORT, wait_for};
use crate::machine::{self, BOUND, Dir, Machine, failure, is_of_new_file, presence_of, whose};
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

/// How many steps the doctor measures.
const STEPS: usize = 20;

type Locks = Vec<(LockName, LockState)>;

impl FileBackend {
    /// Lists the locks that are held or waited for, by name, each with its holder, its first waiter and the number of waiters
    /// ([`inspect`](fairlock_core::Admin::inspect) reads the others). In `pattern` `*` is any text, `?` one character, `[ab]` and
    /// `[a-c]` a character of a list, `[^ab]` any other character; behind `\` a character stands for itself.
    ///
    /// It reads all locks of the directory, each between two steps. The list is not a snapshot. A file that is damaged, or not for this
    /// user, is left out.
    ///
    /// # Errors
    /// `Unsupported` if a newer version of fairlock keeps one of the locks; `InvalidConfig` if the directory was removed; `Denied` or
    /// `Unavailable` if it can't be read, or if a process stands still in a step.
    pub fn locks(&self, pattern: Option<&str>) -> fairlock_core::Result<Locks> {
        let (found, unread) = self.locks_and_unread(pattern)?;
        let matters = |error: &Error| matches!(error, Error::Unavailable { .. } | Error::Unsupported { .. });
        unread.into_iter().find(matters).map_or(Ok(found), Err)
    }

    /// The same, and beside the locks why others can't be read: a process stands still in a step, a file is damaged or another program's,
    /// this user has no right, or a newer version of fairlock keeps the lock.
    ///
    /// # Errors
    /// As [`locks`](FileBackend::locks), if the directory can't be read.
    pub fn locks_and_unread(&self, pattern: Option<&str>) -> fairlock_core::Result<(Locks, Vec<Error>)> {
        let dir = &self.files.dir;
        dir.check()?;
        let failed = |error| failure(format_args!("can't read the directory {}", dir.path.display()), error);
        let (mut paths, pattern) = (Vec::new(), pattern.unwrap_or("*"));
        for file in fs::read_dir(&dir.path).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            let is_other = dir.lock_of(&path).is_some_and(|name| !fits_pattern(pattern, name.as_str()));
            if path.extension() == Some(OsStr::new("lock")) && !is_other {
                paths.push(path);
            }
        }
        let (mut found, mut unread, patience) = (Vec::new(), Vec::new(), self.patience(paths.iter()));
        for path in &paths {
            match (self.state_in(path, patience), dir.lock_of(path)) {
                (Ok(state), _) => found.extend(state.and_then(|state| self.listed(&state, pattern))),
                (Err(error), Some(name)) => unread.push(Error::about(&name, error)),
                (Err(error), None) => unread.push(error.into()),
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok((found, unread))
    }

    /// As between two steps: without the file's lock, two steps might write both slots while they are read. None if the sweep was
    /// quicker, and for a file of another program.
    fn state_in(&self, path: &Path, patience: Patience) -> Result<Option<State>, BackendError> {
        let failed = |error| failure(format_args!("the file {}", path.display()), error);
        let file = match machine::open(path, false) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        wait_for(&file, patience, path.display())?;
        let (found, read) = (file.metadata().map_err(failed)?, State::read(&file, self.files.machine.boot));
        _ = file.unlock(); // a child that was forked meanwhile has the file open as well
        match read {
            Ok((_, state)) => Ok(Some(state)),
            // Many programs have files with such names.
            Err(error) if error.kind() == ErrorKind::InvalidData && !is_of_new_file(&found) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn listed(&self, state: &State, pattern: &str) -> Option<(LockName, LockState)> {
        let name = LockName::new(&state.name).ok().filter(|name| fits_pattern(pattern, name.as_str()))?;
        let presence = |owner: &OwnerId| presence_of(&self.files.dir, owner.client());
        let mut store_context = StoreContext::after(state.last);
        let listed =
            state.entry.listed(&store_context.operation(&name, self.files.machine.now(), &presence), &name);
        listed.map(|listed| (name, listed))
    }

    /// Checks the directory. The topics are, in this order: `directory`, who shares it; `trial`: a lock of a random name
    /// (`fairlock-doctor:…`) is acquired and released, and how long each takes; `locks`, for each lock that can't be read: why.
    ///
    /// # Errors
    /// `Refused` if the directory was removed, `Denied` or `Unavailable` if it can't be read. Any later failure is a finding.
    pub fn doctor(&self) -> fairlock_core::Result<Vec<Finding>> {
        let dir = &self.files.dir;
        dir.check()?;
        let found = fs::metadata(&dir.path).map_err(|error| failure("can't read the directory", error))?;
        let whose = whose(&found);
        let directory = match found.mode() & 0o2022 {
            0 | 0o2000 => (Verdict::Good, format!("{whose}: its user's own").into()),
            0o2020 => (Verdict::Good, format!("{whose}: users of its group share the locks").into()),
            // The file of a lock gets the own group of who uses it first.
            _ => {
                let cure = format!("`chmod 3770 {}` lets those of its group", dir.path.display());
                (Verdict::Note, format!("{whose}: not all of its users may take each lock; {cure}").into())
            }
        };
        let (lock, mut times) = (probe(), Vec::new());
        let tried: Result<(), BackendError> = (0..STEPS).try_for_each(|_| {
            let started = Instant::now();
            try_out(self, &lock)?;
            times.push(started.elapsed() / 2);
            Ok(())
        });
        _ = fs::remove_file(dir.lock(&lock.name));
        let trial = match tried {
            Ok(()) => {
                let quicker = "a directory in memory, such as /run, is quicker";
                Table("").say("steps", &Facts::of_times(times, BOUND, quicker)).remove(0)
            }
            Err(error) => (Verdict::Unsafe, (&error).into()),
        };
        let finding =
            |(topic, (verdict, text))| Finding::new(dir.path.display().to_string(), topic, verdict, text);
        let unread = self.locks_and_unread(None)?.1;
        let unread = unread.iter().map(|error| ("locks", (Verdict::Unsafe, error.to_string().into())));
        Ok([("directory", directory), ("trial", trial)].into_iter().chain(unread).map(finding).collect())
    }
}
