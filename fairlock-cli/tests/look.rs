//! `show`, `ls`, and `unlock` against real servers.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{Acquire, Backend, LockId, Place, RequestId, only};
use fairlock::owner::OwnerId;
use fairlock::settings::Discipline;
use fairlock::{Client, RedisBackend};
use fairlock_tests::eventually;
use serde_json::Value;

use crate::support::{FAIRLOCK, Host, Running, SOON, fairlock, only_row, says, wait_for_queue, words};

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect()
}

#[test]
fn show_shows_the_holder_and_the_queue_in_order() {
    let host = Host::new();
    host.says("show x").is(0, "lock    x\nholder  none\nqueue   empty\n", "");
    let nothing = serde_json::json!({
        "version": 1, "name": "x", "kind": null, "permits": null, "holder": null, "holders": [], "waiting": 0, "absent": 0,
        "queue": []
    });
    assert_eq!(host.json("show x --json"), nothing);

    let guard = host.lock("x").lock().unwrap();
    let first = host.lock("x").request().unwrap();
    let second = host.client("nightly").fair_lock("x").unwrap().request().unwrap();
    // A label that our client refuses.
    let places = "fairlock_record:{x}";
    let kept: Vec<(String, String)> = host.server.query(&["HGETALL", places]);
    let (member, place) = kept.iter().find(|(_, place)| place.contains("nightly (")).unwrap();
    host.server.query::<()>(&["HSET", places, member, &place.replace("nightly", "night\u{1b}ly")]);

    let seen = host.json("show x --json");
    let (holder, process) = (&seen["holder"], Some(u64::from(std::process::id())));
    assert_eq!(holder["owner"].as_str(), Some(guard.owner().as_str()));
    assert_eq!(holder["token"].as_u64(), Some(guard.token().get()));
    assert_eq!((holder["hold_count"].as_u64(), holder["process"].as_u64()), (Some(1), process));
    assert!(holder["host"].is_string() && holder["held_for_ms"].as_u64().unwrap() < 20_000);
    assert!((1..=30_000).contains(&holder["lease_left_ms"].as_u64().unwrap()));
    assert_eq!((&seen["kind"], &seen["holders"][0]), (&"exclusive".into(), holder));
    let queue = seen["queue"].as_array().unwrap();
    assert_eq!((queue.len(), queue[0]["process"].as_u64()), (2, process));
    assert!(queue[1]["label"].as_str().unwrap().starts_with("night\u{1b}ly ("), "{seen}");
    let left = queue[0]["place_left_ms"].as_u64().unwrap();
    assert!((1..=5_000).contains(&left) && queue[0]["waiting_ms"].is_u64());

    let said = host.says("show x --wide").out;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[1].starts_with("holder  ") && lines[1].contains(guard.owner().as_str()), "{said}");
    assert!(lines[2].contains("lease left") && lines[3].contains(&guard.token().to_string()), "{said}");
    assert_eq!(lines[4], "queue   2 waiting");
    assert!(lines[5].contains(", waiting for ") && lines[5].contains(", place kept for "), "{said}");
    assert!(lines[6].starts_with("     2  night\\u{1b}ly ("), "{said}");
    drop((first, second));
    guard.unlock().unwrap();
}

/// A place that is kept for half a second, of a process that is gone.
fn dies_in_queue(backend: &RedisBackend, lock: &LockId, number: u64) {
    let owner = OwnerId::new(&format!("00000000-0000-4000-8000-000000000000:{number}"));
    let mut place = Place::new(lock, &owner, RequestId::new(number));
    place.ttl = Duration::from_millis(500);
    only(backend.acquire(&[Acquire::new(place, Duration::from_secs(1))])).unwrap();
}

