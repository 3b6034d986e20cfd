//! The environment of the program, and the exit codes.

use std::time::{Duration, Instant};

use fairlock_tests::{RedisServer, WorkDir, assert_no_residue};

use crate::support::{Running, arguments, fairlock, lock, output, text};

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
fn a_program_that_cannot_be_run_is_noticed_before_the_wait() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let guard = lock(&server, "x").lock().unwrap();
    let (plain, folder) = (dir.file("plain"), dir.file("folder"));
    std::fs::write(&plain, "").unwrap();
    std::fs::create_dir(&folder).unwrap();
    let of = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    for (program, code) in
        [("nonesuch".to_owned(), 127), ("./nonesuch".to_owned(), 127), (of(&plain), 126), (of(&folder), 126)]
    {
        let said = output(&server.url(), &["run", "x", "--", &program]);
        assert_eq!(said.status.code(), Some(code), "{program}: {}", text(&said.stderr));
        assert!(text(&said.stderr).starts_with(&format!("fairlock: {program}: ")), "{}", text(&said.stderr));
    }
    // In the PATH, one that can't be run does not hide one that can.
    let tools = dir.file("tools");
    std::fs::create_dir(&tools).unwrap();
    std::fs::write(tools.join("true"), "").unwrap();
    for (path, code) in [(format!("{}:/usr/bin:/bin", of(&tools)), 0), (of(&tools), 126), (of(&folder), 127)]
    {
        let mut run = fairlock(&server.url(), &["run", "free", "--", "true"]);
        run.env("PATH", &path);
        assert_eq!(Running::start(run).status().code(), Some(code), "PATH={path}");
    }
    guard.unlock().unwrap();
}

#[test]
fn a_shell_runs_a_command_line() {
    let server = RedisServer::start();
    for option in ["-c", "--shell"] {
        let said = output(&server.url(), &["run", "x", option, "echo $FAIRLOCK_NAME | tr x y; exit 7"]);
        assert_eq!(
            (said.status.code(), text(&said.stdout)),
            (Some(7), "y\n".to_owned()),
            "{}",
            text(&said.stderr)
        );
    }
    let said = output(&server.url(), &["run", "x", "-c", "echo a", "--", "echo", "b"]);
    assert_eq!((said.status.code(), text(&said.stdout)), (Some(125), String::new()));
    assert_no_residue(&server, &[]);
}

#[test]
fn the_exit_code_of_a_wait_in_vain_can_be_chosen() {
    let server = RedisServer::start();
    let guard = lock(&server, "x").lock().unwrap();
    for (option, wait, code) in [("-E", "0", 0), ("--conflict-exit-code", "100ms", 75)] {
        let said =
            output(&server.url(), &arguments(&["x", "--wait", wait, option, &code.to_string()], "echo no"));
        assert_eq!(
            (said.status.code(), text(&said.stdout)),
            (Some(code), String::new()),
            "{}",
            text(&said.stderr)
        );
    }
    let said = output(&server.url(), &arguments(&["x", "-E", "256"], "echo no"));
    assert_eq!(said.status.code(), Some(125));
    guard.unlock().unwrap();
    let said = output(&server.url(), &arguments(&["x", "-E", "75"], "exit 3"));
    assert_eq!(said.status.code(), Some(3), "the program's own code stays");
}

#[test]
fn verbose_says_label_wait_and_token_and_twice_what_happens() {
    let server = RedisServer::start();
    let run = |verbose: &str| {
        let said =
            output(&server.url(), &arguments(&["x", "--label", "nightly", verbose], "echo $FAIRLOCK_TOKEN"));
        assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
        (text(&said.stdout), text(&said.stderr))
    };
    let (token, said) = run("-v");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("lock `x` granted to nightly (") && said.contains(" after "), "{said}");
    assert!(said.contains(&format!("token {}", token.trim())), "{said}");
    let (token, said) = run("-vv");
    assert!(said.lines().count() > 1 && said.contains(&format!("token {}", token.trim())), "{said}");
    assert!(said.contains(" granted to ") && said.contains(" given back by "), "{said}");
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
        (
            vec!["x", "--lease", "10ms"],
            "--lease is 10ms: it has to be from 1s to 36500d, such as 500ms, 30s, ",
        ),
        (
            vec!["x", "--lease", "3s", "--response-timeout", "2s"],
            "--lease is 3s, but a lease has to be at least twice as long: add --response-timeout 1500ms,",
        ),
        (vec!["x", "--grace", "20s"], "--grace must be at most half of --lease"),
        (
            vec!["x", "--max-hold", "2s"],
            "--grace is 5s by default, but --max-hold must be at least twice --grace: add --grace 1s,",
        ),
        (vec!["x", "--max-hold", "2s", "--grace", "1500ms"], "--grace is 1500ms, but"),
        (vec!["x", "--wait", "5x"], "expected a duration such as 500ms, 30s, 1h30m, or 5 for seconds"),
        (vec!["x", "-n", "-w", "5"], "cannot be used with"),
        (
            vec!["b", "a", "--permits", "2"],
            "--permits is for one name, and there are 2: several are taken as",
        ),
        (vec!["b", "a", "b", "--shared"], "--shared is for one name, and there are 2"),
        (vec!["b", "a", "--write"], "--write is for one name"),
        (vec!["b", "a", "--plain"], "--plain is for one name"),
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
    for (label, why) in [
        ("l".repeat(300), "lll: it has to be at most 256 bytes with both"),
        ("a\u{1b}[2J".into(), "--label is a\\u{1b}[2J: it has to be"),
    ] {
        let said = output(&server.url(), &arguments(&["x", "--label", &label], "echo no"));
        assert_eq!((said.status.code(), text(&said.stdout)), (Some(125), String::new()));
        assert!(text(&said.stderr).contains(why), "{}", text(&said.stderr));
    }
    assert_no_residue(&server, &[]);
}

#[test]
fn a_lock_that_nobody_holds_is_not_acquired_because_of_those_ahead() {
    let server = RedisServer::start();
    // As Redisson writes a waiter, which is alive for long.
    let owner = "6e3814a1-e847-452b-a982-45baf93a1df2:57";
    server.query::<()>(&["RPUSH", "redisson_lock_queue:{x}", owner]);
    server.query::<()>(&["ZADD", "redisson_lock_timeout:{x}", "9999999999999", owner]);
    for (wait, first) in [("0", "x is not free: "), ("300ms", "x was not acquired within 300ms: ")] {
        let run = arguments(&["x", "--discipline", "redisson", "--wait", wait], "echo no");
        let said = output(&server.url(), &run);
        let words = format!("fairlock: {first}not held, but 1 in line before it\n");
        assert_eq!((said.status.code(), text(&said.stderr)), (Some(124), words));
    }
    let left = ["redisson_lock_queue:{x}", "redisson_lock_timeout:{x}"];
    assert_no_residue(&server, &left);
}
