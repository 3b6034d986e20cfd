//! What an operator asks: which locks are in use, and whether locks work in this directory, and how quickly.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use fairlock_core::backend::{BackendError, Facts, Finding, LockState, Table, Verdict, probe, try_out};
use fairlock_core::{Error, LockName, OwnerId};
use fairlock_rules::{StoreContext, fits_pattern};

use crate::backend::FileBackend;
use crate::lock_files::{Patience, wait_for};
use crate::machine::{self, BOUND, failure, is_of_new_file, presence_of, whose};
use crate::slots::State;

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
