//! `show`, `ls`, `unlock` and `kick` against real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use fairlock::backend::{Acquire, Backend, LockId, Place, RequestId};
use fairlock::{Client, Discipline, LockKind, LockName, OwnerId, RedisBackend};
use fairlock_tests::cluster::{Cluster, Replicas};
use fairlock_tests::{RedisServer, Sentinels, assert_no_residue, eventually};
use serde_json::Value;

use support::{Running, SOON, fairlock, lock, output, text, wait_for_line};

fn json(url: &str, arguments: &[&str]) -> Value {
    let said = output(url, arguments);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect()
}

#[test]
fn show_shows_the_holder_and_the_line_in_order() {
    let server = RedisServer::start();
    let ours = lock(&server, "x");
    let said = output(&server.url(), &["show", "x"]);
    assert_eq!(text(&said.stdout), "lock    x\nholder  none\nline    empty\n");
    assert_eq!(
        json(&server.url(), &["show", "x", "--json"]),
        serde_json::json!({
            "name": "x", "kind": null, "permits": null, "holder": null, "holders": [], "waiting": 0, "absent": 0,
            "line": []
        })
    );

    let guard = ours.lock().unwrap();
    let first = lock(&server, "x").request().unwrap();
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::HandOff).connect().unwrap();
    let second =
        Client::builder(backend).label("nightly").build().unwrap().fair_lock("x").unwrap().request().unwrap();
    // A label that our client refuses.
    let places = "fairlock_record:{x}";
    let kept: Vec<(String, String)> = server.query(&["HGETALL", places]);
    let (member, place) = kept.iter().find(|(_, place)| place.ends_with("nightly")).unwrap();
    server.query::<()>(&["HSET", places, member, &place.replace("nightly", "night\u{1b}ly")]);

    let seen = json(&server.url(), &["show", "x", "--json"]);
    let holder = &seen["holder"];
    assert_eq!(holder["owner"].as_str(), Some(guard.owner().as_str()));
    assert_eq!(holder["token"].as_u64(), Some(guard.token().get()));
    assert_eq!(
        (holder["hold_count"].as_u64(), holder["process"].as_u64()),
        (Some(1), Some(std::process::id().into()))
    );
    assert!(holder["host"].is_string() && holder["held_for_ms"].as_u64().unwrap() < 20_000);
    assert!((1..=30_000).contains(&holder["lease_left_ms"].as_u64().unwrap()));
    assert_eq!((&seen["kind"], &seen["holders"][0]), (&"exclusive".into(), holder));
    let line = seen["line"].as_array().unwrap();
    assert_eq!((line.len(), line[0]["process"].as_u64()), (2, Some(std::process::id().into())));
    assert_eq!((line[1]["label"].as_str(), line[1]["process"].as_u64()), (Some("night\u{1b}ly"), None));
    assert!(
        (1..=5_000).contains(&line[0]["place_left_ms"].as_u64().unwrap()) && line[0]["waiting_ms"].is_u64()
    );

    let said = text(&output(&server.url(), &["show", "x", "--wide"]).stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[1].starts_with("holder  ") && lines[1].contains(guard.owner().as_str()), "{said}");
    assert!(lines[5].contains(", waiting for ") && lines[5].contains(", place kept for "), "{said}");
    assert!(lines[2].contains("lease left") && lines[3].contains(&guard.token().to_string()), "{said}");
    assert_eq!(lines[4], "line    2 waiting");
    assert!(lines[6].starts_with("     2  night\\u{1b}ly ("), "{said}");
    drop((first, second));
    guard.unlock().unwrap();
}

/// A place that is kept for half a second, of a process that is gone.
fn dies_in_line(backend: &RedisBackend, lock: &LockId, number: u64) {
    let owner = OwnerId::new(&format!("00000000-0000-4000-8000-000000000000:{number}"));
    let mut place = Place::new(lock, &owner, RequestId::new(number));
    place.ttl = Duration::from_millis(500);
    backend.acquire(&Acquire::new(place, Duration::from_secs(1))).unwrap();
}

