//! Lists the locks that are in use.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fairlock_core::backend::{BackendError, LockState};
use fairlock_core::{Error, LockName, OwnerId};
use fairlock_rules::{StoreContext, fits_pattern};

use crate::backend::{FileBackend, unreadable};
use crate::dir;
use crate::failure::failure;
use crate::lock_files::wait_for;
use crate::presence::presence_of;
use crate::slots::Content;
use crate::state::State;

type Locks = Vec<(LockName, LockState)>;

impl FileBackend {
    /// Lists the locks that are held or waited for, by name, each with its holder, its first waiter and the number of waiters
    /// ([`inspect`](fairlock_core::Lock::inspect) reads the others). In `pattern` `*` is any text, `?` one character, `[ab]` and
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
        let dir = &self.0.files.dir;
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
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let states = self.one_each(&paths, |path| *path, |give_up_at, path| self.state_in(path, give_up_at));
        let (mut found, mut unread) = (Vec::new(), Vec::new());
        for (path, state) in paths.into_iter().zip(states) {
            match (state, dir.lock_of(path)) {
                (Ok(state), _) => found.extend(state.and_then(|state| self.listed(&state, pattern))),
                (Err(error), Some(name)) => unread.push(Error::about(&name, error)),
                (Err(error), None) => unread.push(error.into()),
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok((found, unread))
    }

    /// As between two steps: without the file's lock, two steps might write both slots while they are read. None if the sweep was
    /// quicker.
    fn state_in(&self, path: &Path, give_up_at: Instant) -> Result<Option<State>, BackendError> {
        let failed = |error| failure(format_args!("the file {}", path.display()), error);
        let file = match dir::open(path, false) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        wait_for(&file, give_up_at, path.display())?;
        let read = Content::read(&file);
        _ = file.unlock(); // a child that was forked meanwhile has the file open as well
        let state = read
            .map_err(failed)?
            .and_then(|content| State::decode(&content.bytes, self.0.files.machine.boot));
        state.map(Some).map_err(|error| unreadable(path, error))
    }

    fn listed(&self, state: &State, pattern: &str) -> Option<(LockName, LockState)> {
        let name = LockName::new(&state.name).ok().filter(|name| fits_pattern(pattern, name.as_str()))?;
        let presence = |owner: &OwnerId| presence_of(&self.0.files.dir, owner.client());
        let mut store_context = StoreContext::after(state.last);
        let listed =
            state.entry.listed(&store_context.operation(&name, self.0.files.machine.now(), &presence), &name);
        listed.map(|listed| (name, listed))
    }
}
