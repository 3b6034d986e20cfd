//! The store on files beside flock(2) itself, on the same file system.
//!
//! One line per figure, as of the memory backend: `cycle` is the time of lock and unlock in µs, `hand-over` the time from the unlock in
//! one process to the grant in another, which waits; the median of each.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, FileBackend};

use crate::Outcome;
use crate::fair::Fair;
use crate::peer::{Lock, Peer};
use crate::say::{hear, now_ns, say};

const CYCLES: usize = 20_000;
const HAND_OVERS: usize = 300;
/// The other process waits by then.
const WAITS: Duration = Duration::from_millis(2);

struct Flock(PathBuf);

impl Peer for Flock {
    type Lock = File;

    fn lock(&self, name: &str) -> Outcome<File> {
        Ok(File::create(self.0.join(name))?)
    }
}

impl Lock for File {
    fn hold(&self, held: &mut dyn FnMut()) -> Outcome {
        self.lock()?;
        held();
        Ok(self.unlock()?)
    }

    fn keep(&self) -> Outcome {
        Ok(self.lock()?)
    }
}

fn fairlock(dir: &Path) -> Outcome<Fair> {
    Ok(Fair(Client::new(FileBackend::open(dir)?)?))
}

pub fn run(rounds: usize) -> Outcome {
    let dir = std::env::temp_dir().join(format!("fairlock-bench-{}", std::process::id()));
    fs::create_dir(&dir)?;
    for _ in 0..rounds {
        measure("flock", &Flock(dir.clone()), &dir)?;
        measure("fairlock-file", &fairlock(&dir)?, &dir)?;
    }
    Ok(fs::remove_dir_all(dir)?)
}

/// The process that waits: it says when it had the lock.
pub fn partner(peer: &str, dir: &Path) -> Outcome {
    fn waits<P: Peer>(peer: &P) -> Outcome {
        let lock = peer.lock("x")?;
        say("ready")?;
        while !hear()?.is_empty() {
            let mut granted = 0;
            lock.hold(&mut || granted = now_ns())?;
            say(&granted.to_string())?;
        }
        Ok(())
    }
    if peer == "flock" { waits(&Flock(dir.to_owned())) } else { waits(&fairlock(dir)?) }
}

fn measure<P: Peer>(name: &str, peer: &P, dir: &Path) -> Outcome {
    let lock = peer.lock("x")?;
    let cycle = || -> Outcome<u128> {
        let started = Instant::now();
        lock.hold(&mut || {})?;
        Ok(started.elapsed().as_nanos())
    };
    say(&format!("cycle {name} {:.2}", median_of(CYCLES, cycle)?))?;
    let mut partner = Command::new(std::env::current_exe()?)
        .args(["file-partner", name])
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut to = partner.stdin.take().ok_or("it is piped")?;
    let mut from = BufReader::new(partner.stdout.take().ok_or("it is piped")?).lines();
    from.next();
    let hand_over = || -> Outcome<u128> {
        let mut released = 0;
        lock.hold(&mut || {
            let _ = to.write_all(b"go\n");
            thread::sleep(WAITS);
            released = now_ns();
        })?;
        let granted: u128 = from.next().ok_or("the other process has ended")??.parse()?;
        Ok(granted.saturating_sub(released))
    };
    say(&format!("hand-over {name} {:.1}", median_of(HAND_OVERS, hand_over)?))?;
    drop(to);
    Ok(partner.wait().map(drop)?)
}

/// In µs; the first half warms up.
fn median_of(count: usize, mut once: impl FnMut() -> Outcome<u128>) -> Outcome<f64> {
    let mut times = (0..count).map(|_| once()).collect::<Outcome<Vec<u128>>>()?.split_off(count / 2);
    times.sort_unstable();
    Ok(times[times.len() / 2] as f64 / 1e3)
}
