//! What the suite can't know: a directory that is gone, foreign, or full of old files; another boot.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

#[cfg(feature = "servers")]
use fairlock_core::LostCause;
use fairlock_core::backend::{Backend, BackendErrorKind, LockId};
use fairlock_core::{Client, ClientId, Error, LockKind, LockName, TryLock};

use crate::FileBackend;
use crate::machine::{FILE_MODE, Machine};
use crate::wake_ups::{sweep, sweep_if_due};

/// A directory that does not exist yet.
pub(super) struct Place(pub(super) PathBuf);

impl Place {
    pub(super) fn new() -> Place {
        Place(std::env::temp_dir().join(ClientId::random().to_string()))
    }

    pub(super) fn open(&self) -> FileBackend {
        FileBackend::open(&self.0).unwrap()
    }

    pub(super) fn client(&self) -> Client {
        Client::builder(self.open()).outage_limit(Duration::from_millis(100)).build().unwrap()
    }

    /// The thread of a client sweeps once as it begins.
    fn wait_for_sweep(&self) {
        let until = Instant::now() + Duration::from_secs(120);
        while !fs::read(self.stamp()).is_ok_and(|text| !text.is_empty()) {
            assert!(Instant::now() < until, "the client's thread sweeps");
            std::thread::yield_now();
        }
    }

    pub(super) fn stamp(&self) -> PathBuf {
        self.0.join(format!("fairlock-{}.swept", rustix::process::geteuid().as_raw()))
    }

    pub(super) fn files(&self, extension: &str) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.0).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn make_old(path: &Path, age: Duration) {
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

pub(super) const DAYS: Duration = Duration::from_secs(3 * 24 * 60 * 60);

#[cfg(feature = "servers")] // takes seconds of real time
#[test]
fn a_file_that_does_not_get_free_is_unavailable_in_its_bound() {
    let place = Place::new();
    let client = place.client();
    let lock = client.fair_lock("x").unwrap();
    lock.lock().unwrap().unlock().unwrap();
    let stopped = File::open(&place.files("lock")[0]).unwrap();
    stopped.lock().unwrap();
    let has_it = format!("process {} has the file", std::process::id());
    let error = lock.lock().unwrap_err();
    assert!(matches!(&error, Error::Unavailable { .. }) && error.to_string().contains(&has_it), "{error}");
    // A list waits as well: two steps might change both slots while it reads them.
    let error = place.open().locks(None).unwrap_err();
    assert!(error.to_string().contains(&has_it), "{error}");
    let _other = client.fair_lock("other").unwrap().lock().unwrap();
    let (found, unread) = place.open().locks_and_unread(None).unwrap();
    assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["other"]);
    assert!(unread.len() == 1 && unread[0].to_string().contains(&has_it), "{unread:?}");
    drop(stopped);
    lock.lock().unwrap().unlock().unwrap();
}

