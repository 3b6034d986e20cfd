//! `show`, `ls` and `kick` with thousands of waiters.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use fairlock_tests::RedisServer;
use serde_json::Value;

use support::{fairlock, lock, says, text, words};

/// Places that last for an hour, of owners 1 to 2,500.
const FILL: &str = "local now = tonumber(redis.call('TIME')[1]) * 1000 \
    for number = 1, 2500 do \
      local member = string.format('00000000-0000-4000-8000-000000000000:%d:%016x', number, number) \
      redis.call('ZADD', KEYS[1], number, member) \
      redis.call('HSET', KEYS[2], member, string.format('1 1 %.0f %.0f 30000 -- worker:%d', now, now + 3600000, number)) \
    end";

fn crowded() -> RedisServer {
    let server = RedisServer::start();
    fill(&server);
    server
}

fn fill(server: &RedisServer) {
    server.query::<()>(&["EVAL", FILL, "2", "fairlock_queue:{x}", "fairlock_record:{x}"]);
}

fn said(server: &RedisServer, arguments: &str) -> String {
    let output = fairlock(&server.url(), &words(arguments)).output().unwrap(); // it does not fit into a pipe
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn numbers(server: &RedisServer, options: &str) -> Vec<u64> {
    let seen: Value = serde_json::from_str(&said(server, &format!("show x --json {options}"))).unwrap();
    assert_eq!(seen["waiting"], 2500);
    let queue = seen["queue"].as_array().unwrap();
    for waiter in queue {
        assert_eq!(waiter["number"], waiter["process"], "each has the number that its label names");
    }
    queue.iter().map(|waiter| waiter["number"].as_u64().unwrap()).collect()
}

#[test]
fn show_pages_through_a_long_queue_and_says_how_long_it_is() {
    let server = crowded();
    let shown = said(&server, "show x");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!((lines[2], lines.len()), ("queue   2500 waiting", 3 + 100 + 1));
    assert!(lines[3].starts_with("     1  worker:1, ") && lines[102].starts_with("   100  worker:100, "));
    assert_eq!(lines[103], "        and 2400 more: --from 101");
    let shown = said(&server, "show x --from=2401");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[3].starts_with("  2401  ") && lines[102].starts_with("  2500  ") && lines.len() == 103);
    // The last two take several calls.
    for (options, part) in [
        ("", 1..101),
        ("--lines=0", 1..1),
        ("--from=2501", 1..1),
        ("--lines=1201", 1..1202),
        ("--from=1700 --lines=9999", 1700..2501),
    ] {
        assert_eq!(numbers(&server, options), Vec::from_iter(part), "{options}");
    }
    assert_eq!(said(&server, "show x --lines=0").lines().count(), 3);
    says(&server.url(), "show x --from=0").gave(125);

    assert!(said(&server, "ls").ends_with("not held, 2500 waiting\n"));
    let all: Value = serde_json::from_str(&said(&server, "ls --json")).unwrap();
    assert_eq!((all[0]["waiting"].as_u64(), all[0].get("queue")), (Some(2500), None));
}

#[test]
fn kick_finds_its_waiter_anywhere_in_a_long_queue() {
    let server = RedisServer::start();
    // A server that has just started takes every waiter for alive, and would hand a free lock to the first one.
    let _held = lock(&server, "x").try_lock().unwrap().guard().unwrap();
    fill(&server);
    let owner = |number: u64| format!("00000000-0000-4000-8000-000000000000:{number}");
    for (who, number) in
        [(owner(1), 1), (owner(777), 777), (owner(2500), 2500), ("worker:1234".to_owned(), 1234)]
    {
        let asked = says(&server.url(), &format!("kick x {who}"));
        asked.with(&[&format!("the place of worker:{number}, number {number} in")]);
    }
    for number in [2500, 777] {
        says(&server.url(), &format!("kick x {} --yes", owner(number))).gave(0);
    }
    let last: Vec<String> = server.query(&["ZRANGE", "fairlock_queue:{x}", "2497", "-1"]);
    let member = |number: u64| format!("{}:{number:016x}", owner(number));
    assert_eq!(last, [2499, 2500, 777].map(member));
}

/// No call reads all of it. Nobody has come to the queue for ten minutes, so it is not only the first who are absent.
#[test]
fn a_long_queue_of_absent_waiters_alone_is_none() {
    let server = crowded();
    let now: i64 = server.time_ms();
    // The last ticket that had its turn, the last call, the queue's clock (it is two hours ahead, and so past all deadlines), the
    // least time to live of a place, until when it rests.
    let numbers = format!("0 {} {} 5000 0", now - 600_000, now + 7_200_000);
    server.query::<()>(&["HSET", "fairlock_record:{x}", "queue", &numbers]);
    assert_eq!(said(&server, "ls"), "");
    let shown = said(&server, "show x --lines=1");
    let end = "queue   empty, 2500 absent\n     1  worker:1, waiting for ";
    assert!(shown.contains(end), "{shown}");
}
