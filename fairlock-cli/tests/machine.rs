//! The command without a server: its locks are those of this machine.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use fairlock_tests::{WorkDir, eventually};
use serde_json::Value;

use crate::support::{
    FAIRLOCK, Running, Said, arguments, only_row, process_in, script, send, wait_until_dead, words,
};

/// A directory that stands for that of the user's session. It has to be short: sockets are made in it.
struct Session(WorkDir);

impl Session {
    fn new() -> Session {
        Session(WorkDir::new())
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("fairlock")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        crate::support::children_hear_signals();
        let mut command = Command::new(FAIRLOCK);
        for name in ["FAIRLOCK_REDIS", "FAIRLOCK_POSTGRES"] {
            command.env_remove(name);
        }
        command.env("FAIRLOCK_DIR", self.dir()).args(arguments).stdin(Stdio::null());
        command
    }

    fn says(&self, arguments: &str) -> Said {
        Running::start(self.command(&words(arguments))).output()
    }

    fn json(&self, arguments: &str) -> Value {
        self.says(arguments).json()
    }

    /// A script under the lock, which has begun. With its process.
    fn holds(&self, options: &str, then: &str) -> (Running, u32) {
        let pid = self.0.file(&format!("pid-{}", options.replace([' ', '-'], "")));
        let running = Running::start(self.command(&arguments(&words(options), &script(&pid, then))));
        (running, process_in(&pid))
    }
}

const FOR_LONG: &str = "exec sleep 1000";

/// Another process has the file of one lock.
#[test]
fn a_stuck_file_hides_no_waiter_of_another_lock() {
    let session = Session::new();
    session.says("run stuck -- true").gave(0);
    let stuck = fs::File::open(session.dir().join("stuck.lock")).unwrap();
    stuck.lock().unwrap();
    let (_holder, _) = session.holds("orders", FOR_LONG);
    let _waiter = Running::start(session.command(&["run", "orders", "--", "true"]));
    eventually("it waits", || session.json("show orders --json")["waiting"] == 1);
    let shown = session.says("ls --blocked").gave(0).out;
    assert!(shown.contains("\n  1  ") && shown.contains("has the file of"), "{shown}");
}

#[test]
fn a_command_without_a_server_locks_on_this_machine() {
    let session = Session::new();
    let first_line = format!("on this machine, in {}\n", session.dir().display());
    session.says("ls").is(0, &format!("{first_line}no lock is held or waited for\n"), "");
    let (holder, _) = session.holds("orders", FOR_LONG);
    let shown = session.says("show orders").gave(0).out;
    assert!(shown.starts_with(&format!("{first_line}lock    orders\nholder  ")), "{shown}");
    let listed = session.says("ls").gave(0).out;
    assert_eq!(only_row(listed.strip_prefix(&first_line).unwrap())[0], "orders");
    assert_eq!(session.json("ls --json")[0]["name"], "orders");
    session.says("run -n orders -- true").failed(124, &["orders"]);
    session.says("run -n other -- true").is(0, "", "");

    let mut waiter = Running::start(session.command(&["run", "orders", "--", "echo", "my turn"]));
    eventually("it waits", || session.json("show orders --json")["waiting"] == 1);
    assert!(session.says("ls --blocked").gave(0).out.contains("  1  "));
    session.says("unlock orders --yes").gave(0);
    assert_eq!(waiter.output().gave(0).out, "my turn\n");
    drop(holder);
    let report = session.says("doctor").gave(0).out;
    assert!(report.starts_with(&first_line) && report.contains("good     trial"), "{report}");
}

#[test]
fn a_killed_holder_is_replaced_at_once() {
    let session = Session::new();
    let (holder, program) = session.holds("--lease 1d orders", FOR_LONG);
    let mut waiter = Running::start(session.command(&["run", "orders", "--", "true"]));
    eventually("it waits", || session.json("show orders --json")["waiting"] == 1);
    send("KILL", holder.0.id());
    assert_eq!(waiter.status().code(), Some(0));
    wait_until_dead(program);
}

