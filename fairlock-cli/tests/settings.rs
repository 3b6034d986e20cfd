//! The settings of the client: by options, by variables, and what is said of a wrong one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::net::TcpListener;
use std::process::Output;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Proxy, RedisServer, Sentinels, WorkDir, assert_no_residue, eventually};

use support::{FAIRLOCK, Running, SOON, fairlock, lock, output, process_in, script, send, text};

/// A setting, a value that is refused, what is allowed, and a value that is read.
const SETTINGS: [(&str, &str, &str, &str); 15] = [
    ("redis", "", "an address in one of the forms", "redis://127.0.0.1:1"),
    ("postgres", "", "an address of PostgreSQL, in the form", "postgres://a:canary@127.0.0.1:1/b"),
    ("listen-on", "", "an address of PostgreSQL, with --postgres", "postgres://a:canary@127.0.0.1:1/b"),
    ("discipline", "java", "hand-off or redisson", "redisson"),
    ("durable", "yes", "life (also --durable alone), or quorum", "life,trust=20s"),
    ("sentinel-login", "", "user and password with a colon between", "watcher:canary"),
    ("connections", "9", "a number from 1 to 8", "1"),
    ("connect-timeout", "5 s", "from 10ms to 1m, such as 500ms, 30s, 1h30m, or 5 for seconds", "500ms"),
    ("response-timeout", "1ms", "from 10ms to 1m", "0.5"),
    ("outage-limit", "never", "from 10ms to 36500d", "5"),
    ("thread-wait", "2d", "from 10ms to 1d, with --discipline redisson", "5m"),
    ("refresh-on-retry", "on", "true or false, with --discipline redisson", "true"),
    ("lease", "10ms", "from 1s to 36500d", "10"),
    ("place-ttl", "0", "from 500ms to 36500d", "20s"),
    ("label", "a\u{7}b", "at most 256 bytes with both, without control characters", "nightly"),
];

fn variable(name: &str) -> String {
    format!("FAIRLOCK_{}", name.to_uppercase().replace('-', "_"))
}

/// Runs `true` with this option, or this variable.
fn with(option: Option<&str>, set: Option<(&str, &str)>) -> Output {
    let mut command = fairlock("redis://:canary@127.0.0.1:1", &["run", "x"]);
    command.args(option).args(["--", "true"]);
    command.envs(set.map(|(name, value)| (variable(name), value)));
    Running::start(command).output()
}

#[test]
fn a_wrong_value_is_named_with_its_source_and_what_is_allowed() {
    for (name, bad, allowed, _) in SETTINGS {
        let value = if bad.is_empty() { "empty".to_owned() } else { bad.escape_default().to_string() };
        let by_option = with(Some(&format!("--{name}={bad}")), None);
        let by_variable = with(None, Some((name, bad)));
        for (said, source) in [(by_option, format!("--{name}")), (by_variable, variable(name))] {
            let errors = text(&said.stderr);
            assert_eq!(said.status.code(), Some(125), "{errors}");
            assert!(
                errors.starts_with(&format!("fairlock: {source} is {value}: it has to be {allowed}")),
                "{errors}"
            );
            assert_eq!(errors.lines().count(), 1, "{errors}");
        }
    }
}

/// One that is read gets as far as the server, which is not there.
#[test]
fn each_setting_is_read_from_its_option_and_its_variable() {
    for (name, _, _, good) in SETTINGS {
        let of_redisson = ["thread-wait", "refresh-on-retry"].contains(&name);
        let by_option =
            with(Some(&format!("--{name}={good}")), of_redisson.then_some(("discipline", "redisson")));
        let by_variable = with(of_redisson.then_some("--discipline=redisson"), Some((name, good)));
        for (said, is_variable) in [(by_option, false), (by_variable, true)] {
            let errors = text(&said.stderr);
            let (code, why) = match (name, is_variable) {
                ("sentinel-login", _) => (125, "--sentinel-login is set, and"),
                ("listen-on", _) => (125, "is for PostgreSQL"),
                ("postgres", true) => (125, "FAIRLOCK_REDIS and FAIRLOCK_POSTGRES name two servers"),
                _ => (122, "127.0.0.1:1"),
            };
            assert!(said.status.code() == Some(code) && errors.contains(why), "{name}: {errors}");
            assert!(!errors.contains("canary"), "{errors}");
        }
        let help = text(&output("redis://127.0.0.1:1", &["run", "--help"]).stdout);
        assert!(help.contains(&format!("--{name}")) && help.contains(&variable(name)), "{name}: {help}");
    }
}