#[test]
fn an_absent_waiter_is_marked_and_not_counted() {
    let server = RedisServer::start();
    let backend = RedisBackend::connect(&server.url()).unwrap();
    let of = |name, kind| LockId::new(LockName::new(name).unwrap(), kind);
    let (used, idle) = (of("used", LockKind::Fair), of("idle", LockKind::Fair));
    let permits = of("permits", LockKind::Semaphore { permits: 1 });
    let guard = lock(&server, "used").lock().unwrap();
    let alive = lock(&server, "used").request().unwrap();
    // The first takes the lock that is free.
    for number in 1..=3 {
        [&used, &idle, &permits].into_iter().for_each(|lock| dies_in_line(&backend, lock, number));
    }
    let show = |name: &str| text(&output(&server.url(), &["show", name]).stdout);
    for (name, line) in
        [("used", "1 waiting, 3 absent"), ("idle", "empty, 2 absent"), ("permits", "empty, 2 absent")]
    {
        let line = format!("line    {line}\n");
        eventually(SOON, "their times are over", || show(name).contains(&line));
        assert!(text(&output(&server.url(), &["show", name, "--lines=0"]).stdout).contains(&line));
    }
    eventually(SOON, "the leases are over", || {
        show("idle").contains("none") && show("permits").contains("none")
    });

    let shown = show("used");
    let marked: Vec<bool> = shown.lines().skip(5).map(|line| line.ends_with(", absent")).collect();
    assert_eq!(marked, [false, true, true, true], "{shown}");
    let seen = json(&server.url(), &["show", "used", "--json"]);
    assert_eq!((&seen["waiting"], &seen["absent"]), (&1.into(), &3.into()));
    let absent: Vec<_> = seen["line"].as_array().unwrap().iter().map(|waiter| &waiter["absent"]).collect();
    assert_eq!(absent, [false, true, true, true]);
    for name in ["idle", "permits"] {
        let seen = json(&server.url(), &["show", name, "--json"]);
        assert_eq!((&seen["waiting"], &seen["absent"], &seen["kind"]), (&0.into(), &2.into(), &Value::Null));
    }
    // A line of absent waiters alone is none.
    let listed = json(&server.url(), &["ls", "--json"]);
    assert_eq!(names(&listed), ["used"]);
    assert_eq!((&listed[0]["waiting"], &listed[0]["absent"]), (&1.into(), &3.into()));
    assert!(text(&output(&server.url(), &["ls"]).stdout).ends_with(", 1 waiting\n"));
    drop(alive);
    guard.unlock().unwrap();
}

#[test]
fn show_is_one_round_trip() {
    let server = RedisServer::start();
    let scripts = || {
        let stats: String = server.query(&["INFO", "commandstats"]);
        let line =
            stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).map(str::to_owned);
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<u32>().unwrap())
    };
    output(&server.url(), &["show", "x"]);
    let before = scripts();
    output(&server.url(), &["show", "x"]);
    assert_eq!(scripts(), before + 1);
}

#[test]
fn a_watched_lock_is_shown_again_and_again() {
    let server = RedisServer::start();
    let guard = lock(&server, "x").lock().unwrap();
    let mut watch = Running::start(fairlock(&server.url(), &["show", "x", "--json", "--watch=100ms"]));
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert!(next()["holder"].is_object());
    guard.unlock().unwrap();
    while next()["holder"].is_object() {}
    assert!(next()["holder"].is_null());
}

#[test]
fn watched_locks_are_listed_again_and_again() {
    let server = RedisServer::start();
    let guard = lock(&server, "x").lock().unwrap();
    let mut watch = Running::start(fairlock(&server.url(), &["ls", "--json", "--watch=100ms"]));
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(names(&next()), ["x"]);
    guard.unlock().unwrap();
    while !names(&next()).is_empty() {}
}

#[test]
fn ls_lists_locks_that_are_held_or_waited_for_and_nothing_else() {
    let server = RedisServer::start();
    let held = lock(&server, "orders:1").lock().unwrap();
    let braces = lock(&server, "orders:{2}").lock().unwrap();
    let plain = Client::new(RedisBackend::connect(&server.url()).unwrap())
        .unwrap()
        .plain_lock("bills")
        .unwrap()
        .lock()
        .unwrap();
    let theirs = lock(&server, "orders:1");
    let waited = theirs.request().unwrap();
    drop(lock(&server, "orders:was").lock().unwrap());
    // A lock of Java's, and keys that are no locks.
    let java = "0d1a8b3c-5f0e-4c43-9d05-6c2f0c1f4a11:57";
    server.query::<()>(&["HSET", "java", java, "1"]);
    server.query::<()>(&["PEXPIRE", "java", "60000"]);
    server.query::<()>(&["HSET", "hash", "a", "1"]);
    server.query::<()>(&["HSET", "other", "a", "b", "c", "d"]);
    server.query::<()>(&["SET", "text", "a"]);
    for n in 0..700 {
        server.query::<()>(&["SET", &format!("filler:{n}"), "a"]);
    }

    let all = json(&server.url(), &["ls", "--json"]);
    assert_eq!(names(&all), ["bills", "java", "orders:1", "orders:{2}"]);
    assert_eq!(all[1]["holder"]["owner"].as_str(), Some(java));
    assert_eq!(all[2]["waiting"], 1);
    assert_eq!(names(&json(&server.url(), &["ls", "orders:*", "--json"])), ["orders:1", "orders:{2}"]);
    assert_eq!(names(&json(&server.url(), &["ls", "orders:{?}", "--json"])), ["orders:{2}"]);
    let said = text(&output(&server.url(), &["ls"]).stdout);
    assert_eq!(said.lines().count(), 4);
    let row = said.lines().find(|line| line.starts_with("orders:1 ")).unwrap();
    assert!(row.contains("held by") && row.ends_with(", 1 waiting"), "{row}");
    let calls: String = server.query(&["INFO", "commandstats"]);
    assert!(calls.contains("cmdstat_scan") && !calls.contains("cmdstat_keys"));
    drop(waited);
    wait_for_line(&theirs, 0);
    held.unlock().unwrap();
    braces.unlock().unwrap();
    plain.unlock().unwrap();
    assert_eq!(names(&json(&server.url(), &["ls", "--json"])), ["java"]);
}

