//! Lists the locks that are in use.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Instant;

use fairlock_core::backend::{BackendError, LockState};
use fairlock_core::{Error, LockName, OwnerId};
use fairlock_rules::{DecodeError, StoreContext, fits_pattern};

use crate::backend::FileBackend;
use crate::dir;
use crate::failure::failure;
use crate::lock_files::wait_for;
use crate::presence::presence_of;
use crate::slots::Content;
use crate::state::State;

impl FileBackend {
    /// Lists the locks that are held or waited for, by name, each with its holder, its first waiter and the number of waiters
    /// ([`inspect`](fairlock_core::Lock::inspect) reads the others). In `pattern` `*` is any text, `?` one character, `[ab]` and
    /// `[a-c]` a character of a list, `[^ab]` any other character; behind `\` a character stands for itself.
    ///
    /// It reads all locks of the directory, each between two steps. The list is not a snapshot. A file that is damaged, or not for this
    /// user, is left out.
    ///
    /// # Errors
    /// `Unsupported` if a newer version of fairlock keeps one of the locks; `Refused` if the directory was removed; `Denied` or
    /// `Unavailable` if it can't be read, or if a process stands still in a step.
    pub fn locks(&self, pattern: Option<&str>) -> fairlock_core::Result<Vec<(LockName, LockState)>> {
        let dir = &self.0.files.dir;
        dir.check()?;
        let failed = |error| failure(format_args!("can't read the directory {}", dir.path.display()), error);
        let (mut found, pattern) = (Vec::new(), pattern.unwrap_or("*"));
        for file in fs::read_dir(&dir.path).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            let named = dir.lock_of(&path);
            let is_other = named.as_ref().is_some_and(|name| !fits_pattern(pattern, name.as_str()));
            if path.extension() == Some(OsStr::new("lock")) && !is_other {
                let about = |error: BackendError| match &named {
                    Some(name) => Error::about(name, error),
                    None => error.into(),
                };
                let state = self.state_in(&path).map_err(about)?;
                found.extend(state.and_then(|state| self.listed(&state, pattern)));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// As between two steps: without the file's lock, two steps might write both slots while they are read.
    fn state_in(&self, path: &Path) -> Result<Option<State>, BackendError> {
        let Ok(file) = dir::open(path, false) else { return Ok(None) };
        wait_for(&file, Instant::now() + self.0.files.machine.bound, path.display())?;
        let read = Content::read(&file);
        _ = file.unlock(); // a child that was forked meanwhile has the file open as well
        let decode = |content: Content| State::decode(&content.bytes, self.0.files.machine.boot);
        match read.map(|read| read.and_then(decode)) {
            Ok(Err(newer @ DecodeError::Newer { .. })) => Err(newer.into()),
            state => Ok(state.ok().and_then(Result::ok)),
        }
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