/// A process stands still in a step, for longer than a server may be away. Only the system's clock counts that time.
#[cfg(feature = "night")]
#[test]
fn a_wait_outlasts_a_process_that_stands_still_in_a_step() {
    let session = Session::new();
    let (holder, _) = session.holds("orders", FOR_LONG);
    let mut waiter = Running::start(session.command(&["run", "orders", "--", "true"]));
    eventually("it waits", || session.json("show orders --json")["waiting"] == 1);
    let stuck = std::fs::File::open(session.dir().join("orders.lock")).unwrap();
    stuck.lock().unwrap();
    let began = std::time::Instant::now();
    session.says("run -n orders -- true").failed(122, &["has the file of"]);
    session.says("run -w 1s orders -- true").failed(122, &["has the file of"]);
    let listed = session.says("ls").gave(0).out;
    assert!(listed.contains(&format!("process {} has the file of", std::process::id())), "{listed}");
    while began.elapsed().as_secs() < 16 {
        assert!(waiter.0.try_wait().unwrap().is_none(), "it waits no more");
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    stuck.unlock().unwrap();
    drop(holder);
    assert_eq!(waiter.status().code(), Some(0));
}

/// The minder ends the program of a killed command, and keeps the lock until then.
#[test]
fn the_program_of_a_killed_command_runs_beside_no_other() {
    let session = Session::new();
    let ignores_term = "trap '' TERM; while :; do sleep 0.05; done";
    let (holder, program) = session.holds("--lease 1d --kill-after 1s orders", ignores_term);
    let runs = format!("[ -d /proc/{program} ] && ! grep -q 'State:.Z' /proc/{program}/status");
    let looks = format!("if {runs}; then echo beside the other; else echo alone; fi");
    let mut waiter = Running::start(session.command(&arguments(&["orders"], &looks)));
    eventually("it waits", || session.json("show orders --json")["waiting"] == 1);
    send("KILL", holder.0.id());
    assert_eq!(waiter.output().gave(0).out, "alone\n");
}

#[test]
fn what_is_for_a_server_is_refused_without_one() {
    let session = Session::new();
    let redis = "is for Redis: give --redis, or FAIRLOCK_REDIS\n";
    for (arguments, set, says) in [
        ("ls --durable", None, format!("--durable {redis}")),
        ("ls", Some(("FAIRLOCK_DISCIPLINE", "redisson")), format!("FAIRLOCK_DISCIPLINE {redis}")),
        ("doctor x", None, "NAME is for Redis: elsewhere the rights are the same for all locks\n".to_owned()),
        (
            "ls --connections 2",
            None,
            "--connections is for servers, and these locks are on this machine: give --redis or --postgres, or their variables\n"
                .to_owned(),
        ),
        (
            "ls --redis redis://127.0.0.1:1 --dir /tmp/x",
            None,
            "--redis and --dir name two places: give one of them\n".to_owned(),
        ),
    ] {
        let mut command = session.command(&words(arguments));
        command.envs(set);
        Running::start(command).output().is(125, "", &format!("fairlock: {says}"));
    }
}

/// At once: a command that waits for a server would go on trying.
#[test]
fn a_directory_that_cannot_be_made_is_a_mistake() {
    let session = Session::new();
    let file = session.0.file("a-file");
    std::fs::write(&file, "").unwrap();
    for dir in [PathBuf::from("/proc/fairlock"), file.clone(), file.join("below")] {
        let dir = dir.display().to_string();
        let mut command = session.command(&["run", "x", "--dir", &dir, "--outage-limit", "1d", "--", "true"]);
        command.env_remove("FAIRLOCK_DIR");
        let said = Running::start(command).output();
        said.failed(125, &["can't be a directory of locks", &dir]);
    }
}

/// A secret that was not set must not make each machine lock for itself.
#[test]
fn an_empty_address_of_a_server_is_a_mistake() {
    let session = Session::new();
    for name in ["FAIRLOCK_REDIS", "FAIRLOCK_POSTGRES"] {
        let mut command = session.command(&["ls"]);
        command.env_remove("FAIRLOCK_DIR").env(name, "");
        let says = "is empty: give the server's address, or unset it for the locks of this machine";
        Running::start(command).output().is(125, "", &format!("fairlock: {name} {says}\n"));
    }
}

/// A user of this test alone, whose directory goes with the test; none for who may not be another user. Then nothing is tested.
struct User(u32);

impl User {
    fn new() -> Option<User> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = 100_000_000 + std::process::id() * 8 + NEXT.fetch_add(1, Ordering::Relaxed);
        let user = nix::unistd::geteuid().is_root().then_some(User(number));
        if user.is_none() {
            let what = b"NOT TESTED: locks of another user, since only root can start one\n";
            std::io::stderr().write_all(what).unwrap();
        }
        user
    }

    fn dir(&self) -> PathBuf {
        format!("/tmp/fairlock-{}", self.0).into()
    }

    /// The command as this user, started by these words.
    fn command(&self, starter: &[&str], arguments: &[&str]) -> Command {
        crate::support::children_hear_signals();
        let user = self.0.to_string();
        let user = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
        let mut command = Command::new("env");
        for name in ["FAIRLOCK_REDIS", "FAIRLOCK_POSTGRES", "FAIRLOCK_DIR", "XDG_RUNTIME_DIR"] {
            command.env_remove(name);
        }
        command.args(starter).args(user).arg(FAIRLOCK).args(arguments).stdin(Stdio::null());
        command
    }

    fn says(&self, starter: &[&str], arguments: &str) -> Said {
        Running::start(self.command(starter, &words(arguments))).output()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        _ = fs::remove_file(self.dir());
        _ = fs::remove_dir_all(self.dir());
    }
}