#[test]
fn settings_of_redissons_line_need_that_line() {
    for (option, set, source) in [
        (Some("--thread-wait=5m"), None, "--thread-wait"),
        (Some("--refresh-on-retry"), None, "--refresh-on-retry"),
        (None, Some(("thread-wait", "5m")), "FAIRLOCK_THREAD_WAIT"),
        (None, Some(("refresh-on-retry", "true")), "FAIRLOCK_REFRESH_ON_RETRY"),
    ] {
        let said = with(option, set);
        let expected = format!("fairlock: {source} is for --discipline redisson, or FAIRLOCK_DISCIPLINE\n");
        assert_eq!((said.status.code(), text(&said.stderr)), (Some(125), expected));
    }
}

#[test]
fn an_option_goes_before_its_variable() {
    let server = RedisServer::start();
    let mut command =
        fairlock("redis://127.0.0.1:1", &["run", "x", "--lease", "40s", "--redis", &server.url()]);
    command.env("FAIRLOCK_LEASE", "wrong").args([
        "--",
        FAIRLOCK,
        "show",
        "x",
        "--json",
        "--redis",
        &server.url(),
    ]);
    let said = Running::start(command).output();
    let left = read(&said, "lease_left_ms");
    assert!((30_001..=40_000).contains(&left), "{left}");
}

/// A number in the JSON of `show`.
fn read(said: &Output, name: &str) -> u64 {
    let state: serde_json::Value =
        serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{}", text(&said.stderr)));
    state["holder"][name].as_u64().or(state["line"][0][name].as_u64()).unwrap()
}

#[test]
fn lease_label_and_place_are_as_the_variables_say() {
    let server = RedisServer::start();
    let with_terms = |arguments: &[&str]| {
        let mut command = fairlock(&server.url(), arguments);
        command.env("FAIRLOCK_LEASE", "8").env("FAIRLOCK_LABEL", "nightly").env("FAIRLOCK_PLACE_TTL", "30s");
        Running::start(command)
    };
    let held = with_terms(&["run", "x", "--", FAIRLOCK, "show", "x", "--json"]).output();
    assert!(read(&held, "lease_left_ms") <= 8000, "{}", text(&held.stdout));
    assert!(text(&held.stdout).contains("\"label\":\"nightly ("), "{}", text(&held.stdout));
    let ours = lock(&server, "x");
    let guard = ours.lock().unwrap();
    let mut waits = with_terms(&["run", "x", "--", "true"]);
    support::wait_for_line(&ours, 1);
    let place = ours.inspect().unwrap().line[0].place_left.unwrap();
    assert!(place > Duration::from_secs(10), "{place:?}");
    guard.unlock().unwrap();
    assert_eq!(waits.status().code(), Some(0));
    assert_no_residue(&server, &[]);
}

