//! Removes the files of locks that nobody uses, and of killed clients, after a day.
//!
//! The directory may have other files with such names. Ours are known by the whole name, the type, the owner and the content, and a client
//! removes those of its own user.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::process::geteuid;

use crate::lock_files::LockFiles;
use crate::machine::{self, is_older};
use crate::slots::{Content, State};

/// How long the file of an unused lock stays, so that tokens grow even if the clock is set back; and the file of a killed client, which says
/// that the client is gone. Longer leases of that client end by the clock.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// What a stamp says once a sweep has ended. Before, the stamp is empty.
const SWEPT: &[u8] = b"fairlock has removed the unused files of this user\n";

/// Sweeps if no client of this user has for so long, and none does now. After a sweep that was cut off, the next client goes on.
pub(crate) fn sweep_if_due(files: &LockFiles, every: Duration) {
    let path = files.dir.path.join(format!("fairlock-{}.swept", geteuid().as_raw()));
    _ = File::create_new(&path);
    // None where another file has the name: then it is a sweep more.
    let stamp = ours(&path).ok().filter(|(.., text)| SWEPT.starts_with(text));
    let is_due = stamp.as_ref().is_none_or(|(file, found, text)| {
        (text != SWEPT || is_older(found, every)) && file.try_lock().is_ok() // until the end of the sweep
    });
    if is_due && sweep(files).is_ok() {
        _ = stamp.map(|(file, ..)| file.write_all_at(SWEPT, 0));
    }
}

/// Removes what is old and unused.
pub(crate) fn sweep(files: &LockFiles) -> io::Result<()> {
    for found in fs::read_dir(&files.dir.path)? {
        _ = remove_if_old(files, &found?.path());
    }
    Ok(())
}

fn remove_if_old(files: &LockFiles, path: &Path) -> io::Result<()> {
    let [client, extension] =
        [path.file_stem(), path.extension()].map(|part| part.and_then(OsStr::to_str).unwrap_or_default());
    let may_be_ours = extension == "lock" || machine::is_client(client);
    if !may_be_ours || !is_older(&fs::symlink_metadata(path)?, A_DAY) {
        return Ok(());
    }
    let (file, _, bytes) = ours(path)?;
    let is_presence = bytes.iter().all(u8::is_ascii_digit);
    match extension {
        "lock" => remove_unused(files, path, &file),
        // Its process was killed before the file got a name.
        "new" if is_presence || bytes.iter().all(|byte| *byte == 0) || Content::read(&file).is_ok() => {
            fs::remove_file(path)
        }
        "here" if is_presence && machine::is_free(&file) => {
            let socket = files.dir.wake(client);
            if fs::symlink_metadata(&socket).is_ok_and(|found| found.file_type().is_socket()) {
                fs::remove_file(socket)?;
            }
            fs::remove_file(path) // last: without it the socket is not found
        }
        _ => Ok(()),
    }
}

/// A file of this user, and how it begins.
fn ours(path: &Path) -> io::Result<(File, Metadata, Vec<u8>)> {
    let file = machine::open(path, true)?;
    let (found, mut bytes) = (file.metadata()?, Vec::new());
    if !found.is_file() || found.uid() != geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Read::take(&file, 5000).read_to_end(&mut bytes)?;
    Ok((file, found, bytes))
}

/// A newcomer that has opened the file meanwhile waits for our lock, finds that the file has no name any more, and makes a new one.
fn remove_unused(files: &LockFiles, path: &Path, file: &File) -> io::Result<()> {
    file.try_lock()?;
    let (_, state) = State::read(file, files.machine.boot)?;
    let machine = &files.machine;
    let is_unused = state.entry.over_at() <= machine.now() && state.entry.note_ends() <= machine.since_1970();
    // Looked at once more, now that nobody else can use the file.
    let found = file.metadata()?;
    let has_name = machine::is_at(path, machine::identity(&found))?;
    if is_unused && has_name && is_older(&found, A_DAY) { fs::remove_file(path) } else { Ok(()) }
}
