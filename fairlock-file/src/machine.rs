//! What the processes of a machine share: a directory, with the names and modes of its files; which clients live; a clock, and the boot; and
//! what an error of the system is called.
//!
//! Each client has a file with the number of its process, which the process locks as long as it lives. The system frees the lock however the
//! process ends. Only a file that nobody locks says that a client is gone. One that is not there says nothing: the client may have ended well.
//! A child that is forked without an `exec` has the lock too, and its parent then counts as alive until the leases end.

use std::fmt::{Display, Write as _};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_core::{ClientId, LockName};
use fairlock_rules::{DecodeError, Moment, Presence};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawMode};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::time::{ClockId, clock_gettime};

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
    identity: (u64, u64),
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
fn set_mode(itself: &Path, mode: u32) -> io::Result<()> {
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

/// Whether this file still has this name.
pub(crate) fn is_at(path: &Path, identity: (u64, u64)) -> io::Result<bool> {
    match identity_of(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        found => Ok(found? == identity),
    }
}

/// Which file or directory has this name now.
fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| identity(&found))
}

/// Tells the files of a machine apart, as long as they are open.
pub(crate) fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// FNV-1a: quick for short texts, and the same in each process.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// No number of a process has more digits; any user of the directory's group may write more into the file.
const LONGEST_NUMBER: u64 = 20;

/// Makes the presence file of a client, which lives as long as the file is open. The file is locked before it gets its name:
/// nobody finds it free.
pub(crate) fn take_presence(dir: &Dir, client: &str) -> io::Result<File> {
    let (new, mut file) = dir.new_file()?;
    let locked = file.try_lock().map_err(io::Error::from);
    let named = locked
        .and_then(|()| write!(file, "{}", std::process::id()))
        .and_then(|()| fs::rename(&new, dir.here(client)));
    named.inspect_err(|_| _ = fs::remove_file(&new)).map(|()| file)
}

/// Whether the process of the client lives; none if nobody can know.
pub(crate) fn lives(dir: &Dir, client: &str) -> Option<bool> {
    presence_file(dir, client).map(|file| !is_free(&file))
}

/// As the rules ask for it.
pub(crate) fn presence_of(dir: &Dir, client: &str) -> Presence {
    if lives(dir, client) == Some(false) { Presence::Gone } else { Presence::Present }
}

/// The file of a client. None also for owners whose names are no file's.
fn presence_file(dir: &Dir, client: &str) -> Option<File> {
    if is_client(client) { open(&dir.here(client), false).ok() } else { None }
}

/// Whether nobody has this presence file locked. The shared lock that finds this out ends with the file, and hinders no other look.
pub(crate) fn is_free(file: &File) -> bool {
    file.try_lock_shared().is_ok()
}

/// The number of the client's process, and the file that says so.
pub(crate) fn process_of(dir: &Dir, client: &str) -> Option<(i32, File)> {
    let file = presence_file(dir, client)?;
    let mut number = String::new();
    (&file).take(LONGEST_NUMBER).read_to_string(&mut number).ok()?;
    Some((number.parse().ok()?, file))
}

/// The longest wait for a file: a process may stand still in a step.
pub(crate) const BOUND: Duration = Duration::from_secs(1);

/// The machine, as a backend sees it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) boot: u128,
    /// The longest wait for a file.
    pub(crate) bound: Duration,
    /// In tests: the time in microseconds, which only a test moves.
    #[cfg(test)]
    pub(crate) moved: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
}

impl Machine {
    pub(crate) fn of_boot(boot: u128) -> Machine {
        Machine {
            boot,
            bound: BOUND,
            #[cfg(test)]
            moved: None,
        }
    }

    /// The time of a step, since some moment of this boot. No user can set this clock, and holders measure their leases by it too: while
    /// the machine sleeps, both stand still.
    pub(crate) fn now(&self) -> Moment {
        #[cfg(test)]
        if let Some(moved) = &self.moved {
            return Duration::from_micros(moved.load(std::sync::atomic::Ordering::SeqCst));
        }
        since(ClockId::Monotonic)
    }

    /// The wall clock, which is for periods alone.
    pub(crate) fn since_1970(&self) -> Moment {
        #[cfg(test)]
        if self.moved.is_some() {
            return self.now();
        }
        since_1970()
    }
}