#[test]
fn a_foreign_file_is_left_alone() {
    let place = Place::new();
    let backend = place.open();
    let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
    for text in ["a shopping list\n", &"x".repeat(9000)] {
        fs::write(place.0.join("x.lock"), text).unwrap();
        let error = backend.inspect(&lock, 0..0).unwrap_err();
        assert!(error.kind() == BackendErrorKind::Corrupt, "{error}");
        assert!(
            error.message().contains("x.lock: the lock's state is damaged at byte 0, or it is another"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(place.0.join("x.lock")).unwrap(), text);
        assert!(backend.locks(None).unwrap().is_empty());
    }
}

#[test]
fn long_names_with_one_beginning_are_two_locks() {
    let place = Place::new();
    let client = place.client();
    let [one, other] = ["a", "b"].map(|end| format!("{}{end}", "ä".repeat(200)));
    let _held = client.fair_lock(&one).unwrap().lock().unwrap();
    let other = client.fair_lock(&other).unwrap();
    assert!(matches!(other.try_lock().unwrap(), TryLock::Granted(_)));
    // Names whose hashes are the same can't be: the file has the name inside.
    fs::rename(place.0.join(place.files("lock")[0].file_name().unwrap()), place.0.join("x.lock")).unwrap();
    let error = client.fair_lock("x").unwrap().try_lock().unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
}

#[test]
fn a_directory_that_was_removed_is_refused_even_if_it_is_back() {
    let place = Place::new();
    let client = place.client();
    let lock = client.fair_lock("x").unwrap();
    lock.lock().unwrap().unlock().unwrap();
    place.wait_for_sweep(); // else a new stamp may come while the directory is removed
    fs::remove_dir_all(&place.0).unwrap();
    for name in ["x", "another"] {
        let error = client.fair_lock(name).unwrap().lock().unwrap_err();
        assert!(error.to_string().contains("was removed") && !error.is_transient(), "{error}");
    }
    let back = place.client();
    let _held = back.fair_lock("x").unwrap().lock().unwrap();
    assert!(lock.try_lock().unwrap_err().to_string().contains("was removed"));
    assert!(place.open().locks(None).unwrap().len() == 1);
}

#[test]
fn what_another_boot_left_is_over_and_tokens_grow() {
    let place = Place::new();
    let held = Client::new(FileBackend::open_on(&place.0, Machine::of_boot(1)).unwrap()).unwrap();
    let held = held.fair_lock("x").unwrap().lock().unwrap();
    let token = held.token();
    let client = Client::new(FileBackend::open_on(&place.0, Machine::of_boot(2)).unwrap()).unwrap();
    // A holder that lives is of the same boot, and sees another machine.
    let error = client.fair_lock("x").unwrap().try_lock().unwrap_err();
    assert!(error.to_string().contains("another boot_id"), "{error}");
    fs::remove_file(place.0.join(format!("{}.here", held.owner().client()))).unwrap();
    let TryLock::Granted(guard) = client.fair_lock("x").unwrap().try_lock().unwrap() else { panic!() };
    assert!(guard.token() > token);
    assert!(held.renew().is_err(), "it is lost");
}

/// The file is as it was when it was last written to the disk.
#[test]
fn tokens_of_lost_steps_are_not_given_again() {
    let place = Place::new();
    let token = |boot| {
        let client = Client::new(FileBackend::open_on(&place.0, Machine::of_boot(boot)).unwrap()).unwrap();
        client.fair_lock("x").unwrap().lock().unwrap().token()
    };
    token(1);
    let path = place.files("lock").remove(0);
    let on_disk = fs::read(&path).unwrap();
    let [.., last] = [(); 3].map(|()| token(1));
    fs::write(&path, on_disk).unwrap();
    assert!(token(2) > last);
}

#[test]
fn a_lock_that_a_power_cut_left_empty_is_unused() {
    let place = Place::new();
    let lock = place.client().fair_lock("x").unwrap();
    let former = lock.lock().unwrap().token();
    let path = place.files("lock").remove(0);
    let cut = || {
        fs::write(&path, "").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    };
    cut();
    assert!(place.open().locks(None).unwrap().is_empty());
    assert!(lock.lock().unwrap().token() > former);
    cut();
    sweep(&place.open().files).unwrap();
    assert!(!path.exists());
}

/// The maker links the file to its name, and then removes the first name.
#[test]
fn a_power_cut_between_two_names_leaves_an_unused_lock() {
    let place = Place::new();
    let lock = LockName::new("x").unwrap();
    place.open().step(&lock, |_, _| ()).unwrap();
    let path = place.files("lock").remove(0);
    fs::write(&path, "").unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    fs::hard_link(&path, place.0.join(format!("{}.new", ClientId::random()))).unwrap();
    place.open().step(&lock, |_, _| ()).unwrap();
    assert!(place.files("new").is_empty());
}

/// The watchdog renews every 20 minutes.
#[cfg(feature = "servers")] // takes seconds of real time
#[test]
fn a_hold_in_a_removed_directory_is_told_as_lost() {
    let place = Place::new();
    let client = Client::builder(place.open()).lease(Duration::from_secs(60 * 60)).build().unwrap();
    let (lock, other) = (client.fair_lock("x").unwrap(), client.fair_lock("y").unwrap());
    let (guard, unlocked) = (lock.lock().unwrap(), other.lock().unwrap());
    let waiter = place.client();
    let waiting = waiter.fair_lock("x").unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| waiting.lock().map(drop));
        let until = Instant::now() + Duration::from_secs(120);
        while lock.admin().inspect().unwrap().queue_length == 0 {
            assert!(Instant::now() < until, "it waits");
            std::thread::yield_now();
        }
        place.wait_for_sweep();
        fs::remove_dir_all(&place.0).unwrap();
        assert!(matches!(unlocked.unlock(), Err(Error::Lost(_))));
        let lost = guard.lost().recv_timeout(Duration::from_secs(120)).unwrap();
        assert_eq!(lost.cause, LostCause::Taken);
        let error = waits.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    });
}

