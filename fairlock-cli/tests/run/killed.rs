//! fairlock itself is killed or stopped, at every stage.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use fairlock::settings::Discipline;
use fairlock::waits::Request;
use fairlock::{Client, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::signals::{cont, stop};
use fairlock_tests::{Proxy, RedisServer, Sentinels, WorkDir, assert_no_residue, eventually};

use super::first_process::not_tested;
use crate::support::{
    FAIRLOCK, Host, Running, SOON, arguments, fairlock, is_alive, process_in, says, script, send, starts,
    text, wait_for_queue, wait_until_dead, words,
};

const LEASE: Duration = Duration::from_secs(3);
/// Much longer than the minder needs, much shorter than the lease that is left.
const LEFT: Duration = Duration::from_secs(15);
const IGNORES_TERM: &str = "trap '' TERM; sleep 1000";

#[test]
fn a_waiter_that_is_told_to_end_leaves_the_queue_at_once() {
    let host = Host::new();
    let ours = host.lock("x");
    let guard = ours.lock().unwrap();
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3), ("USR1", 10)] {
        let mut waiter = host.starts("x", "echo no");
        wait_for_queue(&ours, 1);
        waiter.signal(signal);
        waiter.output().ended_by(number);
        assert_eq!(ours.admin().inspect().unwrap().queue.len(), 0);
    }
    guard.unlock().unwrap();
}

/// When fairlock is killed, its program is ended before the lock is free, and so is the program's child.
#[test]
fn a_killed_fairlocks_program_ends_before_the_lock_is_free() {
    for (trap, by) in [("", "TERM"), ("trap '' TERM;", "KILL")] {
        let host = Host::new();
        let inner = host.dir.file("inner");
        let then = format!("{trap} sleep 1000 & echo $! > {}; wait; wait", inner.display());
        let (mut holder, process) =
            host.holds("x --lease 3s --response-timeout 1s --kill-after 500ms", "pid", &then);
        let inner = process_in(&inner);
        let waiting = host.lock("x").request().unwrap();
        holder.0.kill().unwrap();
        let killed = Instant::now();
        let guard = waiting.wait().unwrap();
        assert!(!is_alive(process) && !is_alive(inner), "ended by {by}");
        assert!(killed.elapsed() < LEASE + SOON);
        guard.unlock().unwrap();
    }
}

/// The minder's process: it leads the program's group.
fn minder_of(process: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let group = stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_ne!(group, process);
    group
}

/// The minder of a durable holder gives the lock back by a quorum. The server would keep the hold for 35 s.
#[test]
fn a_durable_holders_minder_gives_back_by_a_quorum() {
    let (servers, dir) = (Sentinels::builder().steady().start(), WorkDir::new());
    let (url, durable) = (servers.url(), "--durable=trust=20s");
    // The sentinels count once they have been up for longer than the trust.
    eventually("the life has begun", || {
        says(&url, &format!("doctor {durable} --begin-life --yes")).status.code() == Some(0)
    });
    let pid = dir.file("pid");
    let mut holder = starts(&url, &format!("x {durable}"), &script(&pid, "sleep 1000"));
    let process = process_in(&pid);
    let mut next = starts(&url, &format!("x {durable}"), "true");
    holder.0.kill().unwrap();
    let killed = Instant::now();
    wait_until_dead(process);
    next.output().gave(0);
    assert!(killed.elapsed() < LEFT, "{:?}", killed.elapsed());
    assert_no_residue(&servers.servers[0], &[]);
}

/// When fairlock is killed, its minder gives the lock back once the program has ended.
#[test]
fn a_killed_fairlocks_minder_gives_the_lock_back() {
    for (options, trap) in [
        ("x --kill-after 15s", ""),
        ("x --plain", ""),
        ("x --discipline redisson", ""),
        ("x --kill-after 500ms", "trap '' TERM;"),
    ] {
        let (server, dir) = (RedisServer::builder().requirepass("canary").start(), WorkDir::new());
        let (pid, inner) = (dir.file("pid"), dir.file("inner"));
        let program = script(&pid, &format!("{trap} sleep 1000 & echo $! > {}; wait; wait", inner.display()));
        // The address is an option: the program's environment has no password.
        let url = server.url();
        let mut command =
            fairlock(&url, &arguments(&[&*words(options), &["--redis", &url]].concat(), &program));
        command.env_remove("FAIRLOCK_REDIS");
        let mut holder = Running::start(command);
        let (process, inner) = (process_in(&pid), process_in(&inner));
        let minder = minder_of(process);
        let read = |process: u32, file: &str| std::fs::read(format!("/proc/{process}/{file}")).unwrap();
        for seen in [read(minder, "cmdline"), read(process, "environ"), read(inner, "environ")] {
            assert!(!text(&seen).contains("canary"), "{}", text(&seen));
        }
        let is_redisson = options.contains("redisson");
        let discipline = if is_redisson { Discipline::Redisson } else { Discipline::HandOff };
        let backend = RedisBackend::builder(&url).discipline(discipline).connect().unwrap();
        let waiting = Client::new(backend).unwrap().fair_lock("x").unwrap().request().unwrap();
        holder.0.kill().unwrap();
        let killed = Instant::now();
        let guard = waiting.wait().unwrap();
        assert!(!is_alive(process) && !is_alive(inner), "{options}: the program has ended");
        assert!(killed.elapsed() < LEFT, "{options}: {:?}: the lease is 30 s", killed.elapsed());
        assert!(trap.is_empty() || killed.elapsed() >= Duration::from_millis(500), "{:?}", killed.elapsed());
        wait_until_dead(minder);
        guard.unlock().unwrap();
        assert_no_residue(&server, if is_redisson { &["x"] } else { &[] });
    }
}