#[test]
fn an_absent_waiter_is_marked_and_not_counted() {
    let server = fairlock_tests::RedisServer::start();
    let url = server.url();
    let backend = RedisBackend::connect(&url).unwrap();
    let of = |name, kind| LockId::new(LockName::new(name).unwrap(), kind);
    let locks = [
        of("used", LockKind::Fair),
        of("idle", LockKind::Fair),
        of("permits", LockKind::Semaphore { permits: 1 }),
    ];
    let guard = crate::support::lock(&server, "used").lock().unwrap();
    // No heartbeat comes meanwhile: by it the queue's clock would fall behind the server's, and the absent be present again.
    let alive = Client::builder(RedisBackend::connect(&url).unwrap()).place_ttl(SOON * 3).build().unwrap();
    let alive = alive.fair_lock("used").unwrap().request().unwrap();
    // The first takes the lock that is free.
    for number in 1..=3 {
        locks.iter().for_each(|lock| dies_in_queue(&backend, lock, number));
    }
    let show = |name: &str| says(&url, &format!("show {name}")).out;
    for (name, line) in
        [("used", "1 waiting, 3 absent"), ("idle", "empty, 2 absent"), ("permits", "empty, 2 absent")]
    {
        let line = format!("queue   {line}\n");
        eventually("their times are over", || show(name).contains(&line));
        assert!(show(&format!("{name} --lines=0")).contains(&line));
    }
    let is_free = |name: &&str| show(name).contains("none");
    eventually("the leases are over", || ["idle", "permits"].iter().all(is_free));

    let shown = show("used");
    let marked: Vec<bool> = shown.lines().skip(5).map(|line| line.ends_with(", absent")).collect();
    assert_eq!(marked, [false, true, true, true], "{shown}");
    let seen = says(&url, "show used --json").json();
    assert_eq!((&seen["waiting"], &seen["absent"]), (&1.into(), &3.into()));
    let absent: Vec<_> = seen["queue"].as_array().unwrap().iter().map(|waiter| &waiter["absent"]).collect();
    assert_eq!(absent, [false, true, true, true]);
    for name in ["idle", "permits"] {
        let seen = says(&url, &format!("show {name} --json")).json();
        assert_eq!((&seen["waiting"], &seen["absent"], &seen["kind"]), (&0.into(), &2.into(), &Value::Null));
    }
    // A queue of absent waiters alone is none.
    let listed = says(&url, "ls --json").json();
    assert_eq!(names(&listed), ["used"]);
    assert_eq!((&listed[0]["waiting"], &listed[0]["absent"]), (&1.into(), &3.into()));
    assert_eq!(only_row(&says(&url, "ls").out)[3], "1");
    drop(alive);
    guard.unlock().unwrap();
}

#[test]
fn show_is_one_round_trip() {
    let host = Host::new();
    let scripts = || {
        let stats: String = host.server.query(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<u32>().unwrap())
    };
    host.says("show x");
    let before = scripts();
    host.says("show x");
    assert_eq!(scripts(), before + 1);
}

#[test]
fn what_is_watched_is_shown_again_and_again() {
    for command in ["show x --json --watch=100ms", "ls --json --watch=100ms"] {
        let host = Host::new();
        let guard = host.lock("x").lock().unwrap();
        let mut watch = Running::start(fairlock(&host.url(), &words(command)));
        let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
        let mut is_held = || match serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() {
            Value::Array(locks) => !locks.is_empty(),
            lock => lock["holder"].is_object(),
        };
        assert!(is_held());
        guard.unlock().unwrap();
        while is_held() {}
        assert!(!is_held());
    }
}

#[test]
fn ls_lists_locks_that_are_held_or_waited_for_and_nothing_else() {
    let host = Host::new();
    let held = [host.lock("orders:1"), host.lock("orders:{2}"), host.client("").plain_lock("bills").unwrap()];
    let held = held.map(|lock| lock.lock().unwrap());
    let theirs = host.lock("orders:1");
    let waited = theirs.request().unwrap();
    drop(host.lock("orders:was").lock().unwrap());
    // A lock of Java's, and keys that are no locks.
    let java = "0d1a8b3c-5f0e-4c43-9d05-6c2f0c1f4a11:57";
    for command in [
        &["HSET", "java", java, "1"][..],
        &["PEXPIRE", "java", "60000"],
        &["HSET", "hash", "a", "1"],
        &["HSET", "other", "a", "b", "c", "d"],
        &["SET", "text", "a"],
        &["EVAL", "for n = 1, 700 do redis.call('SET', 'filler:' .. n, 'a') end", "0"],
    ] {
        host.server.query::<()>(command);
    }
    let all = host.json("ls --json");
    assert_eq!(names(&all), ["bills", "java", "orders:1", "orders:{2}"]);
    assert_eq!(all[0]["version"], 1);
    assert_eq!(all[1]["holder"]["owner"].as_str(), Some(java));
    assert_eq!(all[2]["waiting"], 1);
    assert_eq!(names(&host.json("ls orders:* --json")), ["orders:1", "orders:{2}"]);
    assert_eq!(names(&host.json("ls orders:{?} --json")), ["orders:{2}"]);
    let said = host.says("ls").out;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 5 && lines[0].starts_with("LOCK       "), "{said}");
    let row = lines.iter().find(|line| line.starts_with("orders:1 ")).unwrap();
    assert_eq!(row.split_whitespace().rev().nth(1), Some("1"), "{said}");
    let calls: String = host.server.query(&["INFO", "commandstats"]);
    assert!(calls.contains("cmdstat_scan") && !calls.contains("cmdstat_keys"));
    drop(waited);
    wait_for_queue(&theirs, 0);
    held.into_iter().for_each(|guard| guard.unlock().unwrap());
    assert_eq!(names(&host.json("ls --json")), ["java"]);
    host.server.query::<()>(&["FLUSHALL"]);
}

