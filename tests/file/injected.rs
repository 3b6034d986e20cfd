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
        run.worker_under(&command, PROGRAM, &address, &habits)
    };
    let mut workers: Vec<Worker> = ON_THE_FILE.map(|what| start(what, true)).into();
    workers.extend(ON_OTHERS.map(|what| start(what, false)));
    workers.push(run.worker(&address, &habits));
    let mut stopped = start("pwrite64:signal=STOP:when=20", true);
    workers[0].go();
    eventually("the file is made", || file.exists());
    workers[1..].iter_mut().for_each(Worker::go);
    stopped.go();
    stands_still_in_a_step(&stopped, &FileBackend::open(locks.dir()).unwrap());
    workers.push(stopped);

    let (mut granted, mut lost) = (0, 0);
    for worker in workers {
        let said = worker.next(LIMIT);
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

/// Waits until it does, and lets it go on once its lease has ended.
fn stands_still_in_a_step(worker: &Worker, backend: &FileBackend) {
    let strace = worker.child().id();
    let process = fs::read_to_string(format!("/proc/{strace}/task/{strace}/children")).unwrap();
    let process = process.trim();
    let is_stuck = || {
        let (_, unread) = backend.locks_and_unread(None).unwrap();
        unread.iter().any(|error| error.to_string().contains(&format!("process {process} has the file")))
    };
    eventually("a step stands still", is_stuck);
    let began = Instant::now();
    while began.elapsed() < LEASE {
        assert!(is_stuck(), "the step goes on by itself");
    }
    let process = Pid::from_raw(process.parse().unwrap()).unwrap();
    kill_process(process, Signal::CONT).unwrap();
}