/// As a job of cron runs before the user logs in, and another one while a session is there.
#[test]
fn a_users_locks_are_in_one_place_whatever_the_session() {
    let Some(user) = User::new() else { return };
    let session = Session::new();
    fs::set_permissions(session.0.path(), Permissions::from_mode(0o777)).unwrap();
    let pid = session.0.file("pid");
    let mut holder = Running::start(user.command(&[], &arguments(&["orders"], &script(&pid, FOR_LONG))));
    process_in(&pid);
    let of_session = format!("/run/user/{}", user.0);
    fs::create_dir(&of_session).unwrap();
    chown(&of_session, Some(user.0), None).unwrap();
    let now = user.says(&[], "run -n orders -- true");
    fs::remove_dir_all(&of_session).unwrap();
    now.failed(124, &["orders"]);
    let other = format!("XDG_RUNTIME_DIR={}", session.0.path().display());
    user.says(&[&other], "run -n orders -- true").failed(124, &["orders"]);
    // In order, so that no process of theirs makes a file while the directory is removed.
    send("TERM", holder.0.id());
    holder.status();
}

/// As a service has with PrivateTmp: its lock would be another one.
#[test]
fn a_private_tmp_is_refused() {
    let Some(user) = User::new() else { return };
    // The program may be in /tmp itself: its folder is shown at its place.
    let mount = "exec 8<\"$0\"; mount -t tmpfs none /tmp && mkdir -p \"$0\" && mount -c --bind /proc/self/fd/8 \"$0\" && exec \"$@\"";
    let folder = Path::new(FAIRLOCK).parent().unwrap().to_str().unwrap();
    let private = ["unshare", "-m", "sh", "-c", mount, folder];
    user.says(&private, "run -n orders -- true").failed(125, &["/tmp is another directory here", "--dir"]);
    user.says(&["unshare", "-m"], "run -n orders -- true").gave(0);
}

#[test]
fn a_place_that_another_user_took_first_is_refused() {
    let Some(user) = User::new() else { return };
    let theirs = WorkDir::new();
    chown(theirs.path(), Some(user.0), None).unwrap();
    symlink(theirs.path(), user.dir()).unwrap();
    user.says(&[], "ls").failed(125, &["it is a link or a file", "--dir"]);
    fs::remove_file(user.dir()).unwrap();
    fs::DirBuilder::new().mode(0o1777).create(user.dir()).unwrap();
    fs::set_permissions(user.dir(), Permissions::from_mode(0o1777)).unwrap();
    user.says(&[], "ls").failed(125, &["belongs to another user (0)", "--dir"]);
}

/// Else a lock of that name is another one wherever the command begins.
#[test]
fn a_relative_directory_is_shown_as_a_whole_path() {
    let session = Session::new();
    let mut command = session.command(&["ls"]);
    command.env("FAIRLOCK_DIR", "fairlock").current_dir(session.0.path());
    let place = format!("on this machine, in {}\n", session.dir().display());
    Running::start(command).output().is(0, &format!("{place}no lock is held or waited for\n"), "");
}

#[test]
fn the_locks_of_root_need_no_setting() {
    let mut command = Session::new().command(&["ls"]);
    command.env_remove("FAIRLOCK_DIR");
    let said = Running::start(command).output().gave(0).out;
    let user = nix::unistd::getuid();
    let dir = if user.is_root() { "/run/fairlock".to_owned() } else { format!("/tmp/fairlock-{user}") };
    assert!(said.starts_with(&format!("on this machine, in {dir}\n")), "{said}");
}
