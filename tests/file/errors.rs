//! What a process is told that may not use a directory, or for which there is no room: by real users and file systems.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::{Locks, PROGRAM};

/// What a worker says that tries the lock `x`, started by these words.
fn says(locks: &Locks, starter: &[&str]) -> String {
    let (program, words) = starter.split_first().unwrap();
    let try_it = format!("echo go | '{PROGRAM}' try file '{}' x 100 2>&1", locks.dir().display());
    let output = Command::new(program)
        .args(words)
        .args(["sh", "-c", &try_it])
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A user that has no rights here, with this group.
fn as_nobody(group: &str) -> [String; 4] {
    ["setpriv", "--reuid=65534", &format!("--regid={group}"), "--clear-groups"].map(str::to_owned)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Without the rights of root nobody can be another user: then the rights are taken away from oneself.
#[test]
fn a_lock_of_another_user_is_denied_in_words() {
    let locks = Locks::new();
    let client = locks.client();
    client.fair_lock("x").unwrap().lock().unwrap().unlock().unwrap();
    fs::set_permissions(locks.0.path(), Permissions::from_mode(0o755)).unwrap();
    let file = locks.dir().join("x.lock");
    let others = as_nobody("65534");
    let others: Vec<&str> = if is_root() { others.iter().map(String::as_str).collect() } else { vec!["env"] };
    fs::set_permissions(&file, Permissions::from_mode(if is_root() { 0o600 } else { 0 })).unwrap();
    fs::set_permissions(locks.dir(), Permissions::from_mode(0o1777)).unwrap();
    let said = says(&locks, &others);
    let user = rustix::process::geteuid().as_raw();
    assert!(said.contains(&format!("the file {} of user {user} for lock `x`", file.display())), "{said}");
    assert!(said.contains("denies access"), "{said}");
    fs::set_permissions(locks.dir(), Permissions::from_mode(0o700)).unwrap();
    if is_root() {
        let said = says(&locks, &others);
        for what in ["can't make the files of a client", "Permission denied", "mode 700", "-m 3770 -g GROUP"]
        {
            assert!(said.contains(what), "{what}: {said}");
        }
    }
}

/// Who makes the directory, and another user of its group.
#[test]
fn users_of_one_group_share_a_directory() {
    let locks = Locks::new();
    let lock = locks.client().fair_lock("x").unwrap();
    let group = rustix::process::getegid().as_raw().to_string();
    fs::set_permissions(locks.0.path(), Permissions::from_mode(0o755)).unwrap();
    let others = as_nobody(&group);
    let others: Vec<&str> = if is_root() { others.iter().map(String::as_str).collect() } else { vec!["env"] };
    let guard = lock.lock().unwrap();
    assert_eq!(says(&locks, &others), "ready\nno lock\n");
    guard.unlock().unwrap();
    assert_eq!(says(&locks, &others), "ready\ngot\n");
    lock.lock().unwrap().unlock().unwrap();
    let mode = fs::metadata(locks.dir()).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o3770, "{mode:o}");
}

/// On a file system of its own, which only the worker sees.
#[test]
fn a_full_and_a_read_only_directory_say_so() {
    let locks = Locks::new();
    fs::create_dir(locks.dir()).unwrap();
    for (then, cause, says_so) in [
        ("head -c 1000000 /dev/zero >\"$0/full\"", "No space left on device", "make room"),
        ("mount -o remount,ro \"$0\"", "Read-only file system", "denies access"),
    ] {
        let script =
            format!("mount -t tmpfs -o size=64k none \"$0\" && {{ {then}; exec \"$@\"; }} 2>/dev/null");
        let dir = locks.dir();
        let said = says(&locks, &["unshare", "-rm", "sh", "-c", &script, dir.to_str().unwrap()]);
        assert!(said.contains(cause) && said.contains("can't make"), "{said}");
        assert!(said.contains(says_so), "{said}");
    }
}

/// A process with another clock, and one that the system would kill for a long write.
#[test]
fn a_process_that_can_keep_no_lock_is_told_why() {
    let locks = Locks::new();
    let limited = ["sh", "-c", "ulimit -f 1; exec \"$@\"", "sh"];
    let said = says(&locks, &limited);
    assert!(said.contains("(ulimit -f)"), "{said}");
    let apart = ["unshare", "-r", "--time", "--monotonic", "1000", "--fork"];
    let said = says(&locks, &apart);
    assert!(said.contains("is in a time namespace"), "{said}");
}