#[test]
fn a_day_after_its_last_use_the_file_of_a_lock_goes() {
    let place = Place::new();
    let client = place.client();
    let (used, held) = (client.fair_lock("used").unwrap(), client.fair_lock("held").unwrap().lock().unwrap());
    let token = used.lock().unwrap().token();
    place.files("lock").iter().for_each(|path| make_old(path, DAYS));
    let young = client.fair_lock("young").unwrap();
    young.lock().unwrap().unlock().unwrap();
    let files = Arc::clone(&place.open().files);
    sweep(&files).unwrap();
    let mut left: Vec<_> =
        place.files("lock").into_iter().map(|path| path.file_stem().unwrap().to_owned()).collect();
    left.sort();
    assert_eq!(left, ["held", "young"]);
    // The client has the file open that was removed.
    let guard = used.lock().unwrap();
    assert!(guard.token() > token);
    guard.unlock().unwrap();
    held.unlock().unwrap();
    assert_eq!(place.files("lock").len(), 3);
}

/// A newcomer opens the file, and comes to its turn when the file has lost its name and the lock has a new one. On a disk that stands
/// still for a second the newcomer asks twice.
#[test]
fn a_newcomer_uses_no_file_that_was_removed_meanwhile() {
    let place = Place::new();
    let patient = Client::new(place.open()).unwrap();
    let [used, other] = [(); 2].map(|()| place.client().fair_lock("x").unwrap());
    let newcomer = patient.fair_lock("x").unwrap();
    used.lock().unwrap().unlock().unwrap();
    let path = place.files("lock").remove(0);
    let swept = File::open(&path).unwrap();
    swept.lock().unwrap();
    std::thread::scope(|scope| {
        let opened = || {
            let files =
                fs::read_dir("/proc/self/fd").unwrap().map(|file| fs::read_link(file.unwrap().path()));
            files.filter(|target| target.as_ref().is_ok_and(|target| *target == path)).count()
        };
        let before = opened();
        let tries = scope.spawn(|| matches!(newcomer.try_lock().unwrap(), TryLock::Busy(_)));
        while opened() == before {
            assert!(!tries.is_finished(), "the newcomer has not opened the file");
        }
        fs::remove_file(&path).unwrap();
        let held = other.lock().unwrap();
        drop(swept);
        assert!(tries.join().unwrap());
        assert!(matches!(used.try_lock().unwrap(), TryLock::Busy(_)), "it had the file open as well");
        held.unlock().unwrap();
    });
}

/// Its parent is no directory any more, as if this user might not look at it.
#[test]
fn a_directory_that_cannot_be_looked_at_is_not_called_removed() {
    let place = Place::new();
    let backend = FileBackend::open(place.0.join("d")).unwrap();
    fs::remove_dir_all(&place.0).unwrap();
    fs::write(&place.0, "").unwrap();
    let error = backend.locks(None).unwrap_err();
    fs::remove_file(&place.0).unwrap();
    assert!(error.to_string().contains("Not a directory"), "{error}");
}

