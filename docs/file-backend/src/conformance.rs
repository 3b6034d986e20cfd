//! The whole conformance suite, and calls while the store does not answer.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_conformance::{Harness, Promise};
use fairlock_core::backend::{Backend, BackendErrorKind, LockId};
use fairlock_core::{Client, ClientId, Clock, Error, LockKind, LockName};

use crate::FileBackend;

/// A new directory. Each `backend()` acts like one in another process.
struct Files(PathBuf);

impl Harness for Files {
    fn new() -> Self {
        Files(std::env::temp_dir().join(ClientId::random().to_string()))
    }

    fn kind(&self) -> LockKind {
        LockKind::Fair
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(FileBackend::open(&self.0).unwrap())
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    fn lose_hold(&self, name: &str) {
        let (backend, name) = (FileBackend::open(&self.0).unwrap(), LockName::new(name).unwrap());
        backend.step(&name, |entry, _| entry.lose_hold()).unwrap();
    }

    fn promises(&self, _: Promise) -> bool {
        true
    }

    fn assert_nothing_is_left(&self, _: &str) {
        let state = fs::read_to_string(self.0.join("state")).unwrap();
        assert_eq!(state.lines().count(), 1, "more than the last number is left: {state}");
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

mod suite {
    fairlock_conformance::conformance_tests!(super::Files);
}

#[test]
fn a_store_that_does_not_answer_is_unavailable_within_its_bound() {
    let files = Files::new();
    let client = Client::builder(files.backend()).outage_limit(Duration::from_millis(100)).build().unwrap();
    let lock = client.fair_lock("x").unwrap();
    let stopped = File::create(files.0.join("mutex")).unwrap();
    stopped.lock().unwrap();
    let started = Instant::now();
    assert!(matches!(lock.lock(), Err(Error::Unavailable { .. })));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    drop(stopped);
    lock.lock().unwrap().unlock().unwrap();
}

#[test]
fn a_foreign_state_file_is_left_alone() {
    let files = Files::new();
    let backend = FileBackend::open(&files.0).unwrap();
    let state = files.0.join("state");
    for (text, cause) in [
        ("a shopping list\n", "begins with no number"),
        ("7\nbread\n", "a line is `bread`"),
        ("7\n78 02\n", "lock `x`: the lock's state has format 2, which this version can't read"),
    ] {
        fs::write(&state, text).unwrap();
        let error =
            backend.inspect(&LockId::new(LockName::new("y").unwrap(), LockKind::Fair), 0..0).unwrap_err();
        assert!(error.kind() == BackendErrorKind::Corrupt && error.message().ends_with(cause), "{error}");
        assert_eq!(fs::read_to_string(&state).unwrap(), text);
    }
}

#[test]
fn the_socket_of_a_killed_client_is_removed() {
    let files = Files::new();
    let first = Client::new(files.backend()).unwrap();
    // As after a kill: the file exists, and no process listens.
    let deserted = files.0.join("dead.wake");
    drop(std::os::unix::net::UnixDatagram::bind(&deserted).unwrap());
    let sockets = || fs::read_dir(&files.0).unwrap().filter(|file| is_socket(file.as_ref().unwrap())).count();
    assert_eq!(sockets(), 2);
    let second = Client::new(files.backend()).unwrap();
    assert!(!deserted.exists());
    assert_eq!(sockets(), 2, "the sockets of live clients stay");
    drop((first, second));
    assert_eq!(sockets(), 0);
}

fn is_socket(file: &fs::DirEntry) -> bool {
    file.path().extension().is_some_and(|extension| extension == "wake")
}
