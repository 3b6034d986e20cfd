//! Real processes on one lock: they take turns, and some are really killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Lock, RedisBackend};
use fairlock_tests::history::{check_overlap, check_token_order, count, read};
use fairlock_tests::{RedisServer, WorkDir, Worker, assert_no_residue, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
const SOON: Duration = Duration::from_secs(10);

fn lock(server: &RedisServer, name: &str) -> Lock {
    client(server).fair_lock(name).unwrap()
}

fn client(server: &RedisServer) -> Client {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    Client::builder(backend).build().unwrap()
}

/// What the server did, as MONITOR tells it: who joined the line, and who got the lock.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Joined(String),
    Granted(String),
}

/// Watches the commands that scripts run on one lock, until the connection ends.
fn watch(server: &RedisServer, lock: &'static str) -> Receiver<Seen> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.write_all(b"MONITOR\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "+OK");
    let (sender, seen) = channel();
    thread::spawn(move || {
        let joined = format!("\"RPUSH\" \"redisson_lock_queue:{{{lock}}}\" \"");
        let granted = format!("\"HSET\" \"{lock}\" \"");
        for line in lines.map_while(Result::ok) {
            let owner_after = |words: &str| Some(line.split_once(words)?.1.split('"').next()?.to_owned());
            let event =
                owner_after(&joined).map(Seen::Joined).or_else(|| owner_after(&granted).map(Seen::Granted));
            if event.is_some_and(|event| sender.send(event).is_err()) {
                return;
            }
        }
    });
    seen
}

/// Every grant went to the first in line, or to a newcomer when nobody was.
fn check_order(seen: &[Seen]) {
    let mut line = std::collections::VecDeque::new();
    for event in seen {
        match event {
            Seen::Joined(owner) => line.push_back(owner),
            Seen::Granted(owner) => match line.pop_front() {
                None => {}
                Some(first) => assert_eq!(owner, first, "out of order"),
            },
        }
    }
    assert!(line.is_empty(), "still in line: {line:?}");
}

#[test]
fn sixteen_processes_take_a_hundred_turns_each_alone_and_in_order() {
    let _alone = fairlock_tests::Alone::here();
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let seen = watch(&server, "turns");
    let histories: Vec<_> = (0..16).map(|number| dir.file(&format!("history-{number}"))).collect();
    let mut workers: Vec<Worker> = histories
        .iter()
        .map(|file| {
            Worker::start(PROGRAM, &["turns", &server.url(), "turns", "100", "10", file.to_str().unwrap()])
        })
        .collect();
    workers.iter_mut().for_each(Worker::go);
    for worker in &workers {
        // A place is never lost, and a wake-up never has to be made up for by a look without one.
        worker.expect("polled 0 places_lost 0", Duration::from_secs(120));
    }
    assert_eq!(server.query::<u32>(&["GET", "test:counter"]), 1600);
    let events: Vec<_> = histories.iter().flat_map(|file| read(file).unwrap()).collect();
    assert_eq!(count(&events, "turns"), 1600);
    check_overlap(&events).unwrap();
    check_token_order(&events).unwrap();
    let mut order = Vec::new();
    while order.iter().filter(|event| matches!(event, Seen::Granted(_))).count() < 1600 {
        order.push(seen.recv_timeout(SOON).unwrap());
    }
    check_order(&order);
    drop(workers);
    assert_no_residue(&server, &["test:counter"]);
}

#[test]
fn a_killed_holder_is_replaced_when_its_lease_ends() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let lease = Duration::from_millis(1500);
    let mut holder = Worker::start(PROGRAM, &["hold", &server.url(), "killed", "1500"]);
    holder.go();
    holder.expect("held", SOON);
    let request = lock(&server, "killed").request().unwrap();
    holder.kill();
    let killed = Instant::now();
    let guard = request.wait().unwrap();
    assert!(killed.elapsed() <= lease + Duration::from_millis(250), "{:?}", killed.elapsed());
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_killed_waiter_delays_the_others_by_redissons_rule_and_no_longer() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let (ours, queue) = (lock(&server, "waiter"), "redisson_lock_queue:{waiter}");
    let guard = ours.lock().unwrap();
    let mut dead = Worker::start(PROGRAM, &["hold", &server.url(), "waiter", "30000"]);
    dead.go();
    let line = || server.query::<Vec<String>>(&["LRANGE", queue, "0", "-1"]);
    eventually(SOON, "it stands in line", || line().len() == 1);
    let owner = line().remove(0);
    let alive = lock(&server, "waiter").request().unwrap();
    dead.kill();
    guard.unlock().unwrap();
    // Redisson's rule: its time is the lease's end and five minutes. It is still ahead of the living one,
    let timeouts = "redisson_lock_timeout:{waiter}";
    let (seconds, _): (i64, i64) = server.query(&["TIME"]);
    let score: i64 = server.query(&["ZSCORE", timeouts, &owner]);
    assert!((score / 1000 - seconds - 330).abs() <= 3, "{score}");
    assert_eq!(alive.rank(), Some(1));
    assert!(alive.receiver().try_recv().is_err());
    // and passed over once that is over: the living one's heartbeat finds out, with no message from anybody.
    server.query::<i64>(&["ZADD", timeouts, &(seconds * 1000).to_string(), &owner]);
    let over = Instant::now();
    alive.wait().unwrap().unlock().unwrap();
    assert!(over.elapsed() < Duration::from_secs(5) / 3 + Duration::from_secs(1), "{:?}", over.elapsed());
    assert_no_residue(&server, &[]);
}

#[test]
fn a_holder_whose_connections_are_cut_loses_nothing() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let ours = lock(&server, "cut");
    let guard = ours.lock().unwrap();
    let request = lock(&server, "cut").request().unwrap();
    let token = guard.token();
    for kind in ["normal", "pubsub"] {
        server.query::<i64>(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
    assert!(guard.renew().is_ok() || guard.renew().is_ok(), "the first call may meet the cut connection");
    assert!(!guard.is_lost() && guard.token() == token);
    guard.unlock().unwrap();
    request.wait().unwrap().unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_process_that_exits_without_a_word_is_one_that_was_killed() {
    let _alone = fairlock_tests::Alone::here();
    let server = RedisServer::start();
    let mut holder = Worker::start(PROGRAM, &["hold", &server.url(), "exit", "1000"]);
    holder.go();
    holder.expect("held", SOON);
    drop(holder); // SIGKILL
    let got = lock(&server, "exit").try_lock_for(Duration::from_secs(3)).unwrap();
    got.expect("the lease has ended").unlock().unwrap();
    assert_no_residue(&server, &[]);
}