/// By a rename, or in another directory. A file may have a second name: a process was killed before it took away the first one.
#[test]
fn a_file_that_lost_its_name_is_used_by_nobody() {
    for is_in_dir in [true, false] {
        let (place, away) = (Place::new(), Place::new());
        let lock = place.client().fair_lock("x").unwrap();
        lock.lock().unwrap().unlock().unwrap(); // it keeps the file open
        if is_in_dir {
            fs::rename(place.0.join("x.lock"), place.0.join("x.new")).unwrap();
        } else {
            fs::rename(&place.0, &away.0).unwrap();
        }
        let _held = place.client().fair_lock("x").unwrap().lock().unwrap();
        match lock.try_lock() {
            Ok(answer) => assert!(is_in_dir && matches!(answer, TryLock::Busy(_)), "two hold the lock"),
            Err(error) => assert!(!is_in_dir && error.to_string().contains("was removed"), "{error}"),
        }
    }
}

/// What another user of the group has put there.
#[test]
fn links_are_not_followed_and_pipes_not_waited_for() {
    let place = Place::new();
    let backend = place.open();
    let mine = place.0.join("mine");
    fs::write(&mine, "precious").unwrap();
    for link in [place.stamp(), place.0.join("x.lock")] {
        std::os::unix::fs::symlink(&mine, link).unwrap();
    }
    let pipe = std::process::Command::new("mkfifo").arg(place.0.join("y.lock")).status();
    assert!(pipe.unwrap().success());
    sweep_if_due(&backend.files, Duration::ZERO);
    assert_eq!(fs::read_to_string(&mine).unwrap(), "precious");
    assert!(backend.locks(None).unwrap().is_empty());
    for name in ["x", "y"] {
        let lock = LockId::new(LockName::new(name).unwrap(), LockKind::Fair);
        assert!(backend.inspect(&lock, 0..0).is_err(), "{name}");
    }
}

#[test]
fn a_directory_stays_where_it_was_when_it_was_opened() {
    let place = Place::new();
    std::env::set_current_dir(place.0.parent().unwrap()).unwrap(); // all other tests name whole paths
    let backend = FileBackend::open(place.0.file_name().unwrap()).unwrap();
    std::env::set_current_dir("/").unwrap();
    let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
    backend.inspect(&lock, 0..0).unwrap();
}

#[test]
fn the_files_of_a_killed_client_go_and_those_of_a_live_one_stay() {
    let place = Place::new();
    let client = place.client();
    place.wait_for_sweep();
    // As after a kill: the files are there, and no process has them.
    let dead = ClientId::random().to_string();
    fs::write(place.0.join(format!("{dead}.here")), "4711").unwrap();
    drop(std::os::unix::net::UnixDatagram::bind(place.0.join(format!("{dead}.wake"))).unwrap());
    drop(File::create(place.0.join(format!("{dead}.new"))).unwrap());
    let files = Arc::clone(&place.open().files);
    sweep(&files).unwrap();
    assert_eq!([place.files("here").len(), place.files("wake").len(), place.files("new").len()], [2, 2, 1]);
    place.files("here").iter().chain(&place.files("new")).for_each(|path| make_old(path, DAYS));
    sweep(&files).unwrap();
    assert_eq!([place.files("here").len(), place.files("wake").len(), place.files("new").len()], [1, 1, 0]);
    drop(client);
    assert_eq!([place.files("here").len(), place.files("wake").len()], [0, 0]);
}

