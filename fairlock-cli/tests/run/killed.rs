//! fairlock itself is killed or stopped, at every stage.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use fairlock_tests::{RedisServer, WorkDir, assert_no_residue, eventually};

use crate::support::{
    Running, SOON, arguments, fairlock, is_alive, lock, process_in, script, wait_for_line, wait_until_dead,
};

const LEASE: Duration = Duration::from_secs(3);

#[test]
fn a_killed_waiter_is_passed_over_and_its_program_never_runs() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let ours = lock(&server, "x");
    let guard = ours.lock().unwrap();
    let pid = dir.file("pid");
    let program = script(&pid, "sleep 1000");
    let mut dead = Running::start(fairlock(&server.url(), &arguments(&["x"], &program)));
    wait_for_line(&ours, 1);
    let behind = lock(&server, "x").request().unwrap();
    dead.0.kill().unwrap();
    dead.0.wait().unwrap();
    let channel =
        |server: &RedisServer| server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", "fairlock:*"]).len();
    eventually(SOON, "its connection is gone", || channel(&server) == 2);
    guard.unlock().unwrap();
    let handed = Instant::now();
    let guard = behind.wait().unwrap();
    assert!(handed.elapsed() < Duration::from_secs(4), "{:?}: it was not passed over", handed.elapsed());
    guard.unlock().unwrap();
    assert!(!pid.exists());
}

#[test]
fn a_waiter_that_is_told_to_end_leaves_the_line_at_once() {
    let server = RedisServer::start();
    let ours = lock(&server, "x");
    let guard = ours.lock().unwrap();
    for signal in ["TERM", "INT", "HUP", "QUIT", "USR1"] {
        let mut waiter = Running::start(fairlock(&server.url(), &arguments(&["x"], "echo no")));
        wait_for_line(&ours, 1);
        waiter.signal(signal);
        let said = waiter.output();
        assert_eq!(said.status.code(), None, "it ends by the signal {signal}");
        assert_eq!((said.stdout, said.stderr), (vec![], vec![]));
        assert_eq!(ours.inspect().unwrap().line.len(), 0);
    }
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_signal_while_it_connects_is_no_outage() {
    // It accepts connections, and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let mut early = Running::start(fairlock(&url, &arguments(&["x"], "echo no")));
        let _connected = silent.accept().unwrap();
        early.signal(signal);
        let said = early.output();
        assert_eq!((said.status.signal(), said.stdout, said.stderr), (Some(number), vec![], vec![]));
    }
}

#[test]
fn when_fairlock_is_killed_its_program_is_ended_before_the_lock_is_free() {
    for (trap, by) in [("", "TERM"), ("trap '' TERM;", "KILL")] {
        let (server, dir) = (RedisServer::start(), WorkDir::new());
        let pid = dir.file("pid");
        let program = script(
            &pid,
            &format!("{trap} sleep 1000 & echo $! > {}; wait; wait", dir.file("inner").display()),
        );
        let options = ["x", "--lease", "3s", "--grace", "500ms"];
        let mut holder = Running::start(fairlock(&server.url(), &arguments(&options, &program)));
        let (process, inner) = (process_in(&pid), process_in(&dir.file("inner")));
        let waiting = lock(&server, "x").request().unwrap();
        holder.0.kill().unwrap();
        let killed = Instant::now();
        let guard = waiting.wait().unwrap();
        assert!(!is_alive(process) && !is_alive(inner), "ended by {by}");
        assert!(killed.elapsed() < LEASE + SOON);
        guard.unlock().unwrap();
        assert_no_residue(&server, &[]);
    }
}

#[test]
fn when_fairlock_is_stopped_its_program_is_ended_before_the_lock_is_free() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let pid = dir.file("pid");
    let program = script(&pid, "trap '' TERM; sleep 1000");
    let options = ["x", "--lease", "3s", "--grace", "500ms"];
    let mut holder = Running::start(fairlock(&server.url(), &arguments(&options, &program)));
    let process = process_in(&pid);
    let waiting = lock(&server, "x").request().unwrap();
    fairlock_tests::signals::stop(&holder.0);
    let guard = waiting.wait().unwrap();
    assert!(!is_alive(process));
    fairlock_tests::signals::cont(&holder.0);
    assert_eq!(holder.status().code(), Some(123));
    guard.unlock().unwrap();
}

#[test]
fn without_its_minder_the_program_is_killed() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let pid = dir.file("pid");
    let program = script(&pid, "trap '' TERM; sleep 1000");
    let mut holder = Running::start(fairlock(&server.url(), &arguments(&["x"], &program)));
    let process = process_in(&pid);
    // The minder leads the program's group.
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let group = stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_ne!(group, process);
    crate::support::send("KILL", group);
    assert_eq!(holder.status().code(), Some(123));
    wait_until_dead(process);
    lock(&server, "x").try_lock().unwrap().guard().expect("it was released").unlock().unwrap();
}
