//! Which clients live: each has a file with the number of its process, which the process locks as long as it lives. The system frees
//! the lock however the process ends.
//!
//! Only a file that nobody locks says that a client is gone. One that is not there says nothing: the client may have ended well. A
//! child that is forked without an `exec` has the lock too, and its parent then counts as alive until the leases end.

use std::fs::{self, File};
use std::io::{self, Read, Write};

use fairlock_rules::Presence;

use crate::dir::{self, Dir};

/// No number of a process has more digits; any user of the directory's group may write more into the file.
const LONGEST_NUMBER: u64 = 20;

/// Makes the presence file of a client, which lives as long as the file is open. The file is locked before it gets its name:
/// nobody finds it free.
pub(crate) fn take(dir: &Dir, client: &str) -> io::Result<File> {
    let (new, mut file) = dir.new_file()?;
    let locked = file.try_lock().map_err(io::Error::from);
    let named = locked
        .and_then(|()| write!(file, "{}", std::process::id()))
        .and_then(|()| fs::rename(&new, dir.here(client)));
    named.inspect_err(|_| _ = fs::remove_file(&new)).map(|()| file)
}

/// Whether the process of the client lives; none if nobody can know.
pub(crate) fn lives(dir: &Dir, client: &str) -> Option<bool> {
    open(dir, client).map(|file| !is_free(&file))
}

/// As the rules ask for it.
pub(crate) fn presence_of(dir: &Dir, client: &str) -> Presence {
    if lives(dir, client) == Some(false) { Presence::Gone } else { Presence::Present }
}

/// The file of a client. None also for owners whose names are no file's.
fn open(dir: &Dir, client: &str) -> Option<File> {
    if dir::is_client(client) { dir::open(&dir.here(client), false).ok() } else { None }
}

/// Whether nobody has this presence file locked. The shared lock that finds this out ends with the file, and hinders no other look.
pub(crate) fn is_free(file: &File) -> bool {
    file.try_lock_shared().is_ok()
}

/// The number of the client's process, and the file that says so.
pub(crate) fn process_of(dir: &Dir, client: &str) -> Option<(i32, File)> {
    let file = open(dir, client)?;
    let mut number = String::new();
    (&file).take(LONGEST_NUMBER).read_to_string(&mut number).ok()?;
    Some((number.parse().ok()?, file))
}
