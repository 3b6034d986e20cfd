//! fairlock itself is killed or stopped, at every stage.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Proxy, RedisServer, Sentinels, WorkDir, assert_no_residue, eventually};

use crate::support::{
    Running, SOON, arguments, fairlock, is_alive, lock, output, process_in, script, send, text,
    wait_for_line, wait_until_dead,
};

const LEASE: Duration = Duration::from_secs(3);
/// Much longer than the minder needs, much shorter than the lease that is left.
const LEFT: Duration = Duration::from_secs(15);

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

/// The minder's process: it leads the program's group.
fn minder_of(process: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let group = stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_ne!(group, process);
    group
}

/// The server would keep the hold for 35 s.
#[test]
fn the_minder_of_a_durable_holder_gives_the_lock_back_by_a_quorum() {
    let (servers, dir) = (Sentinels::builder().steady().start(), WorkDir::new());
    let (url, durable) = (servers.url(), "--durable=quorum,trust=20s");
    // The sentinels count once they have been up for longer than the trust.
    eventually(Duration::from_secs(60), "the life has begun", || {
        output(&url, &["doctor", durable, "--begin-life", "--yes"]).status.code() == Some(0)
    });
    let pid = dir.file("pid");
    let mut holder = Running::start(fairlock(&url, &arguments(&["x", durable], &script(&pid, "sleep 1000"))));
    let process = process_in(&pid);
    let next = Running::start(fairlock(&url, &["run", "x", durable, "--", "true"]));
    holder.0.kill().unwrap();
    let killed = Instant::now();
    wait_until_dead(process);
    let said = { next }.output();
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    assert!(killed.elapsed() < LEFT, "{:?}", killed.elapsed());
    assert_no_residue(&servers.servers[0], &[]);
}

#[test]
fn when_fairlock_is_killed_its_minder_gives_the_lock_back_once_the_program_has_ended() {
    for (options, trap) in [
        (&["x"][..], ""),
        (&["x", "--plain"], ""),
        (&["x", "--discipline", "redisson"], ""),
        (&["x", "--grace", "500ms"], "trap '' TERM;"),
    ] {
        let (server, dir) = (RedisServer::builder().requirepass("canary").start(), WorkDir::new());
        let (pid, inner) = (dir.file("pid"), dir.file("inner"));
        let program = script(&pid, &format!("{trap} sleep 1000 & echo $! > {}; wait; wait", inner.display()));
        // The address is an option: the program's environment has no password.
        let url = server.url();
        let mut command = fairlock(&url, &arguments(&[options, &["--redis", &url]].concat(), &program));
        let mut holder = Running::start({
            command.env_remove("FAIRLOCK_REDIS");
            command
        });
        let (process, inner) = (process_in(&pid), process_in(&inner));
        let minder = minder_of(process);
        let read = |process: u32, file: &str| std::fs::read(format!("/proc/{process}/{file}")).unwrap();
        for seen in [read(minder, "cmdline"), read(process, "environ"), read(inner, "environ")] {
            assert!(!text(&seen).contains("canary"), "{}", text(&seen));
        }
        let discipline =
            if options.contains(&"redisson") { Discipline::Redisson } else { Discipline::HandOff };
        let backend = RedisBackend::builder(&url).discipline(discipline).connect().unwrap();
        let waiting = Client::new(backend).unwrap().fair_lock("x").unwrap().request().unwrap();
        holder.0.kill().unwrap();
        let killed = Instant::now();
        let guard = waiting.wait().unwrap();
        assert!(!is_alive(process) && !is_alive(inner), "{options:?}: the program has ended");
        assert!(killed.elapsed() < LEFT, "{options:?}: {:?}: the lease is 30 s", killed.elapsed());
        assert!(trap.is_empty() || killed.elapsed() >= Duration::from_millis(500), "{:?}", killed.elapsed());
        wait_until_dead(minder);
        guard.unlock().unwrap();
        assert_no_residue(&server, if discipline == Discipline::Redisson { &["x"] } else { &[] });
    }
}

#[test]
fn a_minder_gives_back_its_own_hold_only_and_ends_also_without_a_server() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let proxy = Proxy::start(server.port());
    let pid = dir.file("pid");
    let program = script(&pid, "trap '' TERM; sleep 1000");
    let options = ["x", "--grace", "100ms"];
    let mut holder = Running::start(fairlock(&server.url(), &arguments(&options, &program)));
    let minder = minder_of(process_in(&pid));
    let ours = lock(&server, "x");
    let waiting = ours.request().unwrap();
    send("STOP", minder);
    holder.0.kill().unwrap();
    assert!(ours.force_unlock().unwrap(), "before the minder gives it back");
    let guard = waiting.wait().unwrap();
    send("CONT", minder);
    wait_until_dead(minder);
    assert!(guard.renew().is_ok() && !guard.is_lost(), "the next hold is not its own");
    guard.unlock().unwrap();

    std::fs::remove_file(&pid).unwrap();
    let options = ["x", "--lease", "2s", "--grace", "100ms"];
    let mut holder = Running::start(fairlock(&proxy.url(), &arguments(&options, &program)));
    let minder = minder_of(process_in(&pid));
    proxy.set(Traffic::Commands, Rule::Swallow);
    holder.0.kill().unwrap();
    wait_until_dead(minder);
    let guard = ours.lock().unwrap();
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn when_fairlock_is_killed_with_its_minder_the_lock_ends_with_its_lease() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let pid = dir.file("pid");
    let program = script(&pid, "sleep 1000");
    let mut holder = Running::start(fairlock(&server.url(), &arguments(&["x", "--lease", "3s"], &program)));
    let process = process_in(&pid);
    // Stopped, it can't act on the minder's end.
    fairlock_tests::signals::stop(&holder.0);
    send("KILL", minder_of(process));
    holder.0.kill().unwrap();
    lock(&server, "x").lock().unwrap().unlock().unwrap();
    assert!(is_alive(process), "no process is left that could end it");
    send("KILL", process);
    assert_no_residue(&server, &[]);
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
    send("KILL", minder_of(process));
    assert_eq!(holder.status().code(), Some(123));
    wait_until_dead(process);
    lock(&server, "x").try_lock().unwrap().guard().expect("it was released").unlock().unwrap();
}
