//! Removes files that nobody uses: of locks after a day, of killed clients after an hour.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::dir::{self, Dir};
use crate::lock_files::{LockFiles, is_at};
use crate::machine;
use crate::presence;
use crate::slots::Content;
use crate::state::State;

/// How long an unused lock keeps its file, so that tokens grow even if the clock is set back.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the file of a killed client stays, and says that the client is gone. Longer leases of the client end by the clock.
const AN_HOUR: Duration = Duration::from_secs(60 * 60);

/// Sweeps if no client has for so long.
pub(crate) fn sweep_if_due(files: &LockFiles, every: Duration) {
    let stamp = files.dir.path().join("swept");
    if is_older(&stamp, every).unwrap_or(true) {
        _ = renew(&files.dir, &stamp); // if it is another user's, and can't be replaced: a sweep more
        _ = sweep(files);
    }
}

/// A new file takes the stamp's place. A link to another file that another user has put there is not followed.
fn renew(dir: &Dir, stamp: &Path) -> io::Result<()> {
    let (new, _) = dir.new_file()?;
    fs::rename(&new, stamp).inspect_err(|_| _ = fs::remove_file(&new))
}

/// Removes what is old and unused. What can't be removed is of another user, whose clients remove it.
pub(crate) fn sweep(files: &LockFiles) -> io::Result<()> {
    for found in fs::read_dir(files.dir.path())? {
        let path = found?.path();
        let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        match path.extension().and_then(OsStr::to_str) {
            Some("lock") if is_older(&path, A_DAY).unwrap_or(false) => _ = remove_unused(files, &path),
            Some("here") if is_older(&path, AN_HOUR).unwrap_or(false) => _ = remove_gone(&files.dir, stem),
            // Its process was killed before the file got a name.
            Some("new") if is_older(&path, AN_HOUR).unwrap_or(false) => _ = fs::remove_file(&path),
            // A sweep was killed between the two files of a client, or a subscription failed.
            Some("wake") if !files.dir.here(stem).exists() && is_older(&path, AN_HOUR).unwrap_or(false) => {
                _ = fs::remove_file(&path);
            }
            _ => {}
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
    let Some(content) = Content::read(&file)? else { return Ok(()) };
    let is_unused =
        State::decode(&content.bytes, files.boot).is_ok_and(|state| state.entry.over_at() <= machine::now());
    // Looked at once more, now that nobody else can use the file.
    let has_name = is_at(path, dir::identity(&file.metadata()?))?;
    if is_unused && has_name && is_older(path, A_DAY)? { fs::remove_file(path) } else { Ok(()) }
}

fn remove_gone(dir: &Dir, client: &str) -> io::Result<()> {
    if presence::is_gone(dir, client) {
        fs::remove_file(dir.here(client))?;
        fs::remove_file(dir.wake(client))?;
    }
    Ok(())
}