#[test]
fn ls_lists_the_waiters_of_either_queue() {
    let host = Host::new();
    let of = |name: &str, discipline: Discipline| {
        let backend = RedisBackend::builder(&host.url()).discipline(discipline).connect().unwrap();
        Client::new(backend).unwrap().fair_lock(name).unwrap()
    };
    let theirs = of("theirs", Discipline::Redisson).lock().unwrap();
    let waiting = of("theirs", Discipline::Redisson).request().unwrap();
    let ours = of("ours", Discipline::HandOff).lock().unwrap();
    let waiting_too = of("ours", Discipline::HandOff).request().unwrap();
    // A waiter of Java's for a free lock.
    let java = "0d1a8b3c-5f0e-4c43-9d05-6c2f0c1f4a11:57";
    host.server.query::<()>(&["RPUSH", "redisson_lock_queue:{free}", java]);
    for discipline in ["hand-off", "redisson"] {
        let seen = host.json(&format!("--discipline {discipline} ls --json"));
        assert_eq!(names(&seen), ["free", "ours", "theirs"], "{discipline}");
        let waiting = |lock: &Value| lock["waiting"].as_u64().unwrap();
        assert!(seen.as_array().unwrap().iter().all(|lock| waiting(lock) == 1), "{discipline}: {seen}");
    }
    // The other queue is optional: a user without the right to it still sees its own.
    let rules =
        "ACL SETUSER worker on >canary ~ours ~fairlock_*:{ours} ~theirs ~fairlock_*:{theirs} +@all &*";
    host.server.query::<()>(&words(rules));
    let url = host.server.url_as("worker", "canary");
    assert_eq!(names(&says(&url, "ls *urs --json").json()), ["ours"]);
    let seen = says(&url, "ls theirs --json").json();
    assert_eq!((names(&seen), seen[0]["waiting"].as_u64()), (vec!["theirs"], Some(0)));
    drop((waiting, waiting_too));
    theirs.unlock().unwrap();
    ours.unlock().unwrap();
    host.server.query::<()>(&["FLUSHALL"]);
}

/// The address of a server, for a list of them.
#[cfg(feature = "night")]
fn host_of(url: &str) -> &str {
    url.trim_start_matches("redis://").trim_end_matches('/')
}

/// `ls` sees all nodes of a cluster, and the master behind sentinels.
#[cfg(feature = "night")]
#[test]
fn ls_sees_a_whole_cluster_and_the_master_of_sentinels() {
    use fairlock_tests::cluster::{Cluster, Replicas};

    let cluster = Cluster::start(Replicas::None);
    let url = format!("redis+cluster://{}", host_of(&cluster.urls()[0]));
    let client = Client::new(RedisBackend::connect(&url).unwrap()).unwrap();
    let wanted: Vec<String> = (0..12).map(|n| format!("lock:{n:02}")).collect();
    let guards: Vec<_> = wanted.iter().map(|name| client.fair_lock(name).unwrap().lock().unwrap()).collect();
    assert_eq!(names(&says(&url, "ls --json").json()), wanted);
    drop(guards);
    let seen = says(&url, &format!("run lock:run -- {FAIRLOCK} show lock:run --json")).json();
    assert_eq!(seen["holder"]["hold_count"], 1, "the command holds it while its program runs");
    let seen = says(&url, &format!("run --permits 2 lock:run -- {FAIRLOCK} ls --json")).json();
    assert_eq!((names(&seen), &seen[0]["kind"]), (vec!["lock:run"], &"semaphore".into()));

    let sentinels = fairlock_tests::Sentinels::start();
    let hosts: Vec<String> = sentinels.urls().iter().map(|url| host_of(url).to_owned()).collect();
    let url = format!("redis+sentinel://{}/mymaster", hosts.join(","));
    let seen = says(&url, &format!("run x -- {FAIRLOCK} ls --json")).json();
    assert_eq!(names(&seen), ["x"]);
}

#[test]
fn unlock_takes_the_lock_away_with_yes() {
    let host = Host::new();
    let guard = host.lock("x").lock().unwrap();
    host.says("unlock x").failed(125, &["from its holder", "confirm with --yes"]);
    assert!(!guard.is_lost());
    host.says("unlock x --yes").gave(0).with(&["x was taken from "]);
    guard.lost().recv_timeout(SOON).expect("the holder is told");
    host.says("unlock x --yes").is(1, "", "fairlock: x is not held\n");
}

#[test]
fn no_at_the_terminal_takes_nothing_away() {
    let host = Host::new();
    let guard = host.lock("x").lock().unwrap();
    for (answer, code, lost) in [("n\n", 1, false), ("\n", 1, false), ("y\n", 0, true)] {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        let command = pty_process::blocking::Command::new(FAIRLOCK).env("FAIRLOCK_REDIS", host.url());
        let command = command.args(["unlock", "x"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running(command.spawn(pts).unwrap());
        (&pty).write_all(answer.as_bytes()).unwrap();
        assert_eq!(running.status().code(), Some(code), "{answer:?}");
        if lost {
            guard.lost().recv_timeout(SOON).expect("it is taken");
        }
        assert_eq!(guard.is_lost(), lost);
    }
    assert!(guard.valid_for() == Duration::ZERO);
}
