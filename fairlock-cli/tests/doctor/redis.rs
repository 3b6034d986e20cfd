//! `doctor` on Redis.

use std::time::Duration;

use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Managed, Proxy, RedisServer, assert_no_residue, eventually};

use super::{assert_found, judge, look, of};
use crate::support::{self, Running, fairlock, says, text, words};

/// The rights in README.md for discipline `HandOff`, for all names, and those that doctor needs to check them.
const RIGHTS: &str = "~* resetchannels &fairlock:* &redisson_lock__channel:* +ping +evalsha +script|load +publish +subscribe \
     +unsubscribe +time +exists +del +pexpire +pttl +hget +hmget +hset +hgetall +zadd +zscore +zrem +zrange +zcard \
     +hdel +hlen +zrank +pubsub|numsub +info +multi";

#[test]
fn a_good_server_gets_a_good_report() {
    let server = RedisServer::builder().arg("appendonly", "yes").start();
    let (code, findings) = look(&server.url(), &[]);
    assert_eq!(code, Some(0));
    let good = "version, role, eviction, persistence, clock, round trip, scripts, rights, trial, hand-overs";
    assert_eq!(of(&findings, "good").join(", "), good, "{findings:?}");
    assert_found(&findings, "hand-overs", "", "half of 10 within ");
    assert_eq!(of(&findings, "note"), ["replicas", "durable"]);
    let said = says(&server.url(), "doctor").out;
    assert!(
        said.starts_with("127.0.0.1:") && said.contains("  good     eviction     noeviction\n"),
        "{said}"
    );
    assert_no_residue(&server, &[]);
}

/// How many hand-overs there were depends on how long they took.
#[track_caller]
fn all_by_polling(findings: &[[String; 3]]) {
    let said = |n| format!("; {n} of {n} by polling, since no wake-up arrived");
    let is_found = |[of, word, text]: &[String; 3]| {
        of == "hand-overs" && word == "note" && (1..=10).any(|n| text.contains(&said(n)))
    };
    assert!(findings.iter().any(is_found), "{findings:#?}");
}

/// Wake-ups that don't arrive, or late, are found by hand-overs that are tried, whatever the reason.
#[test]
fn slow_hand_overs_are_found_whatever_the_reason() {
    let managed = Managed::start();
    let findings = judge(&managed.proxy.url(), &[], 0, &[]);
    assert_found(&findings, "hand-overs", "note", "the client sends each message itself");
    assert_eq!(managed.server.query::<Vec<String>>(&["KEYS", "*"]), [""; 0]);

    let server = RedisServer::builder().acl("user mute on >canary ~* &* +@all -publish").start();
    let (_, findings) = look(&server.url_as("mute", "canary"), &[]);
    all_by_polling(&findings);

    let proxy = Proxy::start(server.port());
    proxy.set(Traffic::WakeUps, Rule::Swallow);
    let findings = judge(&proxy.url(), &[], 0, &[]);
    all_by_polling(&findings);
    assert_no_residue(&server, &[]);
}

/// The widths of all lines of the report.
fn widths(said: &str) -> Vec<usize> {
    said.lines().map(|line| line.chars().count()).collect()
}