#[test]
fn ls_lists_the_waiters_of_either_line() {
    let server = RedisServer::start();
    let of = |name: &str, discipline: Discipline| {
        let backend = RedisBackend::builder(&server.url()).discipline(discipline).connect().unwrap();
        Client::new(backend).unwrap().fair_lock(name).unwrap()
    };
    let theirs = of("theirs", Discipline::Redisson).lock().unwrap();
    let waiting = of("theirs", Discipline::Redisson).request().unwrap();
    let ours = of("ours", Discipline::HandOff).lock().unwrap();
    let waiting_too = of("ours", Discipline::HandOff).request().unwrap();
    // A waiter of Java's for a free lock.
    server.query::<()>(&["RPUSH", "redisson_lock_queue:{free}", "0d1a8b3c-5f0e-4c43-9d05-6c2f0c1f4a11:57"]);
    for discipline in ["hand-off", "redisson"] {
        let seen = json(&server.url(), &["--discipline", discipline, "ls", "--json"]);
        assert_eq!(names(&seen), ["free", "ours", "theirs"], "{discipline}");
        let waiting = |lock: &Value| lock["waiting"].as_u64().unwrap();
        assert!(seen.as_array().unwrap().iter().all(|lock| waiting(lock) == 1), "{discipline}: {seen}");
    }
    // The other line is optional: a user without the right to it still sees its own.
    let rules = "on >pw ~ours ~fairlock_*:{ours} ~theirs ~fairlock_*:{theirs} +@all &*";
    let words: Vec<&str> = ["ACL", "SETUSER", "worker"].into_iter().chain(rules.split_whitespace()).collect();
    server.query::<()>(&words);
    let seen = json(&server.url_as("worker", "pw"), &["ls", "*urs", "--json"]);
    assert_eq!(names(&seen), ["ours"]);
    let seen = json(&server.url_as("worker", "pw"), &["ls", "theirs", "--json"]);
    assert_eq!((names(&seen), seen[0]["waiting"].as_u64()), (vec!["theirs"], Some(0)));
    drop((waiting, waiting_too));
    theirs.unlock().unwrap();
    ours.unlock().unwrap();
}

#[test]
fn ls_sees_all_nodes_of_a_cluster_and_the_master_behind_sentinels() {
    let cluster = Cluster::start(Replicas::None);
    let url =
        format!("redis+cluster://{}", cluster.urls()[0].trim_start_matches("redis://").trim_end_matches('/'));
    let client =
        Client::new(RedisBackend::builder(&url).discipline(Discipline::HandOff).connect().unwrap()).unwrap();
    let wanted: Vec<String> = (0..12).map(|n| format!("lock:{n:02}")).collect();
    let guards: Vec<_> = wanted.iter().map(|name| client.fair_lock(name).unwrap().lock().unwrap()).collect();
    assert_eq!(names(&json(&url, &["ls", "--json"])), wanted);
    drop(guards);
    let run = ["run", "lock:run", "--", support::FAIRLOCK, "show", "lock:run", "--json"];
    let said = output(&url, &run);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let seen: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(seen["holder"]["hold_count"], 1, "the command holds it while its program runs");
    let run = ["run", "--permits", "2", "lock:run", "--", support::FAIRLOCK, "ls", "--json"];
    let said = output(&url, &run);
    let seen: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(
        (names(&seen), &seen[0]["kind"]),
        (vec!["lock:run"], &"semaphore".into()),
        "{}",
        text(&said.stderr)
    );

    let sentinels = Sentinels::start();
    let hosts: Vec<String> = sentinels
        .urls()
        .iter()
        .map(|url| url.trim_start_matches("redis://").trim_end_matches('/').to_owned())
        .collect();
    let url = format!("redis+sentinel://{}/mymaster", hosts.join(","));
    let said = output(&url, &["run", "x", "--", support::FAIRLOCK, "ls", "--json"]);
    assert_eq!(names(&serde_json::from_slice(&said.stdout).unwrap()), ["x"], "{}", text(&said.stderr));
}

