//! A server that refuses, or does not answer: 122 with its reason and in time, and never 124, which says that another owner has
//! the lock.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fairlock_tests::{Pair, Proxy, RedisServer, WorkDir, eventually};

use crate::support::{
    Host, Running, arguments, fairlock, lock, process_in, script, starts, wait_for_queue, wait_until_dead,
    words,
};

/// More than the time-outs of the last calls, and much less than the ten seconds for which a call goes on without an answer.
const IN_TIME: Duration = Duration::from_secs(6);

/// Short time-outs for these commands: the environment of the tests sets 5 s.
const ANSWERS: &str = "--connect-timeout 1s --response-timeout 1s";

/// What the command says that ends within this time.
#[track_caller]
fn within<T>(time: Duration, ends: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let said = ends();
    assert!(began.elapsed() < time, "{:?}", began.elapsed());
    said
}

/// A server that is killed, and one that is stopped.
fn each_way_to_go(story: impl Fn(RedisServer, fn(&RedisServer))) {
    [RedisServer::kill, RedisServer::stop].into_iter().for_each(|go| story(RedisServer::start(), go));
}

/// A server that goes on refusing ends the wait at once, with the server's reason.
#[test]
fn a_server_that_goes_on_refusing_ends_the_wait() {
    let master = RedisServer::start();
    let of_master = format!("127.0.0.1 {}", master.port());
    let replica = RedisServer::builder().arg("replicaof", &of_master).start();
    eventually("the replica has its master's data", || {
        replica.query::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let full = Host::new();
    full.server.query::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let of = format!("it takes no writes (REPLICA of {})", master.address());
    // A replica is a wrong address; a full server may have room later.
    for (url, code, reason) in
        [(replica.url(), 125, &*of), (full.url(), 122, "the server is out of memory (OOM")]
    {
        for options in ["x -E 75", "x -E 75 --wait 0", "x -E 75 --wait 1m"] {
            within(IN_TIME, || starts(&url, options, "echo no").output()).failed(code, &[reason]);
        }
    }
    full.server.query::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
}

/// A command whose first attempt to connect has failed.
fn not_connected(dir: &WorkDir, url: &str, options: &str) -> Running {
    let log = dir.file("log");
    let mut command = fairlock(url, &arguments(&[&["-v"], &*words(options)].concat(), "exit 7"));
    let started = command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn();
    eventually("an attempt has failed", || {
        std::fs::read_to_string(&log).unwrap().contains("not connected yet: the store is unavailable: ")
    });
    Running(started.unwrap())
}

#[test]
fn a_server_that_is_away_or_full_at_the_start_is_waited_for() {
    let (server, dir) = (RedisServer::builder().requirepass("canary").start(), WorkDir::new());
    for options in ["x", "x --wait 30s"] {
        server.kill();
        let mut waits = not_connected(&dir, &server.url(), options);
        server.restart();
        assert_eq!(waits.status().code(), Some(7), "{options}");
        // One connection is too few: the second is for wake-ups.
        for free in [0, 1] {
            let others = [(); 3].map(|()| server.con());
            let limit = |most: usize| {
                server.query::<()>(&["CONFIG", "SET", "maxclients", &most.to_string()]);
            };
            limit(others.len() + free);
            let mut waits = not_connected(&dir, &server.url(), options);
            drop(others);
            assert_eq!(waits.status().code(), Some(7), "{options}");
            limit(100);
        }
    }
    // What would be the same the next time is told at once.
    let wrong =
        within(IN_TIME, || starts(&server.url_as("", "wrong-canary"), "x --wait 1m", "true").output());
    wrong.failed(125, &["password"]);
}

#[test]
fn a_server_that_goes_away_during_the_wait_gives_122_in_time() {
    each_way_to_go(|server, go| {
        let ours = lock(&server, "x");
        let guard = ours.lock().unwrap();
        let said = within(Duration::from_secs(3) + IN_TIME, || {
            let mut waits = starts(&server.url(), &format!("x --wait 3s {ANSWERS}"), "echo no");
            wait_for_queue(&ours, 1);
            go(&server);
            waits.output()
        });
        let words = "x was not acquired within 3.0s: the store is unavailable (lock `x`): Redis at";
        said.failed(122, &[words]);
        drop(guard);
    });
}

const KEEPS: &str = " could not be released, and the store keeps it until its lease ends, for ";

/// A server that is gone when the program was ended for the loss of its lock does not hold the command up.
#[test]
fn a_server_gone_at_a_loss_does_not_hold_the_command_up() {
    each_way_to_go(|server, go| {
        let dir = WorkDir::new();
        let pid = dir.file("pid");
        let mut holder =
            starts(&server.url(), &format!("x --lease 4s {ANSWERS}"), &script(&pid, "exec sleep 1000"));
        let process = process_in(&pid);
        go(&server);
        wait_until_dead(process);
        let kept = format!("; lock x{KEEPS}4.0s at most: ");
        within(IN_TIME, || holder.output()).failed(123, &["; the program was ended", &kept]);
    });
}

/// A server that is gone when the program ends does not hold the command up.
#[test]
fn a_server_gone_at_the_end_does_not_hold_the_command_up() {
    each_way_to_go(|server, go| {
        let dir = WorkDir::new();
        let (pid, end) = (dir.file("pid"), dir.file("end"));
        let program = script(&pid, &format!("until test -e {}; do sleep 0.01; done; exit 7", end.display()));
        let run = |options: &str| {
            let holder = starts(&server.url(), &format!("{options} {ANSWERS}"), &program);
            process_in(&pid);
            std::fs::remove_file(&pid).unwrap();
            holder
        };
        let (mut one, mut two) = (run("x"), run("y z"));
        go(&server);
        std::fs::write(&end, "").unwrap();
        let (of_one, of_two) =
            (format!("fairlock: lock x{KEEPS}30s at most: "), format!(" and 1 more{KEEPS}"));
        within(IN_TIME, || {
            one.output().failed(7, &[&of_one]);
            two.output().failed(7, &["fairlock: lock ", &of_two]);
        });
    });
}

/// The only attempt of `-n` is not answered.
#[test]
fn a_signal_ends_a_command_whose_only_attempt_is_under_way() {
    let host = Host::new();
    host.server.query::<()>(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let mut tries = host.starts(&format!("-n x {ANSWERS}"), "echo no");
    eventually("it waits for an answer", || {
        host.server.query::<String>(&["CLIENT", "LIST"]).lines().any(|line| line.contains(" flags=b "))
    });
    tries.signal("INT");
    within(IN_TIME, || tries.output()).ended_by(2);
    host.server.query::<()>(&["CLIENT", "UNPAUSE"]);
}

/// Its connections lead to the former master, which is a replica now.
#[test]
fn a_program_runs_on_while_its_address_leads_to_another_master() {
    let (pair, dir) = (Pair::start(), WorkDir::new());
    let proxy = Proxy::start(pair.first.port());
    let (pid, done) = (dir.file("pid"), dir.file("done"));
    let until_done = format!("until test -e {}; do sleep 0.05; done; exit 7", done.display());
    let mut holds = starts(
        &proxy.url(),
        &format!("x --lease 4s --kill-after 100ms {ANSWERS}"),
        &script(&pid, &until_done),
    );
    process_in(&pid);
    let mut waits = starts(&proxy.url(), &format!("x --lease 4s --kill-after 100ms {ANSWERS}"), "echo in");
    wait_for_queue(&lock(&pair.first, "x"), 1);
    pair.fail_over();
    proxy.lead_to(pair.second.port());
    std::thread::sleep(Duration::from_secs(5)); // longer than the lease
    std::fs::write(done, "").unwrap();
    holds.output().gave(7);
    waits.output().gave(0);
}