#[test]
fn time_outs_and_the_limit_of_an_outage_are_as_the_variables_say() {
    // It accepts connections, and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let mut command = fairlock(&url, &["show", "x"]);
    command.env("FAIRLOCK_CONNECT_TIMEOUT", "3");
    let began = Instant::now();
    let said = Running::start(command).output();
    assert_eq!(said.status.code(), Some(122), "{}", text(&said.stderr));
    assert!(text(&said.stderr).contains("no answer within 3s (--connect-timeout)"), "{}", text(&said.stderr));
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}, and 1 s by default", began.elapsed());

    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    proxy.set(Traffic::Replies, Rule::Delay(Duration::from_millis(100)));
    let show = || fairlock(&proxy.url(), &["show", "x"]);
    assert_eq!(Running::start(show()).output().status.code(), Some(0));
    let mut command = show();
    command.env("FAIRLOCK_RESPONSE_TIMEOUT", "10ms");
    let said = Running::start(command).output();
    assert_eq!(said.status.code(), Some(122), "{}", text(&said.stderr));
    assert!(
        text(&said.stderr).contains("no answer within 10ms (--response-timeout)"),
        "{}",
        text(&said.stderr)
    );

    let guard = lock(&server, "x").lock().unwrap();
    let mut command = fairlock(&server.url(), &["run", "x", "--", "true"]);
    command.env("FAIRLOCK_OUTAGE_LIMIT", "2s");
    let mut waits = Running::start(command);
    support::wait_for_line(&lock(&server, "x"), 1);
    server.stop();
    let stopped = Instant::now();
    assert_eq!(waits.status().code(), Some(122));
    let limits = Duration::from_secs(1)..Duration::from_secs(8); // since its last answer; 10 s by default
    assert!(limits.contains(&stopped.elapsed()), "{:?}", stopped.elapsed());
    server.cont();
    guard.unlock().unwrap();
}

#[test]
fn the_sentinels_may_have_a_login_of_their_own() {
    let sentinels = Sentinels::builder().steady().sentinel_password("canary").start();
    let hosts: Vec<String> = sentinels.sentinels.iter().map(|s| format!("127.0.0.1:{}", s.port())).collect();
    let url = format!("redis+sentinel://{}/mymaster", hosts.join(","));
    assert_eq!(output(&url, &["run", "x", "--", "true"]).status.code(), Some(125));
    for login in ["canary", ":canary", "default:canary"] {
        let mut command = fairlock(&url, &["run", "x", "--", "true"]);
        command.env("FAIRLOCK_SENTINEL_LOGIN", login);
        let said = Running::start(command).output();
        assert_eq!(said.status.code(), Some(0), "{login}: {}", text(&said.stderr));
    }
}

#[test]
fn a_waiter_in_redissons_line_lives_as_long_as_the_variable_says() {
    let server = RedisServer::start();
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    let guard = Client::new(backend).unwrap().fair_lock("x").unwrap().lock().unwrap();
    let mut command = fairlock(&server.url(), &["run", "x", "--", "true"]);
    command.env("FAIRLOCK_DISCIPLINE", "redisson").env("FAIRLOCK_THREAD_WAIT", "2h");
    let mut waits = Running::start(command);
    let ends =
        || server.query::<Vec<String>>(&["ZRANGE", "redisson_lock_timeout:{x}", "0", "0", "WITHSCORES"]);
    eventually(SOON, "it is in line", || ends().len() == 2);
    let left = ends()[1].parse::<f64>().unwrap() - server.time_ms() as f64;
    assert!(left > 3_600_000.0, "{left}");
    guard.unlock().unwrap();
    assert_eq!(waits.status().code(), Some(0));
}

/// The process that gives the lock back connects as the command does: here it finds no other server.
#[test]
fn a_killed_command_gives_the_lock_back_by_the_same_settings() {
    let (server, dir) = (RedisServer::builder().requirepass("canary").start(), WorkDir::new());
    let pid = dir.file("pid");
    let mut command = fairlock("redis://127.0.0.1:1", &["run", "x", "--redis", &server.url()]);
    command
        .env("FAIRLOCK_DISCIPLINE", "redisson")
        .env("FAIRLOCK_LEASE", "60s")
        .env("FAIRLOCK_CONNECTIONS", "1");
    command.args(["--grace", "500ms", "--", "sh", "-c", &script(&pid, "exec sleep 1000")]);
    let holder = Running::start(command);
    process_in(&pid);
    send("KILL", holder.0.id());
    let guard = lock(&server, "x").try_lock_for(SOON).unwrap().guard();
    guard.expect("it was given back").unlock().unwrap();
}