fn since(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// When this boot began, by the wall clock as it is set now.
pub(crate) fn began() -> SystemTime {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime; // which goes on while the machine sleeps
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    SystemTime::now().checked_sub(since(clock)).unwrap_or(UNIX_EPOCH)
}

/// The identity of this boot. An error if it can't be read: else this process would take all holds of others for those of another boot.
/// Other systems than Linux tell theirs through C libraries only: there it is always 0, and what an earlier boot left is over as its
/// processes are, but for a kept lock.
pub(crate) fn boot() -> Result<u128, BackendError> {
    // Other systems, and kernels without time namespaces, have no such file.
    if fs::read_to_string("/proc/self/timens_offsets").is_ok_and(|offsets| is_apart(&offsets)) {
        let message = "this process is in a time namespace: by its clock it can share no locks on files";
        return Err(BackendError::new(BackendErrorKind::InvalidConfig, message));
    }
    if cfg!(target_os = "linux") { boot_in(Path::new("/proc/sys/kernel/random/boot_id")) } else { Ok(0) }
}

/// Whether the monotonic clock of a time namespace with these offsets differs from that of the machine.
fn is_apart(offsets: &str) -> bool {
    let monotonic = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
    monotonic.is_some_and(|offset| offset.split_whitespace().any(|number| number != "0"))
}

fn boot_in(path: &Path) -> Result<u128, BackendError> {
    let id = fs::read_to_string(path)
        .and_then(|id| u128::from_str_radix(&id.trim().replace('-', ""), 16).map_err(io::Error::other));
    id.map_err(|error| failure(format_args!("can't tell this boot from others by {}", path.display()), error))
}

/// Where the tokens of a new lock begin: past those of any former lock of its name, if the wall clock is right.
pub(crate) fn first_number() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The error of a call that did not do this, or of a file that can't be read.
pub(crate) fn failure(what: impl Display, error: io::Error) -> BackendError {
    use BackendErrorKind::{Corrupt, Denied, Refused, Unavailable};
    let unreadable = error.get_ref().and_then(|source| source.downcast_ref::<DecodeError>());
    let (kind, cure) = match (error.kind(), Errno::from_io_error(&error), unreadable) {
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, ..) => {
            (Refused, ": make room, or use another directory")
        }
        (ErrorKind::FileTooLarge, ..) => (Refused, ""),
        (ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem, ..) => (Denied, ""),
        // A directory, a link, a socket or a pipe has the name of the file.
        (_, Some(Errno::ISDIR | Errno::LOOP | Errno::NXIO | Errno::SPIPE), _) => (Corrupt, ""),
        (.., Some(newer @ DecodeError::Newer { .. })) => return (*newer).into(),
        (.., Some(_)) => (Corrupt, ", or it is another program's: remove it if nobody uses it"),
        _ => (Unavailable, ""),
    };
    BackendError::new(kind, format!("{what}: {error}{cure}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_boot_that_cannot_be_told_is_an_error() {
        for path in ["/proc/sys/kernel/random/no_boot_id", "/proc/version"] {
            let error = boot_in(Path::new(path)).unwrap_err();
            assert!(error.message().contains(path), "{error}");
        }
        assert!(boot().unwrap() > 0);
    }

    #[test]
    fn a_time_namespace_is_told_by_its_monotonic_clock() {
        let offsets = |seconds, nanos| format!("monotonic  {seconds}  {nanos}\nboottime  7  0\n");
        let offsets = [offsets(0, 0), offsets(-3, 0), offsets(0, 5), String::new()];
        assert_eq!(offsets.map(|offsets| is_apart(&offsets)), [false, true, true, false]);
    }

    /// By the numbers of `linux/magic.h`. No test can mount a network.
    #[cfg(target_os = "linux")]
    #[test]
    fn file_systems_of_several_machines_are_networks() {
        let (nfs, beegfs, vboxsf) = (rustix::fs::NFS_SUPER_MAGIC as u32, 0x1983_0326, 0x786f_4256);
        let (ext4, tmpfs) = (0xef53, 0x0102_1994);
        assert_eq!([nfs, beegfs, vboxsf, ext4, tmpfs].map(is_network), [true, true, true, false, false]);
    }
}
