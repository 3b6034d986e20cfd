//! Which clients live: each has a file with the number of its process, which the process locks as long as it lives. The system frees
//! the lock however the process ends.
//!
//! Only a file that nobody locks says that a client is gone. One that is not there says nothing: the client may have ended well. A
//! child that is forked without an `exec` has the lock too, and its parent then counts as alive until the leases end.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::PathBuf;

use crate::dir::{self, Dir};

/// The presence file of a client that lives. The drop removes the name before it frees the file: the client has ended well.
pub(crate) struct Here {
    path: PathBuf,
    locked: File,
}

impl Here {
    /// Locks the file before naming it, so that nobody finds the file free.
    pub(crate) fn take(dir: &Dir, client: &str) -> io::Result<Here> {
        let (new, mut file) = dir.new_file()?;
        let path = dir.here(client);
        let written =
            file.try_lock().map_err(io::Error::from).and_then(|()| write!(file, "{}", std::process::id()));
        if let Err(error) = written.and_then(|()| fs::rename(&new, &path)) {
            _ = fs::remove_file(&new);
            return Err(error);
        }
        Ok(Here { path, locked: file })
    }

    /// The same open file: the lock ends when all who have it are gone.
    pub(crate) fn share(&self) -> io::Result<File> {
        self.locked.try_clone()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

/// Whether the process of the client has certainly ended.
pub(crate) fn is_gone(dir: &Dir, client: &str) -> bool {
    open(dir, client).is_some_and(|file| is_free(&file))
}

/// Whether the process of the client lives.
pub(crate) fn is_taken(dir: &Dir, client: &str) -> bool {
    open(dir, client).is_some_and(|file| !is_free(&file))
}

/// The file of a client. None also for owners whose names are no file's.
fn open(dir: &Dir, client: &str) -> Option<File> {
    let is_id = !client.is_empty() && client.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if is_id { dir::open(&dir.here(client), false).ok() } else { None }
}

/// Whether nobody has this presence file locked. The shared lock that finds this out ends with the file, and hinders no other look.
pub(crate) fn is_free(file: &File) -> bool {
    file.try_lock_shared().is_ok()
}

/// The number of the client's process, if that lives, and the file that says so.
pub(crate) fn process_of(dir: &Dir, client: &str) -> Option<(i32, File)> {
    let mut file = open(dir, client)?;
    let mut number = String::new();
    file.read_to_string(&mut number).ok()?;
    Some((number.parse().ok()?, file))
}
