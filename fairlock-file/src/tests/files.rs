//! The files themselves: names, modes, contents, and how many stay open.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Barrier;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock_core::LockKind;
use fairlock_core::backend::{Backend, BackendErrorKind, LockId};
use fairlock_core::{ClientId, Error, LockName};

use super::store::Place;
use crate::FileBackend;
use crate::machine::{self, Dir, failure};

use crate::slots::Content;

pub(super) fn lock(name: &str) -> LockId {
    LockId::new(LockName::new(name).unwrap(), LockKind::Fair)
}

/// The store has it open. A step that fails is repeated by the client, which would hide the failure.
#[test]
fn a_file_that_was_removed_is_made_anew_in_the_same_step() {
    let (place, lock) = (Place::new(), lock("x"));
    let backend = place.open();
    backend.inspect(&lock, 0..0).unwrap();
    fs::remove_file(&place.files("lock")[0]).unwrap();
    backend.inspect(&lock, 0..0).unwrap();
}

/// Each of four threads is a newcomer to each lock, and one of them is faster.
#[test]
fn newcomers_that_make_one_file_all_use_it() {
    let place = Place::new();
    let backend = place.open();
    for at in 0..200 {
        let (lock, together) = (lock(&at.to_string()), Barrier::new(4));
        let newcomer = || {
            together.wait();
            backend.inspect(&lock, 0..0).unwrap();
        };
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(newcomer)));
    }
}

/// Core waits for an answer as long as a step waits for a file.
#[test]
fn a_step_answers_within_a_second() {
    assert_eq!(Place::new().open().response_timeout(), Some(Duration::from_secs(1)));
}

#[test]
fn files_of_locks_stay_open_but_not_all() {
    let place = Place::new();
    let backend = place.open();
    let opened = |locks: usize| {
        (0..locks).for_each(|at| _ = backend.inspect(&lock(&at.to_string()), 0..0).unwrap());
        let files = fs::read_dir("/proc/self/fd").unwrap().map(|file| fs::read_link(file.unwrap().path()));
        files.filter(|target| target.as_ref().is_ok_and(|target| target.starts_with(&place.0))).count()
    };
    assert_eq!(opened(10), 10);
    assert!((1..=64).contains(&opened(100)));
}

/// Another release reads the file, and takes one with another checksum for a damaged one.
#[test]
fn the_first_content_stands_in_the_file_as_it_always_did() {
    let place = Place::new();
    let dir = Dir::open(place.0.clone()).unwrap();
    let (path, file) = dir.new_file().unwrap();
    Content::begin(&file, &[7; 300]).unwrap();
    let bytes = fs::read(path).unwrap();
    let head: Vec<_> =
        bytes[..40].chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(head, [u64::from_le_bytes(*b"fairloc2"), 1, 40, 300, 13_313_410_586_959_815_502]);
    assert_eq!((&bytes[40..340], bytes.len()), (&[7; 300][..], 4096));
}

/// The clock of a step begins anew with each boot.
#[test]
fn the_tokens_of_a_new_lock_begin_at_the_time_of_day() {
    let place = Place::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    let guard = place.client().fair_lock("x").unwrap().lock().unwrap();
    assert!(u128::from(guard.token().get()) > now);
}

#[test]
fn a_name_of_200_bytes_is_whole_and_a_longer_one_is_not() {
    let place = Place::new();
    let dir = Dir::open(place.0.clone()).unwrap();
    let name = |length| dir.lock(&lock(&"x".repeat(length)).name).file_stem().unwrap().len();
    assert_eq!([name(200), name(201)], [200, 200 + 17]);
}

#[test]
fn the_longest_path_of_a_socket_is_taken() {
    let place = Place::new();
    let wake = format!("/{}.wake", ClientId::random()).len();
    let room = 103 - wake - place.0.as_os_str().len() - 1;
    assert!(FileBackend::open(place.0.join("x".repeat(room))).is_ok());
    assert!(FileBackend::open(place.0.join("x".repeat(room + 1))).is_err());
}

