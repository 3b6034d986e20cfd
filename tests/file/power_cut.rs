//! The plug is pulled on a file system of its own, as root: its image is copied while the system has not written everything.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use fairlock::{Client, FencingToken, FileBackend, TryLock};

use super::Locks;

/// Mounted until it is dropped.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(image: &Path, at: &Path) -> Mounted {
        fs::create_dir(at).unwrap();
        run("mount", &["-o", "loop,commit=1", &image.display().to_string(), &at.display().to_string()]);
        Mounted(at.to_owned())
    }
}

/// Lazily: the thread of a client that was dropped may have files open.
impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &["-l", &self.0.display().to_string()]);
    }
}

fn run(program: &str, words: &[&str]) {
    let done =
        Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn token(client: &Client, lock: &str) -> FencingToken {
    match client.fair_lock(lock).unwrap().try_lock().unwrap() {
        TryLock::Granted(guard) => guard.token(),
        TryLock::Busy(_) => panic!("{lock} is held"),
    }
}

/// Names are written to the disk before contents: some of the locks are files of 0 bytes then.
#[test]
fn locks_are_used_again_after_a_power_cut() {
    let locks = Locks::new();
    let (image, copy) = (locks.0.file("image"), locks.0.file("copy"));
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    run("mkfs.ext4", &["-q", &image.display().to_string()]);
    let disk = Mounted::new(&image, &locks.0.file("disk"));
    let client = Client::new(FileBackend::open(disk.0.join("locks")).unwrap()).unwrap();
    token(&client, "old");
    run("sync", &[]);
    let names = ["old", "new", "newer"];
    let tokens = names.map(|name| token(&client, name));
    // The journal has the names once it was committed, after a second; the contents come after 30 s. Nothing tells when.
    let empty = |copy: &Mounted| {
        let lengths =
            names.map(|name| fs::metadata(copy.0.join(format!("locks/{name}.lock"))).map(|it| it.len()));
        lengths.iter().any(|length| length.as_ref().is_ok_and(|length| *length == 0))
    };
    let until = Instant::now() + Duration::from_secs(120);
    let copied = loop {
        assert!(Instant::now() < until, "no copy has an empty file");
        fs::copy(&image, &copy).unwrap();
        let copied = Mounted::new(&copy, &locks.0.file("copied"));
        if empty(&copied) {
            break copied;
        }
        drop(copied);
        fs::remove_dir(locks.0.file("copied")).unwrap();
    };
    // As if another boot had written them.
    for file in fs::read_dir(copied.0.join("locks")).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|end| end == "lock") {
            File::options().write(true).open(file).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    }
    let after = Client::new(FileBackend::open(copied.0.join("locks")).unwrap()).unwrap();
    for (name, former) in names.into_iter().zip(tokens) {
        if name != "old" {
            assert!(token(&after, name) > former, "{name}");
        }
    }
    drop((client, after));
}
