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
        let opened = whole.and_then(|path| {
            let identity = make(&path)?;
            let dir = Dir { path, identity };
            unfit(&dir)?.map_or(Ok(dir), |why| Err(refused(why)))
        });
        opened.map_err(|error| {
            let path = std::path::absolute(&path).unwrap_or(path);
            let what = match error.kind() {
                ErrorKind::InvalidInput => format!("{} can't be a directory of locks", path.display()),
                _ => format!("can't make the directory {}", path.display()),
            };
            match error.kind() {
                // No repeat helps.
                ErrorKind::InvalidInput
                | ErrorKind::NotFound
                | ErrorKind::NotADirectory
                | ErrorKind::AlreadyExists => {
                    BackendError::new(BackendErrorKind::InvalidConfig, format!("{what}: {error}"))
                }
                _ => failure(what, error),
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
    if found.is_symlink() {
        return Err(refused("it is a link: name the directory itself"));
    } else if !found.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
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

/// Whoever renames a directory, or a file in it, puts another lock in place of one that is held.
fn refuse_if_others_rename(dir: &Path, found: &Metadata) -> io::Result<()> {
    let mode = found.mode() & 0o7777;
    if mode & 0o022 == 0 || mode & 0o1000 != 0 {
        return Ok(());
    }
    let (dir, who) = (dir.display(), if mode & 0o002 == 0 { "users of its group" } else { "all users" });
    Err(refused(format!(
        "{who} can rename what is in {dir} (mode {mode:o}), as nobody can after `chmod +t {dir}`"
    )))
}

/// Why locks would not work here.
fn unfit(dir: &Dir) -> io::Result<Option<String>> {
    let length = dir.wake(&ClientId::random().to_string()).as_os_str().len();
    let limit = getrlimit(Resource::Fsize).current.filter(|limit| *limit < LONGEST_FILE);
    Ok(if is_network(&dir.path)? {
        Some(
            "it is on a network, and locks on files are for one machine; take a local directory, or a server"
                .into(),
        )
    } else if length > SOCKET_PATH {
        Some(format!("its path is {} bytes too long for sockets", length - SOCKET_PATH))
    } else {
        // A longer write would kill the process.
        limit.map(|limit| format!("this process may write {limit} bytes to a file, and a long queue needs {LONGEST_FILE} (ulimit -f)"))
    })
}

#[cfg(target_os = "linux")]
fn is_network(path: &Path) -> io::Result<bool> {
    let number = format!("{:x}", rustix::fs::statfs(path)?.f_type as u32);
    Ok(NETWORKS.split(' ').any(|network| network == number))
}

#[cfg(not(target_os = "linux"))]
fn is_network(_: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the numbers of `linux/magic.h`. No test can mount a network.
    #[cfg(target_os = "linux")]
    #[test]
    fn file_systems_of_several_machines_are_networks() {
        let nfs = format!("{:x}", rustix::fs::NFS_SUPER_MAGIC);
        let [ext4, tmpfs, beegfs, vboxsf] = ["ef53", "1021994", "19830326", "786f4256"];
        assert_eq!(
            [&*nfs, ext4, tmpfs, beegfs, vboxsf].map(|it| NETWORKS.split(' ').any(|network| network == it)),
            [true, false, false, true, true]
        );
        assert!(!is_network(Path::new("/proc")).unwrap());
    }
}
