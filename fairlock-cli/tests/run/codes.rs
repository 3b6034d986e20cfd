//! The environment of the program, and the exit codes.

use std::time::{Duration, Instant};

use fairlock_tests::{RedisServer, assert_no_residue};

use crate::support::{arguments, lock, output, text};

#[test]
fn the_program_knows_its_lock_and_its_exit_code_is_passed_through() {
    let server = RedisServer::start();
    let said = output(
        &server.url(),
        &arguments(&["x"], "echo $FAIRLOCK_NAME $FAIRLOCK_TOKEN $FAIRLOCK_OWNER; exit 7"),
    );
    assert_eq!(said.status.code(), Some(7), "{}", text(&said.stderr));
    let words = text(&said.stdout);
    let words: Vec<&str> = words.split_whitespace().collect();
    assert_eq!((words.len(), words[0]), (3, "x"));
    assert!(words[1].parse::<u64>().unwrap() > 0 && words[2].contains(':'), "{words:?}");
    assert_eq!(text(&said.stderr), "");
    assert_no_residue(&server, &[]);
}

#[test]
fn the_program_holds_the_lock_and_its_token_grows() {
    let server = RedisServer::start();
    let inner = "test $(\"$0\" show x --json | grep -c \"\\\"token\\\":$FAIRLOCK_TOKEN\") = 1 && echo $FAIRLOCK_TOKEN";
    let token = || {
        let run = ["run", "x", "--", "sh", "-c", inner, crate::support::FAIRLOCK];
        let said = output(&server.url(), &run);
        assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
        text(&said.stdout).trim().parse::<u64>().unwrap()
    };
    let first = token();
    assert!(token() > first);
}

#[test]
fn a_program_that_a_signal_ends_gives_128_plus_the_signal() {
    let server = RedisServer::start();
    let said = output(&server.url(), &arguments(&["x"], "kill -KILL $$"));
    assert_eq!(said.status.code(), Some(137));
}

#[test]
fn a_program_that_cannot_be_run_gives_126_or_127_and_leaves_nothing() {
    let server = RedisServer::start();
    for (program, code) in [("/nonesuch", 127), ("/", 126)] {
        let said = output(&server.url(), &["run", "x", "--", program]);
        assert_eq!(said.status.code(), Some(code), "{}", text(&said.stderr));
        assert!(text(&said.stderr).starts_with(&format!("fairlock: {program}: ")), "{}", text(&said.stderr));
    }
    assert_no_residue(&server, &[]);
}

#[test]
fn a_lock_that_is_not_acquired_in_time_gives_124_and_leaves_no_place() {
    let server = RedisServer::start();
    let ours = lock(&server, "x");
    let guard = ours.lock().unwrap();
    for (wait, message) in [
        ("300ms", "fairlock: x was not acquired within 300ms: held by "),
        ("0", "fairlock: x is not free: held by "),
    ] {
        let start = Instant::now();
        let said = output(&server.url(), &arguments(&["x", "--wait", wait], "echo no"));
        assert_eq!((said.status.code(), text(&said.stdout)), (Some(124), String::new()));
        let said = text(&said.stderr);
        let holder = format!(":{} for ", std::process::id());
        assert!(said.starts_with(message) && said.contains(&holder), "{said}");
        assert!(wait == "0" || start.elapsed() >= Duration::from_millis(300));
        assert_eq!(ours.inspect().unwrap().line.len(), 0);
    }
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_plain_lock_is_waited_for_as_well() {
    let server = RedisServer::start();
    let guard = lock(&server, "x").lock().unwrap();
    let said = output(&server.url(), &arguments(&["x", "--plain", "--wait", "200ms"], "echo no"));
    assert_eq!(said.status.code(), Some(124));
    guard.unlock().unwrap();
    let said = output(&server.url(), &arguments(&["x", "--plain", "--wait", "20s"], "echo yes"));
    assert_eq!((said.status.code(), text(&said.stdout)), (Some(0), "yes\n".to_owned()));
    assert_no_residue(&server, &[]);
}

#[test]
fn a_server_that_cannot_be_reached_gives_122_and_a_refused_password_125_without_showing_it() {
    let server = RedisServer::builder().requirepass("right").start();
    let gone = RedisServer::start();
    let url = gone.url();
    gone.kill();
    let said = output(&url, &arguments(&["x"], "echo no"));
    assert_eq!(
        (said.status.code(), text(&said.stdout)),
        (Some(122), String::new()),
        "{}",
        text(&said.stderr)
    );
    let wrong = server.url_as("", "canary");
    for arguments in [arguments(&["x"], "echo no"), vec!["show", "x"], vec!["ls"]] {
        let said = output(&wrong, &arguments);
        assert_eq!(said.status.code(), Some(125), "{}", text(&said.stderr));
        assert!(text(&said.stderr).contains("password") && !text(&said.stderr).contains("canary"));
    }
    for arguments in [vec!["ls", "x", &wrong], vec![&wrong, "ls"], vec!["ls", "--redi", &wrong]] {
        let said = output(&url, &arguments);
        assert_eq!(said.status.code(), Some(125));
        assert!(!text(&said.stderr).contains("canary"), "{}", text(&said.stderr));
    }
    let said = output(&wrong, &["--help"]);
    assert!(text(&said.stdout).contains("FAIRLOCK_REDIS") && !text(&said.stdout).contains("canary"));
}

#[test]
fn options_that_cannot_work_give_125_and_say_why() {
    for (options, why) in [
        (vec!["x", "--lease", "10ms"], "--lease must be at least 1.0s"),
        (vec!["x", "--grace", "20s"], "--grace must be at most half of --lease"),
        (
            vec!["x", "--max-hold", "2s"],
            "--grace is 5s by default, but --max-hold must be at least twice --grace: add --grace 1s,",
        ),
        (vec!["x", "--max-hold", "2s", "--grace", "1500ms"], "--grace is 1500ms, but"),
        (vec!["x", "--wait", "5"], "expected a duration"),
        (vec![], "required"),
    ] {
        let said = output("redis://127.0.0.1:1", &arguments(&options, "echo no"));
        assert_eq!((said.status.code(), text(&said.stdout)), (Some(125), String::new()));
        assert!(text(&said.stderr).contains(why), "{}", text(&said.stderr));
    }
    for words in [&["run", "x", "echo"][..], &["run", "x", "--wait", "0", "echo", "no"]] {
        let said = output("redis://127.0.0.1:1", words);
        assert_eq!((said.status.code(), text(&said.stdout)), (Some(125), String::new()));
        assert!(text(&said.stderr).contains("put `--` before the program"), "{}", text(&said.stderr));
    }
    let other = output("redis://127.0.0.1:1", &["run", "x", "--wiat", "0", "--", "echo", "no"]);
    assert!(!text(&other.stderr).contains("put `--`"), "{}", text(&other.stderr));
}

#[test]
fn an_unreadable_label_gives_125_and_leaves_nothing() {
    let server = RedisServer::start();
    for (label, why) in [("l".repeat(300), "the label has 3"), ("a\u{1b}[2J".into(), "a control character")] {
        let said = output(&server.url(), &arguments(&["x", "--label", &label], "echo no"));
        assert_eq!((said.status.code(), text(&said.stdout)), (Some(125), String::new()));
        assert!(text(&said.stderr).contains(why), "{}", text(&said.stderr));
    }
    assert_no_residue(&server, &[]);
}
