//! The directory: which directories locks can be in, how one is made, and the names of its files.

use std::fmt::Write;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_core::{ClientId, LockName};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawMode};
use rustix::process::{Resource, geteuid, getrlimit};

use crate::failure::failure;

/// Users of the directory's group share it, and only the owner of a file removes it.
const MODE: u32 = 0o3770;
/// The mode of a directory that is being made. No other directory of this user has this mode: so a chmod reaches no directory that another
/// user has put in its place.
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

/// Users of the group write the files of each other. The sticky bit of a file keeps systemd-tmpfiles from removing an old one.
pub(crate) const FILE_MODE: u32 = if cfg!(target_os = "linux") { 0o1660 } else { 0o660 };
/// The longest escaped name of a lock that is a file's name as a whole.
const LONGEST_NAME: usize = 200;

/// A directory of locks. If another directory has its name by now, all calls fail: the locks in there are others.
#[derive(Debug)]
pub(crate) struct Dir {
    pub(crate) path: PathBuf,
    pub(crate) identity: (u64, u64),
}

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

    /// The error of a call in this directory. A denied user reads whose the directory is, and how users share a directory.
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

    /// Whether the directory was certainly removed. A look that fails does not tell.
    pub(crate) fn was_removed(&self) -> bool {
        self.check().is_err_and(|error| error.kind() == BackendErrorKind::InvalidConfig)
    }

    /// The file of a lock: the lock's name, with escapes; of a long name the beginning and a hash.
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

    /// Removes the first name of a file that has its real name, too: the maker ended, or the machine stopped, between the two calls.
    pub(crate) fn remove_first_name(&self, identity: (u64, u64)) {
        let paths = fs::read_dir(&self.path).into_iter().flatten().flatten().map(|found| found.path());
        let is_it = |path: &PathBuf| {
            path.extension() == Some("new".as_ref()) && identity_of(path).is_ok_and(|found| found == identity)
        };
        paths.filter(is_it).for_each(|path| _ = fs::remove_file(path));
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

/// The file that has this name, which may be a link; and a path that leads to that very file as long as the file is open, whatever becomes of
/// the name.
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

/// Whether nobody has written the file for so long.
pub(crate) fn is_older(found: &Metadata, age: Duration) -> bool {
    let since = found.modified().ok().and_then(|written| written.elapsed().ok());
    since.is_some_and(|since| since > age)
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