/// Else a child that outlives its parent would keep the parent present.
#[test]
fn no_child_that_is_executed_gets_an_open_file() {
    let place = Place::new();
    let client = place.client();
    client.fair_lock("x").unwrap().lock().unwrap().unlock().unwrap();
    let (mut of_dir, mut sockets) = (0, 0);
    for file in fs::read_dir("/proc/self/fd").unwrap() {
        let path = file.unwrap().path();
        let Ok(target) = fs::read_link(&path) else { continue };
        let is_given = ["0", "1", "2"].iter().any(|standard| path.ends_with(standard));
        let is_socket = !is_given && target.to_string_lossy().starts_with("socket:");
        if target.starts_with(&place.0) || is_socket {
            let info = Path::new("/proc/self/fdinfo").join(path.file_name().unwrap());
            let Ok(info) = fs::read_to_string(info) else { continue };
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            let is_closed_by_exec = u32::from_str_radix(flags, 8).unwrap() & 0o2_000_000 != 0;
            assert!(is_closed_by_exec, "{}", target.display());
            *(if is_socket { &mut sockets } else { &mut of_dir }) += 1;
        }
    }
    assert!(of_dir >= 2 && sockets >= 1, "{of_dir} files, {sockets} sockets");
}

#[test]
fn a_path_too_long_for_a_socket_is_refused() {
    let place = Place::new();
    let error = FileBackend::open(place.0.join("x".repeat(60))).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    assert!(error.to_string().contains("bytes too long for sockets"), "{error}");
}

#[test]
fn locks_in_use_are_listed_by_name() {
    let place = Place::new();
    let client = place.client();
    let _fair = client.fair_lock("b:1").unwrap().lock().unwrap();
    let _permit = client.semaphore("a/ä", 3).unwrap().acquire().unwrap();
    client.fair_lock("c").unwrap().lock().unwrap().unlock().unwrap();
    let names = |pattern| {
        let found = place.open().locks(pattern).unwrap();
        found.iter().map(|(name, state)| format!("{} {}", name.as_str(), state.taken())).collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["a/ä 1", "b:1 1"]);
    assert_eq!(names(Some("b*")), ["b:1 1"]);
}

/// A list of other locks goes without that lock.
#[test]
fn a_list_names_the_lock_of_a_later_layout() {
    let place = Place::new();
    let _held = place.client().fair_lock("a:ä").unwrap().lock().unwrap();
    let file = File::options().write(true).open(&place.files("lock")[0]).unwrap();
    file.write_all_at(b"fairloc3", 0).unwrap();
    let backend = place.open();
    let error = backend.locks(Some("a*")).unwrap_err();
    assert!(
        matches!(&error, Error::Unsupported { lock: Some(name), .. } if name.as_str() == "a:ä"),
        "{error:?}"
    );
    assert!(backend.locks(Some("b*")).unwrap().is_empty());
}

#[test]
fn the_doctor_finds_a_directory_that_its_users_do_not_share() {
    let place = Place::new();
    let backend = place.open();
    let verdicts = || {
        let findings = backend.doctor().unwrap();
        findings.iter().map(|found| format!("{} {:?}", found.topic, found.verdict)).collect::<Vec<_>>()
    };
    let good = ["directory Good", "trial Good"];
    assert_eq!(verdicts(), good);
    // Without setgid a lock is of the group of its first user.
    for (mode, verdict) in
        [(0o700, "Good"), (0o1770, "Note"), (0o1777, "Note"), (0o3770, "Good"), (0o3777, "Note")]
    {
        fs::set_permissions(&place.0, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!(verdicts()[0], format!("directory {verdict}"), "{mode:o}");
    }
    let damaged = place.0.join("x.lock");
    fs::write(&damaged, "").unwrap();
    assert_eq!(verdicts().len(), 2, "another program's");
    fs::set_permissions(&damaged, std::os::unix::fs::PermissionsExt::from_mode(FILE_MODE)).unwrap();
    assert_eq!(verdicts()[2], "locks Unsafe");
    fs::remove_file(damaged).unwrap();
    assert!(place.files("lock").is_empty(), "the trial's file is removed");
}