/// Whatever the umask is.
#[test]
fn users_of_the_group_write_all_files_and_sockets() {
    let place = Place::new();
    let client = place.client();
    client.fair_lock("x").unwrap().lock().unwrap().unlock().unwrap();
    for extension in ["lock", "here", "wake"] {
        let mode = fs::metadata(&place.files(extension)[0]).unwrap().mode();
        assert_eq!(mode & 0o777, 0o660, "{extension}");
    }
}

#[test]
fn a_path_that_can_be_no_directory_is_refused_as_such() {
    let place = Place::new();
    fs::write(&place.0, "").unwrap();
    for path in [place.0.clone(), place.0.join("x")] {
        let error = FileBackend::open(path).unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
        assert!(error.to_string().contains("can't be a directory of locks"), "{error}");
    }
    fs::remove_file(&place.0).unwrap();
}

/// Owners whose names are no client's may be anything, paths too.
#[test]
fn an_owner_that_is_no_client_has_no_presence_file() {
    let place = Place::new();
    let dir = Dir::open(place.0.clone()).unwrap();
    let client = ClientId::random().to_string();
    for (client, lives) in [("no-client", None), ("", None), ("c11e-47", None), (&client, Some(false))] {
        File::create(dir.here(client)).unwrap();
        assert_eq!(machine::lives(&dir, client), lives, "{client}");
    }
}

#[test]
fn a_step_names_a_later_layout() {
    let (place, lock) = (Place::new(), lock("x"));
    let backend = place.open();
    backend.inspect(&lock, 0..0).unwrap();
    File::options().write(true).open(&place.files("lock")[0]).unwrap().write_all_at(b"fairloc3", 0).unwrap();
    let error = backend.inspect(&lock, 0..0).unwrap_err();
    assert!(error.kind() != BackendErrorKind::Corrupt, "{error}");
}

/// A full disk and a missing right stay, as what has the file's name; what else fails may work in the next moment.
#[test]
fn what_the_system_refuses_is_not_called_unavailable() {
    let kind = |kind: ErrorKind| failure("x", io::Error::from(kind)).kind();
    assert_eq!(kind(ErrorKind::StorageFull), BackendErrorKind::Refused);
    for full in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        assert!(failure("x", full.into()).message().contains("make room"), "what to do");
    }
    assert_eq!(kind(ErrorKind::PermissionDenied), BackendErrorKind::Denied);
    assert_eq!(kind(ErrorKind::ReadOnlyFilesystem), BackendErrorKind::Denied);
    assert_eq!(kind(ErrorKind::Interrupted), BackendErrorKind::Unavailable);
}

/// What another program, or another user of the group, has put there stays there.
#[test]
fn what_is_no_file_at_a_name_is_no_outage() {
    let place = Place::new();
    let backend = place.open();
    let name = |name: &str| place.0.join(format!("{name}.lock"));
    fs::create_dir(name("directory")).unwrap();
    std::os::unix::fs::symlink("/dev/null", name("link")).unwrap();
    let _socket = std::os::unix::net::UnixDatagram::bind(name("socket")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(name("pipe")).status();
    assert!(pipe.unwrap().success());
    for name in ["directory", "link", "socket", "pipe"] {
        let error = backend.inspect(&lock(name), 0..0).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Corrupt, "{error}");
    }
}

/// As long as any user of the directory's group has made it.
#[test]
fn no_more_of_a_presence_is_read_than_a_number() {
    let place = Place::new();
    let dir = Dir::open(place.0.clone()).unwrap();
    let peak = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    let client = ClientId::random().to_string();
    File::create(dir.here(&client)).unwrap().set_len(400 << 20).unwrap();
    let before = peak();
    assert!(machine::process_of(&dir, &client).is_none());
    assert!(peak() < before + 200, "{before} MB, then {}", peak()); // other tests use some
}
