//! Removes the files of locks that nobody uses, and of killed clients, after a day.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::dir;
use crate::lock_files::{LockFiles, is_at};
use crate::presence;
use crate::slots::Content;
use crate::state::State;

/// How long the file of an unused lock stays, so that tokens grow even if the clock is set back; and the file of a killed client, which says
/// that the client is gone. Longer leases of that client end by the clock.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Sweeps if no client has for so long.
pub(crate) fn sweep_if_due(files: &LockFiles, every: Duration) {
    let stamp = files.dir.path.join("swept");
    if is_older(&stamp, every).unwrap_or(true) {
        // A new file: no link is followed that another user has put there. A stamp of another user stays: a sweep more.
        _ = fs::remove_file(&stamp);
        _ = File::create_new(&stamp);
        _ = sweep(files);
    }
}

/// Removes what is old and unused. What can't be removed is of another user, whose clients remove it.
pub(crate) fn sweep(files: &LockFiles) -> io::Result<()> {
    for found in fs::read_dir(&files.dir.path)? {
        let path = found?.path();
        if is_older(&path, A_DAY).unwrap_or(false) {
            let client = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
            match path.extension().and_then(OsStr::to_str) {
                Some("lock") => _ = remove_unused(files, &path),
                // Its process was killed before the file got a name.
                Some("new") => _ = fs::remove_file(&path),
                Some("here") if presence::lives(&files.dir, client) == Some(false) => {
                    _ = fs::remove_file(files.dir.wake(client));
                    _ = fs::remove_file(&path); // last: without it the other file is not found
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn is_older(path: &Path, age: Duration) -> io::Result<bool> {
    let written = fs::symlink_metadata(path)?.modified()?;
    Ok(SystemTime::now().duration_since(written).is_ok_and(|since| since > age))
}

/// A newcomer that has opened the file meanwhile waits for our lock, finds that the file has no name any more, and makes a new one.
fn remove_unused(files: &LockFiles, path: &Path) -> io::Result<()> {
    let file = dir::open(path, true)?;
    file.try_lock()?;
    let Ok(content) = Content::read(&file)? else { return Ok(()) };
    let is_unused = State::decode(&content.bytes, files.machine.boot)
        .is_ok_and(|state| state.entry.over_at() <= files.machine.now());
    // Looked at once more, now that nobody else can use the file.
    let has_name = is_at(path, dir::identity(&file.metadata()?))?;
    if is_unused && has_name && is_older(path, A_DAY)? { fs::remove_file(path) } else { Ok(()) }
}
