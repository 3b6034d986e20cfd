//! `show` with thousands of waiters, and `ls`.

use fairlock_tests::RedisServer;
use serde_json::Value;

use crate::support::{fairlock, only_row, says, text, words};

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

    assert_eq!(only_row(&said(&server, "ls"))[1], "2500");
    let all: Value = serde_json::from_str(&said(&server, "ls --json")).unwrap();
    assert_eq!((all[0]["waiting"].as_u64(), all[0].get("queue")), (Some(2500), None));
}
