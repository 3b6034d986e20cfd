//! The directory, and the names of its files.

use std::fmt::Write;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_core::{ClientId, LockName};
use rustix::fs::OFlags;

use crate::failure::failure;

/// Users of the directory's group share it, and only the owner of a file removes it.
const DIR_MODE: u32 = 0o3770;
/// Users of the group write the files of each other.
const FILE_MODE: u32 = 0o660;
/// The longest path of a socket, on all systems.
const SOCKET_PATH: usize = 103;
/// The longest escaped name of a lock that is a file's name as a whole.
const LONGEST_NAME: usize = 200;

/// The file systems of several machines, by their numbers in `statfs`: NFS, SMB, CIFS, SMB 2; AFS, kAFS, Ceph, 9P, Coda; OCFS2, GFS2,
/// Lustre, GPFS.
#[cfg(target_os = "linux")]
const NETWORKS: &str =
    "6969 517b ff534d42 fe534d42 5346414f 6b414653 c36400 1021997 73757245 7461636f 1161970 bd00bd0 47504653";

/// A directory of locks. It is the one that was opened, or all calls fail: another one of its name has other locks.
#[derive(Debug)]
pub(crate) struct Dir {
    pub(crate) path: PathBuf,
    identity: (u64, u64),
}

impl Dir {
    /// Opens the directory, and makes it if needed.
    pub(crate) fn open(path: PathBuf) -> Result<Dir, BackendError> {
        let invalid = |what: String| BackendError::new(BackendErrorKind::InvalidConfig, what);
        let failed = |error: io::Error| {
            let what = format!("can't make the directory {}", path.display());
            match error.kind() {
                // No repeat helps.
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                    invalid(format!("{what}: {error}"))
                }
                _ => failure(what, error),
            }
        };
        let path = std::path::absolute(&path).map_err(failed)?; // the process may work in another directory later
        match fs::create_dir_all(path.parent().unwrap_or(&path)).and_then(|()| fs::create_dir(&path)) {
            Ok(()) => fs::set_permissions(&path, Permissions::from_mode(DIR_MODE)).map_err(failed)?,
            Err(_) if path.is_dir() => {}
            Err(error) => return Err(failed(error)),
        }
        let dir = Dir { identity: identity_of(&path).map_err(failed)?, path: path.clone() };
        let length = dir.wake(&ClientId::random().to_string()).as_os_str().len();
        let why = if is_network(&path).map_err(failed)? {
            "it is on a network, and locks on files are for one machine; take a local directory, or a server"
                .into()
        } else if length > SOCKET_PATH {
            format!("its path is {} bytes too long for sockets", length - SOCKET_PATH)
        } else {
            return Ok(dir);
        };
        Err(invalid(format!("{} can't be a directory of locks: {why}", path.display())))
    }

    /// Fails if the directory was removed, even if there is a new one.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        let path = self.path.display();
        match identity_of(&self.path) {
            Ok(found) if found == self.identity => Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failure(format_args!("can't look at the directory {path}"), error))
            }
            _ => {
                let message =
                    format!("the directory {path} was removed, and all locks with it: open it again");
                Err(BackendError::new(BackendErrorKind::Refused, message))
            }
        }
    }

    /// The file of a lock: its name, with escapes; of a long name the beginning and a hash.
    pub(crate) fn lock(&self, lock: &LockName) -> PathBuf {
        let mut escaped = String::new();
        for byte in lock.as_str().bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => escaped.push(char::from(byte)),
                _ => _ = write!(escaped, "%{byte:02x}"),
            }
        }
        if escaped.len() > LONGEST_NAME {
            escaped.truncate(LONGEST_NAME);
            _ = write!(escaped, "~{:016x}", hash(lock.as_str().as_bytes()));
        }
        self.path.join(format!("{escaped}.lock"))
    }

    /// Which lock has this file; none if only the file can tell, as where the name is long.
    pub(crate) fn lock_of(&self, path: &Path) -> Option<LockName> {
        let mut parts = path.file_stem()?.to_str()?.split('%');
        let mut name = parts.next()?.as_bytes().to_vec();
        for part in parts {
            let (escaped, rest) = part.split_at_checked(2)?;
            name.push(u8::from_str_radix(escaped, 16).ok()?);
            name.extend(rest.bytes());
        }
        let name = LockName::new(str::from_utf8(&name).ok()?).ok()?;
        Some(name).filter(|name| self.lock(name) == path)
    }

    /// The presence file of a client.
    pub(crate) fn here(&self, client: &str) -> PathBuf {
        self.path.join(format!("{client}.here"))
    }

    /// Where the client listens.
    pub(crate) fn wake(&self, client: &str) -> PathBuf {
        self.path.join(format!("{client}.wake"))
    }

    /// A new file that users of the group write, under a name of its own. It gets its real name when it is complete.
    pub(crate) fn new_file(&self) -> io::Result<(PathBuf, File)> {
        let path = self.path.join(format!("{}.new", ClientId::random()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        file.set_permissions(Permissions::from_mode(FILE_MODE))?; // not of a link that another user has put there
        Ok((path, file))
    }
}

/// Lets users of the group write the file, or send to the socket.
pub(crate) fn share(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(FILE_MODE))
}

/// Opens a file that is there. Follows no link, which another user may have put there, and waits for no end of a pipe.
pub(crate) fn open(path: &Path, writes: bool) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    File::options().read(true).write(writes).custom_flags(flags.bits() as i32).open(path)
}

/// Which file or directory has this name now.
pub(crate) fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|found| identity(&found))
}

/// Tells the files of a machine apart, as long as they are open.
pub(crate) fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
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

/// FNV-1a: quick for short texts, and the same in each process.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the numbers of `linux/magic.h`. No test can mount a network.
    #[cfg(target_os = "linux")]
    #[test]
    fn file_systems_of_several_machines_are_networks() {
        let nfs = format!("{:x}", rustix::fs::NFS_SUPER_MAGIC);
        let [ext4, tmpfs] = ["ef53", "1021994"];
        assert_eq!(
            [&*nfs, ext4, tmpfs].map(|it| NETWORKS.split(' ').any(|network| network == it)),
            [true, false, false]
        );
        assert!(!is_network(Path::new("/proc")).unwrap());
    }
}
