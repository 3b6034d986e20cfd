//! The directory of a user's locks on this machine, where the settings name none.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::getuid;

/// One directory for all processes of a user, however each was started. So it depends on nothing but the user: not on `XDG_RUNTIME_DIR`, nor
/// on `/run/user/UID`, which a job of cron does not have before the user logs in, and which goes with the session.
pub(super) fn own_dir() -> PathBuf {
    match getuid() {
        root if root.is_root() => "/run/fairlock".into(),
        user => format!("/tmp/fairlock-{user}").into(),
    }
}

/// Fails if other processes of this user have another directory of that name.
pub(crate) fn check_that_all_see(dir: &Path) -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let above = dir.parent().unwrap_or(dir);
    let above = above.canonicalize().unwrap_or_else(|_| above.into());
    let seen_by = |process: &str| {
        let path = format!("/proc/{process}/mountinfo");
        fs::read_to_string(&path)
            .map(|mounts| mount_of(&mounts, &above))
            .map_err(|error| format!("{path}: {error}"))
    };
    let shown = above.display();
    match (seen_by("self"), seen_by("1")) {
        (Ok(ours), Ok(of_first)) if ours.is_some() && ours == of_first => Ok(()),
        (Ok(_), Ok(_)) => {
            Err(format!("{shown} is another directory here than for process 1, as with PrivateTmp"))
        }
        (Err(error), _) | (_, Err(error)) => {
            Err(format!("can't tell whether other processes have another {shown} ({error})"))
        }
    }
}

/// Where this directory is, by a process's `mountinfo`: the device, and the path there.
fn mount_of(mounts: &str, dir: &Path) -> Option<(String, PathBuf)> {
    let parts = mounts.lines().filter_map(|line| {
        let mut parts = line.split(' ').skip(2);
        let (device, root, point) = (parts.next()?, parts.next()?, parts.next()?);
        Some((point.len(), device, Path::new(root).join(dir.strip_prefix(point).ok()?)))
    });
    // The nearest one above; of two at one point the later hides the other.
    parts.max_by_key(|(length, ..)| *length).map(|(_, device, path)| (device.to_owned(), path))
}

/// Fails if another user was faster, as anybody can be in /tmp.
pub(crate) fn check_owner(dir: &Path) -> Result<(), String> {
    match fs::symlink_metadata(dir) {
        Ok(found) if found.uid() == getuid().as_raw() => Ok(()),
        Ok(found) => Err(format!("{} belongs to another user ({})", dir.display(), found.uid())),
        Err(error) => Err(format!("can't look at {}: {error}", dir.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_above_a_directory_is_its_own() {
        let usual = "27 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n22 27 0:21 / /proc rw - proc proc rw\n";
        let itself = "31 27 254:0 /tmp /tmp rw - ext4 /dev/vda rw\n";
        let private = "31 27 254:0 /tmp/systemd-private-1/tmp /tmp rw - ext4 /dev/vda rw\n";
        let memory = "33 27 0:40 / /tmp rw - tmpfs tmpfs rw\n";
        let of = |more: &[&str]| mount_of(&(usual.to_owned() + &more.concat()), Path::new("/tmp")).unwrap();
        assert_eq!(of(&[]), ("254:0".to_owned(), "/tmp".into()));
        assert_eq!(of(&[itself]), of(&[]));
        assert_ne!(of(&[private]), of(&[]));
        assert_ne!(of(&[memory]), of(&[]));
        assert_eq!(of(&[itself, memory]), of(&[memory]));
        assert!(mount_of("", Path::new("/tmp")).is_none());
    }
}