/// A report is as wide as the terminal, and speaks of the command, not of the library.
#[test]
fn a_report_fits_the_terminal_and_speaks_of_the_command() {
    let server = RedisServer::start();
    let said = says(&server.url(), "doctor").out;
    let widest = widths(&said).into_iter().max().unwrap();
    assert!((70..=80).contains(&widest), "{said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("a flush or a fail-over; a setting closes that (--durable)"), "{words}");
    for of_rust in ["`", "::", "()", "durability"] {
        assert!(!words.contains(of_rust), "{of_rust}: {words}");
    }
    let is_of_nanos = |word: &str| {
        let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        word.ends_with("ns") && number.parse::<f64>().is_ok()
            || number
                .split('.')
                .nth(1)
                .is_some_and(|digits| digits.len() > 1 && number.parse::<f64>().is_ok())
    };
    let nanos: Vec<&str> = words.split([' ', ',', ';']).filter(|word| is_of_nanos(word)).collect();
    assert_eq!(nanos, [""; 0], "{said}");

    let (mut pty, pts) = pty_process::blocking::open().unwrap();
    pty.resize(pty_process::Size::new(24, 50)).unwrap();
    let command = pty_process::blocking::Command::new(support::FAIRLOCK)
        .env("FAIRLOCK_REDIS", server.url())
        .arg("doctor");
    let mut doctor = command.spawn(pts).unwrap();
    let mut narrow = String::new();
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = std::io::Read::read(&mut pty, &mut part) {
        narrow += &text(&part[..length]); // an error is the end
    }
    assert!(doctor.wait().unwrap().success());
    let widest = widths(&narrow).into_iter().max().unwrap();
    assert!((40..=50).contains(&widest), "{narrow}");
}

#[test]
fn a_check_leaves_no_key_and_if_it_is_killed_none_for_ever() {
    for (options, begun) in [
        ("", 0),
        ("--discipline redisson", 0),
        ("--durable=trust=2s", 0),
        ("x", 0),
        ("--durable=trust=2s --begin-life --yes", 1), // fairlock_life, which was asked for
    ] {
        let server = RedisServer::start();
        says(&server.url(), &format!("doctor {options}")).gave(0);
        let keys: Vec<String> = server.query(&["KEYS", "*"]);
        assert_eq!(keys.len(), begun, "{options:?}: {keys:?}");
    }
    // Each answer is late, so the keys of its trial are seen.
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    proxy.set(Traffic::Replies, Rule::Delay(Duration::from_millis(50)));
    let mut killed = Running::start(fairlock(&proxy.url(), &["doctor"]));
    let keys = || server.query::<Vec<String>>(&["KEYS", "*"]);
    eventually("it is at its trial", || !keys().is_empty());
    killed.0.kill().unwrap();
    for key in keys() {
        let left: i64 = server.query(&["PTTL", &key]);
        assert!(left > 0 || left == -2, "{key} stays for ever");
    }
}

#[test]
fn an_unsafe_setting_is_named_with_its_remedy_and_gives_1() {
    let server = RedisServer::builder().arg("maxmemory-policy", "allkeys-lru").start();
    let findings = judge(&server.url(), &[], 1, &["eviction"]);
    assert!(findings.iter().any(|finding| finding[2].contains("set it to noeviction")));

    let replica = RedisServer::start();
    replica.query::<()>(&["REPLICAOF", "127.0.0.1", &server.port().to_string()]);
    let (code, findings) = look(&replica.url(), &[]);
    let found = of(&findings, "unsafe");
    assert!(code == Some(1) && found.contains(&"role") && found.contains(&"trial"), "{findings:?}");
}

#[test]
fn each_missing_right_is_named() {
    let server = RedisServer::start();
    let user = |rights: &str| {
        server.query::<()>(&words(&format!("ACL SETUSER worker reset on >canary {rights}")));
        server.url_as("worker", "canary")
    };
    judge(&user(RIGHTS), &[], 0, &[]);

    let optional = ["+info", "+multi", "+ping", "+zscore"];
    for right in RIGHTS.split_whitespace().filter(|right| right.starts_with('+') && !optional.contains(right))
    {
        let (code, findings) = look(&user(&RIGHTS.replace(&format!("{right} "), "")), &[]);
        assert_eq!(code, Some(1), "without {right}: {findings:?}");
        let name = right[1..].replace('|', " ").to_uppercase();
        let named = findings.iter().any(|[topic, verdict, text]| {
            topic == "rights" && verdict == "unsafe" && text.starts_with(&name)
        });
        assert!(named, "without {right}: {findings:?}");
    }
    for channel in ["&fairlock:* ", "&redisson_lock__channel:* "] {
        let (code, findings) = look(&user(&RIGHTS.replace(channel, "")), &[]);
        assert_eq!(code, Some(1), "without {channel}");
        assert!(
            findings.iter().any(|finding| finding[0] == "rights" && finding[2].contains(&channel[1..10])),
            "{findings:?}"
        );
    }
    let (code, findings) = look(&user(&RIGHTS.replace("+zscore ", "")), &[]);
    assert!(
        code == Some(0) && of(&findings, "note").contains(&"rights"),
        "for semaphores only: {findings:?}"
    );
    let (code, findings) = look(&user(&RIGHTS.replace(" +multi", "")), &[]);
    assert_eq!((code, of(&findings, "unknown")), (Some(0), vec!["rights"]), "the trial replaces them");
    let (_, findings) = look(&user(&RIGHTS.replace("+info ", "")), &[]);
    assert_eq!(of(&findings, "unknown"), ["version"]);
}

#[test]
fn the_rights_to_one_lock_are_checked_without_touching_it() {
    let server = RedisServer::start();
    let guard = support::lock(&server, "orders").lock().unwrap();
    let keys = "~orders ~fairlock_queue:{orders} ~fairlock_record:{orders} ~fairlock_record:{orders}";
    let rules = RIGHTS.replace("~*", keys);
    server.query::<()>(&words(&format!("ACL SETUSER worker on >canary {rules}")));
    let url = server.url_as("worker", "canary");
    assert_eq!(look(&url, &["orders"]).0, Some(0));
    assert_eq!(look(&url, &["bills"]).0, Some(1));
    // Without MULTI no command is tried: it would be carried out.
    server.query::<()>(&["ACL", "SETUSER", "worker", "-multi"]);
    let (_, findings) = look(&url, &["orders"]);
    assert_eq!(of(&findings, "unknown"), ["rights"]);
    assert!(guard.renew().is_ok());
    guard.unlock().unwrap();
}

/// The user of docs/operating.md: each right to its own locks, and none to the lock that `doctor` makes up.
#[test]
fn rights_that_end_at_a_prefix_are_not_unsafe() {
    let server = RedisServer::start();
    let keys = "~lock:* ~fairlock_queue:{lock:*} ~fairlock_record:{lock:*}";
    let rules =
        RIGHTS.replace("~*", keys).replace("redisson_lock__channel:*", "redisson_lock__channel:{lock:*");
    server.query::<()>(&words(&format!("ACL SETUSER worker reset on >canary {rules}")));
    let url = server.url_as("worker", "canary");
    let (code, findings) = look(&url, &[]);
    assert_eq!((code, of(&findings, "unknown")), (Some(0), vec!["rights"]), "{findings:?}");
    assert!(findings.iter().any(|[_, _, text]| text.contains("(doctor NAME)")), "{findings:?}");
    assert_eq!(of(&findings, "unsafe"), [""; 0], "{findings:?}");
    judge(&url, &["lock:a"], 0, &[]);
    // What no name makes good is still unsafe.
    for missing in ["-hset", "resetchannels &redisson_lock__channel:{lock:*"] {
        server.query::<()>(&words(&format!("ACL SETUSER worker {missing}")));
        assert_eq!(look(&url, &[]).0, Some(1), "{missing}");
    }
}