#[test]
fn unlock_takes_the_lock_away_with_yes() {
    let server = RedisServer::start();
    let ours = lock(&server, "x");
    let guard = ours.lock().unwrap();
    let asked = output(&server.url(), &["unlock", "x"]);
    assert_eq!(asked.status.code(), Some(125));
    assert!(
        text(&asked.stderr).contains("from its holder") && text(&asked.stderr).contains("confirm with --yes")
    );
    assert!(!guard.is_lost());
    let done = output(&server.url(), &["unlock", "x", "--yes"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    guard.lost().recv_timeout(support::SOON).expect("the holder is told");
    let refused = output(&server.url(), &["unlock", "x", "--yes"]);
    assert_eq!(
        (refused.status.code(), text(&refused.stderr)),
        (Some(1), "fairlock: x is not held\n".to_owned())
    );
    assert_no_residue(&server, &[]);
}

#[test]
fn kick_takes_a_place_away() {
    let server = RedisServer::start();
    let ours = lock(&server, "x");
    let guard = ours.lock().unwrap();
    let request = lock(&server, "x").request().unwrap();
    wait_for_line(&ours, 1);
    let owner = ours.inspect().unwrap().line[0].owner.to_string();
    let asked = output(&server.url(), &["kick", "x", &owner]);
    assert!(asked.status.code() == Some(125) && text(&asked.stderr).contains("number 1 in the line of x"));
    let behind = lock(&server, "x").request().unwrap();
    let kicked = output(&server.url(), &["kick", "x", &owner, "--yes"]);
    assert_eq!(kicked.status.code(), Some(0), "{}", text(&kicked.stderr));
    guard.unlock().unwrap();
    // The next one is first now. The kicked one is alive, so it asks again, at the tail.
    let guard = behind.wait().unwrap();
    guard.unlock().unwrap();
    drop(request);
    let refused = output(&server.url(), &["kick", "x", "a:1", "--yes"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("a:1 has no place in the line of x"));
}

#[test]
fn kick_finds_a_waiter_by_its_label_unless_several_have_it() {
    let server = RedisServer::start();
    let ours = lock(&server, "x");
    let guard = ours.lock().unwrap();
    let waiter = |label: &str| {
        let backend = RedisBackend::connect(&server.url()).unwrap();
        Client::builder(backend).label(label).build().unwrap().fair_lock("x").unwrap().request().unwrap()
    };
    let waiters = ["nightly (h:1)", "nightly (h:2)", "report (h:3)"].map(waiter);
    wait_for_line(&ours, 3);
    let line = ours.inspect().unwrap().line;
    let owner = |at: usize| line[at].owner.to_string();

    let refused = output(&server.url(), &["kick", "x", "nightly", "--yes"]);
    let errors = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125), "{errors}");
    assert!(errors.contains("2 waiters go by nightly; name one by its owner"), "{errors}");
    assert!(errors.contains(&format!("1  nightly (h:1) ({})", owner(0))), "{errors}");
    assert!(errors.contains(&format!("2  nightly (h:2) ({})", owner(1))), "{errors}");
    for (label, at) in [("report", 2), ("h:3", 2), ("nightly (h:2)", 1)] {
        let asked = output(&server.url(), &["kick", "x", label]);
        let question = format!("number {} in the line of x", at + 1);
        assert!(text(&asked.stderr).contains(&question), "{}", text(&asked.stderr));
    }
    let places =
        |owner: &str| ours.find_waiter(&fairlock::OwnerId::new(owner)).unwrap().map(|(rank, _)| rank);
    let kicked = output(&server.url(), &["kick", "x", "h:1", "--yes"]);
    assert_eq!(kicked.status.code(), Some(0), "{}", text(&kicked.stderr));
    // It is alive, so it asks again, at the tail.
    fairlock_tests::eventually(support::SOON, "it is at the tail", || places(&owner(0)) == Some(2));
    assert_eq!((places(&owner(1)), places(&owner(2))), (Some(0), Some(1)));
    drop(waiters);
    guard.unlock().unwrap();
}

#[test]
fn no_at_the_terminal_takes_nothing_away() {
    let server = RedisServer::start();
    let guard = lock(&server, "x").lock().unwrap();
    for (answer, code, lost) in [("n\n", 1, false), ("\n", 1, false), ("y\n", 0, true)] {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        let command =
            pty_process::blocking::Command::new(support::FAIRLOCK).env("FAIRLOCK_REDIS", server.url());
        let command = command.args(["unlock", "x"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running(command.spawn(pts).unwrap());
        (&pty).write_all(answer.as_bytes()).unwrap();
        assert_eq!(running.status().code(), Some(code), "{answer:?}");
        if lost {
            guard.lost().recv_timeout(support::SOON).expect("it is taken");
        }
        assert_eq!(guard.is_lost(), lost);
    }
    assert!(guard.valid_for() == Duration::ZERO);
}
