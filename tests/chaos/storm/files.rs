//! Locks on files: what can be done to them, and other processes that use them.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fairlock::FileBackend;
use fairlock_tests::{WorkDir, Worker};

use crate::keeper::in_use;
use crate::world::{World, locked};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
/// The lease of a process that is killed, in milliseconds: longer than a lock may wait for its next holder.
const LEASE: &str = "60000";

/// A directory of locks.
pub struct Files {
    dir: WorkDir,
    /// The files that a step has which stands still.
    taken: Mutex<Vec<File>>,
}

impl Files {
    pub fn new() -> Files {
        Files { dir: WorkDir::new(), taken: Mutex::default() }
    }

    pub fn locks(&self) -> PathBuf {
        self.dir.file("locks")
    }

    /// The files with one of these endings.
    fn ending(&self, ends: &[&str]) -> Vec<PathBuf> {
        let all = fs::read_dir(self.locks()).expect("a directory").map(|file| file.expect("a file").path());
        all.filter(|path| path.extension().is_some_and(|end| ends.iter().any(|one| end == *one))).collect()
    }

    /// Starts a step that stands still with the file of each lock, once the present step on the file is over.
    pub fn stop(&self) {
        let take = |path| {
            let file = File::open(path).expect("no lock is swept so soon");
            file.lock().expect("a lock of the system");
            file
        };
        locked(&self.taken).extend(self.ending(&["lock"]).into_iter().map(take));
    }

    pub fn cont(&self) {
        locked(&self.taken).clear();
    }

    /// Removes the sockets: from now on no present client hears anything.
    pub fn deafen(&self) {
        for path in self.ending(&["wake"]) {
            let _ = fs::remove_file(path); // its client may end meanwhile, and remove it
        }
    }

    /// Another process takes the lock, and is killed after so long, while it holds the lock or waits.
    pub fn take_and_die(&self, lock: &str, lasts: Duration) -> JoinHandle<()> {
        let (dir, lock) = (self.locks(), lock.to_owned());
        thread::spawn(move || {
            let dir = dir.to_str().expect("a path in UTF-8");
            let mut process = Worker::start(PROGRAM, &["hold", "file", dir, &lock, LEASE]);
            process.go();
            thread::sleep(lasts);
            process.kill();
        })
    }

    /// The files that should have gone, once all clients have ended. The files of unused locks and of killed processes stay for a day.
    pub fn left(&self, world: &World) -> Vec<String> {
        let mut left = self.ending(&["here", "wake", "new"]);
        left.retain(|path| {
            let client = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            world.life_of(&format!("{client}:")).is_some()
        });
        let used = FileBackend::open(self.locks());
        let used = used.and_then(|backend| backend.locks(None));
        left.iter().map(|path| path.display().to_string()).chain(in_use(used)).collect()
    }
}
