//! The soak's checkers work: a worker that lies or misbehaves is found, and the run fails.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use fairlock_tests::{Bound, WorkDir, look_until};

/// A run that ends after its first round.
fn run(dir: &WorkDir, plant: &str) -> Child {
    let words = ["--workers", "3", "--threads", "2", "--seed", "1", "--plant", plant];
    let child = Command::new(env!("CARGO_BIN_EXE_soak"))
        .args(words)
        .env("TMPDIR", dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    dir.note(&child);
    child
}

/// The summary of a failed run.
fn failed(dir: &WorkDir, plant: &str, mut child: Child) -> String {
    let ended = look_until(Duration::from_secs(120), || child.try_wait().unwrap());
    dir.forget(&child);
    if ended.is_none() {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "{plant}: {said}");
    assert!(said.contains("FOUND with seed 1; the histories are in "), "{plant}: {said}");
    said
}

#[test]
fn a_worker_that_lies_or_does_wrong_is_found() {
    let _bound = Bound::here(Duration::from_secs(290));
    let plants = [
        ("overlap", "Exclusion"),
        ("permits", "Exclusion"),
        ("token", "Token"),
        ("order", "Order"),
        ("gap", "Liveness"),
        ("residue", "Residue"),
    ];
    // Three at a time: their workers never rest, and other tests run beside this one.
    for three in plants.chunks(3) {
        thread::scope(|scope| {
            for &(plant, promise) in three {
                scope.spawn(move || {
                    let dir = WorkDir::new();
                    let said = failed(&dir, plant, run(&dir, plant));
                    let found = said.lines().find(|line| line.starts_with("findings: ")).unwrap();
                    assert!(found.contains(promise), "{plant}: {said}");
                });
            }
        });
    }
}
