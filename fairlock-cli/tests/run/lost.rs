//! The hold is lost: the program is ended in time.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Proxy, eventually};
use nix::time::{ClockId, clock_gettime};

use super::several;
use crate::support::{Host, Running, fairlock, is_alive, process_in, script, starts, wait_until_dead};

/// A program whose lease can't be renewed ends before another owner has the lock.
#[test]
fn a_program_ends_before_another_owner_has_the_lock() {
    for trap in ["", "trap '' TERM;"] {
        let host = Host::new();
        let proxy = Proxy::start(host.server.port());
        let [pid, inner] = ["pid", "inner"].map(|name| host.dir.file(name));
        let program = script(&pid, &format!("{trap} sleep 1000 & echo $! > {}; wait; wait", inner.display()));
        let mut holder =
            starts(&proxy.url(), "x --lease 3s --response-timeout 1s --kill-after 500ms", &program);
        let (process, inner) = (process_in(&pid), process_in(&inner));
        let waiting = host.lock("x").request().unwrap();
        proxy.set(Traffic::Commands, Rule::Swallow);
        let guard = waiting.wait().unwrap();
        assert!(!is_alive(process) && !is_alive(inner));
        holder.output().gave(123).with(&["; the program was ended"]);
        guard.unlock().unwrap();
    }
}

/// KILL comes a twentieth of the lease before its end: a busy machine takes its time for it.
#[test]
fn a_program_is_killed_well_before_its_lease_ends() {
    let host = Host::new();
    let proxy = Proxy::start(host.server.port());
    let pid = host.dir.file("pid");
    let holder = starts(&proxy.url(), "x --lease 10s", &script(&pid, "trap '' TERM; sleep 1000"));
    let (process, ours) = (process_in(&pid), host.lock("x"));
    proxy.set(Traffic::Commands, Rule::Swallow);
    let mut left = None;
    while is_alive(process) {
        left = ours.admin().inspect().unwrap().holder().and_then(|holder| holder.lease_left);
    }
    assert!(left.is_some_and(|left| left > Duration::from_millis(250)), "{left:?}");
    drop(holder);
    ours.lock().unwrap().unlock().unwrap();
}

/// The server says so only when the hold is given back.
#[test]
fn a_hold_that_was_gone_at_the_release_is_told() {
    let host = Host::new();
    let (mut holder, _) = host.holds("x", "pid", &host.until("end"));
    assert_eq!(host.server.query::<i64>(&["DEL", "x"]), 1);
    host.makes("end");
    holder.output().gave(123).with(&["; the program had already ended by itself\n"]);
}

/// A program whose lock is taken by force gets TERM at once, and KILL after its grace.
#[test]
fn a_force_sends_the_program_term_and_later_kill() {
    let host = Host::new();
    let [pid, told] = ["pid", "told"].map(|name| host.dir.file(name));
    // The shell waits for its trap, which never ends by itself.
    // The trap stands before the pid file: the test sends TERM as soon as that exists.
    let wait = script(&pid, "while :; do sleep 0.1; done");
    let program = format!("trap 'touch {}; sleep 1000' TERM; {wait}", told.display());
    let mut holder = host.starts("x --kill-after 1s", &program);
    let process = process_in(&pid);
    let taken = Instant::now();
    assert!(host.lock("x").admin().force_unlock().unwrap());
    holder.output().gave(123).with(&["taken by force"]);
    assert!(taken.elapsed() >= Duration::from_millis(900), "{:?}: it had its grace", taken.elapsed());
    assert!(told.exists(), "TERM came first");
    wait_until_dead(process);
}

/// A hold that was taken is not certain any more, and the minder may hear of that first.
#[test]
fn a_minder_waits_for_the_word_that_a_lock_was_taken() {
    let mut command = fairlock("redis://127.0.0.1:1", &["__minder", "1000", "x"]);
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut minder = Running(command.spawn().unwrap());
    let mut said = BufReader::new(minder.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.next().unwrap(), "ready");
    let mut program = Command::new("sh");
    program.args(["-c", "trap '' TERM; exec sleep 1000"]).process_group(minder.0.id().cast_signed());
    let mut program = Running(program.spawn().unwrap());
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    let mut tell = minder.0.stdin.take().unwrap();
    writeln!(tell, "until {}\nuntil {}", (now + Duration::from_secs(60)).as_nanos(), now.as_nanos()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let taken = Instant::now();
    writeln!(tell, "taken").unwrap();
    assert_eq!(said.next().unwrap(), "ending");
    program.status();
    assert!(taken.elapsed() >= Duration::from_millis(900), "{:?}: it had its grace", taken.elapsed());
}

#[test]
fn a_program_that_exceeds_max_hold_is_ended() {
    let host = Host::new();
    let start = Instant::now();
    let (mut holder, process) = host.holds("x --max-hold 2s --kill-after 500ms", "pid", "sleep 1000");
    let words = "fairlock: lock x was held for as long as --max-hold allows; the program was ended\n";
    holder.output().is(123, "", words);
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    wait_until_dead(process);
}

/// Between the grants, too: nobody has to wait for longer.
#[test]
fn max_hold_counts_from_the_first_grant() {
    let host = Host::new();
    let guard = host.lock("b").lock().unwrap();
    let mut waits = several::between(&host, "--max-hold 3s --kill-after 200ms");
    waits.output().gave(123).with(&["; the program was not started"]);
    eventually("its time is over", || !host.lock("a").is_locked().unwrap());
    guard.unlock().unwrap();
}