/// A minder gives back its own hold only, and ends also without a server.
#[test]
fn a_minder_gives_back_its_own_hold_only() {
    let host = Host::new();
    let proxy = Proxy::start(host.server.port());
    let (mut holder, process) = host.holds("x --kill-after 100ms", "pid", IGNORES_TERM);
    let minder = minder_of(process);
    let ours = host.lock("x");
    let waiting = ours.request().unwrap();
    send("STOP", minder);
    holder.0.kill().unwrap();
    assert!(ours.admin().force_unlock().unwrap(), "before the minder gives it back");
    let guard = waiting.wait().unwrap();
    send("CONT", minder);
    wait_until_dead(minder);
    assert!(guard.renew().is_ok() && !guard.is_lost(), "the next hold is not its own");
    guard.unlock().unwrap();

    let pid = host.dir.file("another");
    let mut holder = starts(
        &proxy.url(),
        "x --lease 2s --response-timeout 1s --kill-after 100ms",
        &script(&pid, IGNORES_TERM),
    );
    let minder = minder_of(process_in(&pid));
    proxy.set(Traffic::Commands, Rule::Swallow);
    holder.0.kill().unwrap();
    wait_until_dead(minder);
    ours.lock().unwrap().unlock().unwrap();
}

/// The server can't be reached when the program has ended, and is back much sooner than the lease ends.
#[test]
fn a_minder_tries_again_until_the_server_is_back() {
    let host = Host::new();
    let (mut holder, process) = host.holds("x --lease 1d --connect-timeout 300ms", "pid", "exec sleep 1000");
    let minder = minder_of(process);
    host.server.stop();
    holder.0.kill().unwrap();
    wait_until_dead(process);
    std::thread::sleep(Duration::from_millis(900)); // three attempts
    host.server.cont();
    wait_until_dead(minder);
    assert!(!host.lock("x").is_locked().unwrap());
}

/// The program of a stopped fairlock has ended when the next waiter has the lock.
fn ends_before_the_next_holder(mut holder: Running, process: u32, waiting: Request) {
    let guard = waiting.wait().unwrap();
    assert!(!is_alive(process));
    cont(&holder.0);
    assert_eq!(holder.status().code(), Some(123));
    guard.unlock().unwrap();
}

/// A minder that stood still gives the program less than its grace: KILL comes before the lease ends.
#[test]
fn a_minder_that_stood_still_kills_before_the_lease_ends() {
    let host = Host::new();
    let (holder, process) =
        host.holds("x --lease 3s --response-timeout 1s --kill-after 1500ms", "pid", IGNORES_TERM);
    let (minder, ours) = (minder_of(process), host.lock("x"));
    let waiting = ours.request().unwrap();
    stop(&holder.0);
    send("STOP", minder);
    eventually("less than the grace is left", || {
        ours.admin().inspect().unwrap().holder().unwrap().lease_left.unwrap() < Duration::from_millis(700)
    });
    send("CONT", minder);
    ends_before_the_next_holder(holder, process, waiting);
}

/// A minder that may not kill the program's process: then the lock ends with its lease.
#[test]
fn a_process_that_cannot_be_killed_has_the_lock_to_the_end() {
    if !nix::unistd::geteuid().is_root() {
        not_tested("a process that its minder may not kill, since only root can start one");
        return;
    }
    let host = Host::new();
    let pid = host.dir.file("pid");
    let program = script(&pid, "exec setpriv --reuid 65534 --clear-groups sleep 1000");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set", "-kill", FAIRLOCK]).env("FAIRLOCK_REDIS", host.url());
    command.args(arguments(&words("x --lease 3s --response-timeout 1s --kill-after 200ms"), &program));
    let mut holder = Running::start(command);
    let process = process_in(&pid);
    let owner = || std::fs::metadata(format!("/proc/{process}")).unwrap().uid();
    eventually("it is another user's", || owner() != 0);
    holder.0.kill().unwrap();
    let killed = Instant::now();
    let guard = host.lock("x").try_lock_for(SOON).unwrap().granted().expect("its lease ends");
    assert!(killed.elapsed() > Duration::from_millis(1500) && is_alive(process), "{:?}", killed.elapsed());
    guard.unlock().unwrap();
    send("KILL", process);
}

#[test]
fn without_its_minder_the_program_is_killed() {
    let host = Host::new();
    let (mut holder, process) = host.holds("x", "pid", IGNORES_TERM);
    send("KILL", minder_of(process));
    assert_eq!(holder.status().code(), Some(123));
    wait_until_dead(process);
    host.lock("x").try_lock().unwrap().granted().expect("it was released").unlock().unwrap();
}
