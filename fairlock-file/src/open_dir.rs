//! Opens a directory of locks, makes it if needed, and refuses those that can't be one.

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use fairlock_core::ClientId;
use fairlock_core::backend::{BackendError, BackendErrorKind};
use rustix::process::{Resource, geteuid, getrlimit};

use crate::dir::{Dir, identity, itself, set_mode};
use crate::failure::failure;

/// Users of the directory's group share it, and only the owner of a file removes it.
const MODE: u32 = 0o3770;
/// While a directory is being made it has this mode, and no other directory of this user has: a chmod reaches none that another user has put
/// in its place.
const MODE_AT_FIRST: u32 = 0o1700;
/// The longest path of a socket, on all systems.
const SOCKET_PATH: usize = 103;
/// Failures that stay.
const NO_REPEAT_HELPS: [ErrorKind; 4] =
    [ErrorKind::InvalidInput, ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::AlreadyExists];
/// The longest file of a lock.
const LONGEST_FILE: u64 = 129 << 20;

/// The file systems of several machines, by their numbers in `statfs`: NFS, SMB, CIFS, SMB 2; AFS, kAFS, Ceph, 9P, Coda; OCFS2, GFS2,
/// Lustre, GPFS; BeeGFS, OrangeFS, PanFS, StorNext, ACFS, NCP; and what a virtual machine shares with its host by VirtualBox, VMware, Parallels.
#[cfg(target_os = "linux")]
const NETWORKS: &str = "6969 517b ff534d42 fe534d42 5346414f 6b414653 c36400 1021997 73757245 7461636f 1161970 bd00bd0 47504653 \
     19830326 20030528 aad7aaea beefdead 61636673 564c 786f4256 bacbacbc 7c7c6673";

impl Dir {
    /// Opens the directory, and makes it if needed.
    pub(crate) fn open(path: PathBuf) -> Result<Dir, BackendError> {
        // Whole: the process may work in another directory later. In parts: a slash at its end would lead through a link.
        let whole = std::path::absolute(&path).map(|path| path.components().collect::<PathBuf>());
        let opened = whole.and_then(|path| make(&path).map(|identity| Dir { path, identity }));
        opened.and_then(|dir| refuse_if_unfit(&dir).map(|()| dir)).map_err(|error| {
            let path = std::path::absolute(&path).unwrap_or(path);
            let what = format!("{} can't be a directory of locks", path.display());
            if NO_REPEAT_HELPS.contains(&error.kind()) {
                BackendError::new(BackendErrorKind::InvalidConfig, format!("{what}: {error}"))
            } else {
                failure(what, error)
            }
        })
    }
}

fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why.into())
}

/// Makes the directory if needed, and says which one it is.
///
/// Its states: absent → `MODE_AT_FIRST` (mkdir) → `MODE` (chmod, by the same process). A process that is killed in between leaves a directory
/// for this user alone. No call goes to the name again once the directory is open.
fn make(path: &Path) -> io::Result<(u64, u64)> {
    let above = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    // By its name, and where the links in it lead.
    for dir in above.canonicalize()?.ancestors().chain(above.ancestors()) {
        refuse_if_others_rename(dir, &fs::metadata(dir)?)?;
    }
    let is_new = match DirBuilder::new().mode(MODE_AT_FIRST).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        made => made.map(|()| true)?,
    };
    let (found, itself, _open) = itself(path)?;
    if !found.is_dir() {
        return Err(refused("it is a link or a file: name a directory itself"));
    }
    if is_new {
        if found.uid() != geteuid().as_raw() || found.mode() & 0o1777 != MODE_AT_FIRST {
            return Err(refused("another one was put in its place as it was made"));
        }
        set_mode(&itself, MODE)?;
    } else {
        refuse_if_others_rename(path, &found)?;
    }
    Ok(identity(&found))
}

/// A user who can rename a directory, or a file in it, can put another lock in place of a lock that is held.
fn refuse_if_others_rename(dir: &Path, found: &Metadata) -> io::Result<()> {
    let (dir, mode) = (dir.display(), found.mode() & 0o7777);
    let who = match mode & 0o1022 {
        0o002 | 0o022 => "all users",
        0o020 => "users of its group",
        _ => return Ok(()), // the sticky bit, or nobody else
    };
    Err(refused(format!("{who} can rename what is in {dir} (mode {mode:o}), but not after `chmod +t {dir}`")))
}

/// Where locks would not work.
fn refuse_if_unfit(dir: &Dir) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if is_network(rustix::fs::statfs(&dir.path)?.f_type as u32) {
        return Err(refused(
            "it is on a network, and may be of many machines: take a local one, or a server",
        ));
    }
    let length = dir.wake(&ClientId::random().to_string()).as_os_str().len();
    if length > SOCKET_PATH {
        return Err(refused(format!("its path is {} bytes too long for sockets", length - SOCKET_PATH)));
    }
    // A longer write would kill the process.
    let limit = getrlimit(Resource::Fsize).current.filter(|limit| *limit < LONGEST_FILE);
    let why =
        |limit| format!("a process may write {limit} bytes (ulimit -f), and a long queue has {LONGEST_FILE}");
    limit.map_or(Ok(()), |limit| Err(refused(why(limit))))
}

#[cfg(target_os = "linux")]
fn is_network(file_system: u32) -> bool {
    NETWORKS.split(' ').any(|network| network == format!("{file_system:x}"))
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use super::*;

    /// By the numbers of `linux/magic.h`. No test can mount a network.
    #[cfg(target_os = "linux")]
    #[test]
    fn file_systems_of_several_machines_are_networks() {
        let (nfs, beegfs, vboxsf) = (rustix::fs::NFS_SUPER_MAGIC as u32, 0x1983_0326, 0x786f_4256);
        let (ext4, tmpfs) = (0xef53, 0x0102_1994);
        assert_eq!([nfs, beegfs, vboxsf, ext4, tmpfs].map(is_network), [true, true, true, false, false]);
    }
}
