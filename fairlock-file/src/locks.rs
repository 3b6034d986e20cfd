//! Lists the locks that are in use.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use fairlock_core::backend::LockState;
use fairlock_core::{LockName, OwnerId};
use fairlock_rules::{StoreContext, fits_pattern};

use crate::backend::{FileBackend, presence_of};
use crate::dir;
use crate::failure::failure;
use crate::machine;
use crate::slots::Content;
use crate::state::State;

impl FileBackend {
    /// Lists the locks that are held or waited for, by name, each with its holder and the number of waiters
    /// ([`inspect`](fairlock_core::Lock::inspect) reads the waiters). In `pattern` `*` is any text, `?` one character, `[ab]` and
    /// `[a-c]` a character of a list, `[^ab]` any other character; behind `\` a character stands for itself.
    ///
    /// It reads all locks of the directory, and keeps nobody waiting: each lock is shown as before or after a step. The list is not a
    /// snapshot. A file that is not of this version, or not for this user, is left out.
    ///
    /// # Errors
    /// `Refused` if the directory was removed; `Denied` or `Unavailable` if it can't be read.
    pub fn locks(&self, pattern: Option<&str>) -> fairlock_core::Result<Vec<(LockName, LockState)>> {
        let dir = &self.0.files.dir;
        dir.check()?;
        let failed =
            |error| failure(format_args!("can't read the directory {}", dir.path().display()), error);
        let mut found = Vec::new();
        for file in fs::read_dir(dir.path()).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            if path.extension() == Some(OsStr::new("lock")) {
                found.extend(self.listed(&path, pattern.unwrap_or("*")).ok().flatten());
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    fn listed(&self, path: &Path, pattern: &str) -> io::Result<Option<(LockName, LockState)>> {
        let Some(content) = Content::read(&dir::open(path, false)?)? else { return Ok(None) };
        let files = &self.0.files;
        let Ok(State { name, last, entry, .. }) = State::decode(&content.bytes, files.boot) else {
            return Ok(None);
        };
        let Some(name) = LockName::new(&name).ok().filter(|name| fits_pattern(pattern, name.as_str())) else {
            return Ok(None);
        };
        let (mut store_context, seen) = (StoreContext::after(last), RefCell::default());
        let presence = |owner: &OwnerId| presence_of(&files.dir, owner.client(), &seen);
        let state = entry.listed(&store_context.operation(&name, machine::now(), &presence), &name);
        Ok(state.map(|state| (name, state)))
    }
}
