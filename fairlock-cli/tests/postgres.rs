//! The commands on PostgreSQL, and what only one of the two stores understands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::process::Output;

use fairlock::{Client, Lock, PostgresBackend};
use fairlock_tests::{PostgresServer, WorkDir, eventually};
use serde_json::Value;

use support::{
    FAIRLOCK, Running, SOON, arguments, fairlock, output, process_in, script, text, wait_for_line,
    wait_until_dead,
};

fn lock(server: &PostgresServer, name: &str) -> Lock {
    Client::new(PostgresBackend::connect(&server.url()).unwrap()).unwrap().fair_lock(name).unwrap()
}

fn json(url: &str, arguments: &[&str]) -> Value {
    let said = output(url, arguments);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

#[test]
fn migrate_makes_the_tables_or_prints_how() {
    let server = PostgresServer::start();
    let url = server.new_empty_database();
    let missing = output(&url, &["ls"]);
    let advice = "fairlock: invalid configuration: the database has no tables of fairlock: run `fairlock migrate --postgres URL`\n";
    assert_eq!((missing.status.code(), text(&missing.stderr)), (Some(125), advice.to_owned()));
    for _ in ["the first", "a repeat"] {
        let made = output(&url, &["migrate"]);
        assert_eq!((made.status.code(), text(&made.stderr)), (Some(0), String::new()));
    }
    assert_eq!(json(&url, &["ls", "--json"]), Value::Array(Vec::new()));

    let printed = output("redis://127.0.0.1:1", &["migrate", "--print"]);
    assert_eq!(printed.status.code(), Some(0), "{}", text(&printed.stderr));
    let other = server.new_empty_database();
    server.con_to("t2").batch_execute(&text(&printed.stdout)).unwrap();
    assert_eq!(json(&other, &["ls", "--json"]), Value::Array(Vec::new()));
    let nowhere = output("redis://127.0.0.1:1", &["migrate"]);
    let errors = "fairlock: migrate needs a database: --postgres, or FAIRLOCK_POSTGRES\n";
    assert_eq!((nowhere.status.code(), text(&nowhere.stderr)), (Some(125), errors.to_owned()));
}

#[test]
fn programs_run_in_the_order_of_their_requests_and_operators_see_and_change_it() {
    let (server, dir) = (PostgresServer::start(), WorkDir::new());
    let (url, ours) = (server.url(), lock(&server, "x"));
    let held = output(&url, &arguments(&["x", "--label", "nightly"], "echo $FAIRLOCK_NAME $FAIRLOCK_TOKEN"));
    assert!(held.status.success() && text(&held.stdout).starts_with("x "), "{}", text(&held.stderr));
    let guard = ours.lock().unwrap();
    let log = dir.file("log");
    let mut waits = ["first", "second", "third"].map(|label| {
        let waiting = ours.inspect().unwrap().line_length;
        let program = format!("echo {label} >> {}", log.display());
        let started = Running::start(fairlock(&url, &arguments(&["x", "--label", label], &program)));
        wait_for_line(&ours, waiting + 1);
        started
    });
    let seen = json(&url, &["show", "x", "--json"]);
    assert_eq!(
        (seen["holder"]["token"].as_u64(), &seen["kind"]),
        (Some(guard.token().get()), &"exclusive".into())
    );
    let labels: Vec<_> =
        seen["line"].as_array().unwrap().iter().map(|one| one["label"].as_str().unwrap()).collect();
    assert!(labels[0].starts_with("first (") && labels[2].starts_with("third ("), "{labels:?}");
    let listed = text(&output(&url, &["ls", "[w-y]*"]).stdout);
    assert!(listed.starts_with("x  held by ") && listed.ends_with(", 3 waiting\n"), "{listed}");
    assert_eq!(text(&output(&url, &["ls", "y*"]).stdout), "");

    // A kicked waiter asks again, at the tail.
    assert_eq!(output(&url, &["kick", "x", "first", "--yes"]).status.code(), Some(0));
    eventually(SOON, "it stands behind the others", || {
        let line = ours.inspect().unwrap().line;
        line.last().is_some_and(|last| last.label.as_ref().unwrap().starts_with("first (")) && line.len() == 3
    });
    assert_eq!(output(&url, &["unlock", "x", "--yes"]).status.code(), Some(0));
    for command in &mut waits {
        assert_eq!(command.status().code(), Some(0));
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "second\nthird\nfirst\n");
    guard.lost().recv_timeout(SOON).expect("the holder is told");
    assert_eq!(output(&url, &["unlock", "x", "--yes"]).status.code(), Some(1));
    for (kind, words) in [(&["--permits", "2"][..], "1 of 2 permits held by "), (&["--write"], "written by ")]
    {
        let said = output(&url, &arguments(&[kind, &["y"]].concat(), &format!("{FAIRLOCK} ls")));
        assert!(text(&said.stdout).contains(words), "{}", text(&said.stdout));
    }
}

/// The minder knows one server, though two are set.
#[test]
fn the_hold_of_a_killed_command_is_given_back_when_its_program_has_ended() {
    let (server, dir) = (PostgresServer::start(), WorkDir::new());
    let (pid, never) = (dir.file("pid"), dir.file("never"));
    let program = script(&pid, &format!("until test -e {}; do sleep 0.05; done", never.display()));
    let url = server.url();
    let options = ["--postgres", &url, "--lease", "60s", "--grace", "500ms", "x"];
    let mut killed = Running::start(fairlock("redis://127.0.0.1:1", &arguments(&options, &program)));
    let process = process_in(&pid);
    killed.0.kill().unwrap();
    let next = lock(&server, "x").try_lock_for(SOON).unwrap();
    assert!(next.guard().is_some());
    wait_until_dead(process);
}

/// With the two variables set to these, and with these options.
fn refused(redis: Option<&str>, postgres: Option<&str>, options: &[&str]) -> (Option<i32>, String) {
    let mut command = fairlock("redis://127.0.0.1:1", options);
    command.env_remove("FAIRLOCK_REDIS");
    command
        .envs(redis.map(|url| ("FAIRLOCK_REDIS", url)))
        .envs(postgres.map(|url| ("FAIRLOCK_POSTGRES", url)));
    let Output { status, stdout, stderr } = Running::start(command).output();
    assert_eq!(text(&stdout), "");
    let errors = text(&stderr);
    assert!(!errors.contains("canary"), "{errors}");
    (status.code(), errors.trim_start_matches("fairlock: ").trim_end().to_owned())
}

#[test]
fn two_servers_and_settings_of_the_other_store_are_refused_in_words() {
    let (redis, postgres) = ("redis://:canary@127.0.0.1:1", "postgres://a:canary@127.0.0.1:2/b");
    let two = "name two servers: give one of them";
    let by_options = refused(None, None, &["ls", "--redis", redis, "--postgres", postgres]);
    assert_eq!(by_options, (Some(125), format!("--redis and --postgres {two}")));
    let by_variables = refused(Some(redis), Some(postgres), &["ls"]);
    assert_eq!(by_variables, (Some(125), format!("FAIRLOCK_REDIS and FAIRLOCK_POSTGRES {two}")));
    // An option goes before a variable.
    for (options, port) in
        [(["ls", "--redis", redis], "127.0.0.1:1"), (["ls", "--postgres", postgres], "127.0.0.1:2")]
    {
        let is_redis = options[1] == "--redis";
        let others = if is_redis { (None, Some(postgres)) } else { (Some(redis), None) };
        let (code, errors) = refused(others.0, others.1, &options);
        assert!(code == Some(122) && errors.contains(port), "{errors}");
        assert!(
            errors.ends_with(if is_redis { "FAIRLOCK_REDIS)" } else { "FAIRLOCK_POSTGRES)" }),
            "{errors}"
        );
    }
    for option in [
        "--durable",
        "--discipline=redisson",
        "--sentinel-login=a:canary",
        "--thread-wait=5m",
        "--refresh-on-retry",
    ] {
        let name = option.split('=').next().unwrap();
        let expected = format!("{name} is for Redis, and the server is PostgreSQL");
        assert_eq!(refused(None, Some(postgres), &["ls", option]), (Some(125), expected));
    }
    let listen_on = "--listen-on is for PostgreSQL: give --postgres, or FAIRLOCK_POSTGRES";
    assert_eq!(
        refused(Some(redis), None, &["ls", "--listen-on", postgres]),
        (Some(125), listen_on.to_owned())
    );
    let begin = refused(None, Some(postgres), &["doctor", "--begin-life"]);
    assert_eq!(begin, (Some(125), "--begin-life is for Redis".to_owned()));
    let (code, errors) = refused(None, Some(postgres), &["doctor", "x"]);
    assert!(code == Some(125) && errors.starts_with("NAME is for Redis"), "{errors}");
    let (code, errors) = refused(None, Some("postgres://a:canary@h/b?color=red"), &["ls"]);
    assert!(code == Some(125) && errors.contains("an option that is not known"), "{errors}");
}
