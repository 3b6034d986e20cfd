//! The directory, and the names of its files.

use std::fmt::Write;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_core::{ClientId, LockName};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawMode};
use rustix::process::geteuid;

use crate::failure::failure;

/// Users of the group write the files of each other. The sticky bit of a file keeps systemd-tmpfiles from removing an old one.
pub(crate) const FILE_MODE: u32 = if cfg!(target_os = "linux") { 0o1660 } else { 0o660 };
/// The longest escaped name of a lock that is a file's name as a whole.
const LONGEST_NAME: usize = 200;

/// A directory of locks. It is the one that was opened, or all calls fail: another one of its name has other locks.
#[derive(Debug)]
pub(crate) struct Dir {
    pub(crate) path: PathBuf,
    pub(crate) identity: (u64, u64),
}

impl Dir {
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
                Err(BackendError::new(BackendErrorKind::InvalidConfig, message)) // no repeat helps
            }
        }
    }

    /// The error of a call here. For one that this user may not do it says whose the directory is, and how users share one.
    pub(crate) fn explained(&self, error: io::Error) -> io::Error {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if error.kind() == ErrorKind::PermissionDenied => {
                let (path, whose) = (self.path.display(), whose(&found));
                let cure = format!("several users need `install -d -m 3770 -g GROUP {path}`");
                io::Error::new(error.kind(), format!("{error}: the directory {path} is {whose}; {cure}"))
            }
            _ => error,
        }
    }

    /// Whether it was certainly removed. The system may as well not say.
    pub(crate) fn was_removed(&self) -> bool {
        self.check().is_err_and(|error| error.kind() == BackendErrorKind::InvalidConfig)
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

/// Whether `new_file` made the file: not another program, whose file may have got a second name here from another user.
pub(crate) fn is_of_new_file(found: &Metadata) -> bool {
    found.mode() & 0o7777 == FILE_MODE && found.nlink() == 1
}

/// Lets users of the group send to this socket of ours.
pub(crate) fn share(socket: &Path) -> io::Result<()> {
    let (found, itself, _open) = itself(socket)?;
    // Not that of another program, which another user has put there by a rename or a second name.
    let is_ours = found.file_type().is_socket() && found.uid() == geteuid().as_raw() && found.nlink() == 1;
    if is_ours { set_mode(&itself, FILE_MODE) } else { Err(io::Error::other("something else has its name")) }
}

/// What has this name, which may be a link; and a path that leads to that very file as long as it is open, whatever becomes of the name.
#[cfg(target_os = "linux")]
pub(crate) fn itself(path: &Path) -> io::Result<(Metadata, PathBuf, File)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path)?;
    Ok((file.metadata()?, format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)).into(), file))
}

/// Other systems have no such paths: there `set_mode` follows no link.
#[cfg(not(target_os = "linux"))]
pub(crate) fn itself(path: &Path) -> io::Result<(Metadata, PathBuf, ())> {
    Ok((fs::symlink_metadata(path)?, path.to_owned(), ()))
}

/// For a path of `itself`: a name may lead elsewhere by now.
pub(crate) fn set_mode(itself: &Path, mode: u32) -> io::Result<()> {
    let flags = if cfg!(target_os = "linux") { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    Ok(rustix::fs::chmodat(CWD, itself, Mode::from(mode as RawMode), flags)?)
}

/// Whether this is the identity of a client, as the names of our files have it. An owner in a file may be anything, paths too.
pub(crate) fn is_client(name: &str) -> bool {
    name.len() == 36 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

/// Opens a file that is there. Follows no link, which another user may have put there, and waits for no end of a pipe.
pub(crate) fn open(path: &Path, writes: bool) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    File::options().read(true).write(writes).custom_flags(flags.bits() as i32).open(path)
}

/// Who may use a file or directory.
pub(crate) fn whose(found: &Metadata) -> String {
    format!("of user {}, group {}, mode {:o}", found.uid(), found.gid(), found.mode() & 0o7777)
}

/// Which file or directory has this name now.
pub(crate) fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| identity(&found))
}

/// Tells the files of a machine apart, as long as they are open.
pub(crate) fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// FNV-1a: quick for short texts, and the same in each process.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
