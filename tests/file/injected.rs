//! Processes take turns while the system refuses their calls, one sort in each process, and while one stands still in a step.

use std::fs;
use std::time::{Duration, Instant};

use fairlock::FileBackend;
use fairlock_tests::turns::{Habits, Store, Turns};
use fairlock_tests::{Worker, eventually};
use rustix::process::{Pid, Signal, kill_process};

use super::{Locks, PROGRAM};

const TURNS: usize = 60;
/// A hold whose release failed lasts no longer.
const LEASE: Duration = Duration::from_secs(2);
/// All turns of all processes, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Calls about the lock's file. The first one makes the file.
const ON_THE_FILE: [&str; 9] = [
    "linkat:error=ENOSPC:when=1",
    "openat:error=EMFILE:when=1+7",
    "openat:error=EIO:when=1+7",
    "flock:error=EIO:when=1+7",
    "flock:error=ENOLCK:when=1+7",
    "statx:error=EIO:when=1+7",
    "pread64:error=EIO:when=1+7",
    "pwrite64:error=EIO:when=1+7",
    "pwrite64:error=ENOSPC:when=1+7",
];
/// Calls about other processes. A client begins with a socket of its own.
const ON_OTHERS: [&str; 4] = [
    "sendto:error=ENOBUFS:when=1+7",
    "socket:error=EMFILE:when=2+7",
    "pidfd_open:error=EMFILE:when=1+7",
    "ppoll:error=ENOMEM:when=1+7",
];

/// Each under strace, which lets calls fail. The real leases, files and processes are what is tried.
#[test]
fn calls_that_fail_and_a_stop_in_a_step_break_no_promise() {
    let locks = Locks::for_as_long(LIMIT * 2);
    let habits = Habits { hold_ms: 0, lease: LEASE, ..Habits::new("file", TURNS) };
    let run = Turns::new(PROGRAM, &locks.0, habits);
    let (file, address) = (locks.dir().join("turns.lock"), locks.0.address());
    let traces = locks.0.file("traces");
    fs::create_dir(&traces).unwrap();
    let start = |what: &str, is_on_the_file: bool| {
        let (call, _) = what.split_once(':').unwrap();
        let (trace, inject) = (format!("trace={call}"), format!("inject={what}"));
        let (output, file) = (traces.join(what).display().to_string(), file.display().to_string());
        let path = if is_on_the_file { vec!["-P", &file] } else { vec![] };
        let command =
            [&["strace", "-f", "-qqq", "-o", &output, "-e", &trace, "-e", &inject][..], &path].concat();
        Traced::new(run.worker_under(&command, PROGRAM, &address, &habits))
    };
    let mut workers: Vec<Traced> = ON_THE_FILE.map(|what| start(what, true)).into();
    workers.extend(ON_OTHERS.map(|what| start(what, false)));
    let mut stopped = start("pwrite64:signal=STOP:when=20", true);
    workers[0].0.go();
    eventually("the file is made", || file.exists());
    workers[1..].iter_mut().for_each(|worker| worker.0.go());
    stopped.0.go();
    stopped.stands_still_in_a_step(&FileBackend::open(locks.dir()).unwrap());
    workers.push(stopped);

    let (mut granted, mut lost) = (0, 0);
    for worker in workers {
        let said = worker.0.next(LIMIT);
        let words: Vec<&str> = said.split(' ').collect();
        let of = |name| -> usize {
            words[words.iter().position(|word| *word == name).unwrap() + 1].parse().unwrap()
        };
        assert!(of("granted") > TURNS / 2, "{said}");
        (granted, lost) = (granted + of("granted"), lost + of("lost"));
    }
    for trace in fs::read_dir(traces).unwrap().map(|trace| trace.unwrap().path()) {
        let text = fs::read_to_string(&trace).unwrap();
        assert!(
            text.contains("(INJECTED)") || text.contains("SIGSTOP"),
            "nothing failed: {}",
            trace.display()
        );
    }
    let counted = locks.0.counter();
    assert!((granted - lost..=granted).contains(&counted), "{counted} of {granted}, {lost} lost");
    run.judged(LEASE * 3, LEASE * 3);
}

/// A worker under strace. When it is dropped, its process does not outlive strace, also if it stands still.
struct Traced(Worker, Pid);

impl Traced {
    fn new(strace: Worker) -> Traced {
        let id = strace.child().id();
        let process = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        Traced(strace, Pid::from_raw(process.trim().parse().unwrap()).unwrap())
    }

    /// Waits until the process stands still in a step, and lets it go on once its lease has ended.
    fn stands_still_in_a_step(&self, backend: &FileBackend) {
        let has_the_file = format!("process {} has the file", self.1.as_raw_nonzero());
        let is_stuck = || {
            let (_, unread) = backend.locks_and_unread(None).unwrap();
            unread.iter().any(|error| error.to_string().contains(&has_the_file))
        };
        eventually("a step stands still", is_stuck);
        let began = Instant::now();
        while began.elapsed() < LEASE {
            assert!(is_stuck(), "the step goes on by itself");
        }
        kill_process(self.1, Signal::CONT).unwrap();
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if self.0.ends_well(Duration::ZERO).is_none() {
            let _ = kill_process(self.1, Signal::KILL);
        }
    }
}
