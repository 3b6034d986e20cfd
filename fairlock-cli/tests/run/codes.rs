//! The environment of the program, and the exit codes.

use std::time::{Duration, Instant};

use fairlock_tests::RedisServer;

use crate::support::{Host, Running, fairlock, output, says, starts};

const NOWHERE: &str = "redis://127.0.0.1:1";

/// The program knows its lock, and its exit code is passed through.
#[test]
fn the_program_knows_its_lock_and_its_code_is_passed_on() {
    let host = Host::new();
    let said = host.runs("x", "echo $FAIRLOCK_NAME $FAIRLOCK_TOKEN $FAIRLOCK_OWNER; exit 7").gave(7);
    let words: Vec<&str> = said.out.split_whitespace().collect();
    assert_eq!((words.len(), words[0], &*said.err), (3, "x", ""));
    assert!(words[1].parse::<u64>().unwrap() > 0 && words[2].contains(':'), "{words:?}");
    host.runs("x", "kill -KILL $$").gave(137);
}

/// As to a user with the rights that an earlier version needed.
#[test]
fn a_busy_lock_is_busy_although_a_look_at_it_is_refused() {
    let host = Host::new();
    let guard = host.lock("x").lock().unwrap();
    host.server.query::<()>(&["ACL", "SETUSER", "bob", "on", ">canary", "~*", "&*", "+@all", "-zcard"]);
    let url = host.url().replace("redis://", "redis://bob:canary@");
    starts(&url, "x -n -E 75", "echo no").output().failed(75, &["x is not free: ", "the user lacks a right"]);
    guard.unlock().unwrap();
}

/// A program that can't be run gives 126 or 127 before any wait, and leaves nothing.
#[test]
fn a_program_that_cannot_be_run_gives_126_or_127() {
    let host = Host::new();
    let of = |name: &str| host.dir.file(name).to_str().unwrap().to_owned();
    let (plain, folder, tools) = (of("plain"), of("folder"), of("tools"));
    host.makes("plain");
    [&folder, &tools].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
    let guard = host.lock("x").lock().unwrap();
    for (program, code) in [
        ("/nonesuch", 127),
        ("/", 126),
        ("nonesuch", 127),
        ("./nonesuch", 127),
        (&plain, 126),
        (&folder, 126),
    ] {
        for name in ["x", "free"] {
            let said = output(&host.url(), &["run", name, "--", program]).gave(code);
            assert!(said.err.starts_with(&format!("fairlock: {program}: ")), "{}", said.err);
        }
    }
    // In the PATH, one that can't be run does not hide one that can.
    std::fs::write(format!("{tools}/true"), "").unwrap();
    for (path, code) in [(format!("{tools}:/usr/bin:/bin"), 0), (tools, 126), (folder, 127)] {
        let mut run = fairlock(&host.url(), &["run", "free", "--", "true"]);
        run.env("PATH", &path);
        assert_eq!(Running::start(run).status().code(), Some(code), "PATH={path}");
    }
    guard.unlock().unwrap();
}

#[test]
fn a_shell_runs_a_command_line() {
    let host = Host::new();
    for option in ["-c", "--shell"] {
        let run = ["run", "x", option, "echo $FAIRLOCK_NAME | tr x y; exit 7"];
        output(&host.url(), &run).is(7, "y\n", "");
    }
    output(&host.url(), &["run", "x", "-c", "echo a", "--", "echo", "b"]).failed(125, &[]);
}

#[test]
fn the_exit_code_of_a_wait_that_fails_can_be_chosen() {
    let host = Host::new();
    let guard = host.lock("x").lock().unwrap();
    for (options, code) in
        [("--wait 0 -E 0", 0), ("--wait 100ms --conflict-exit-code 75", 75), ("-E 256", 125)]
    {
        host.runs(&format!("x {options}"), "echo no").failed(code, &[]);
    }
    for (options, code) in [("-n -E 0", 0), ("-w 0.1", 124)] {
        for quiet in ["-q", "--quiet"] {
            host.runs(&format!("x {options} {quiet}"), "echo no").is(code, "", "");
        }
    }
    guard.unlock().unwrap();
    host.runs("x -E 75", "exit 3").gave(3); // the program's own code stays
    host.runs("x -q", "echo yes; exit 3").is(3, "yes\n", "");
    // Only that another one has the lock is not said.
    starts(NOWHERE, "x -n -q", "echo no").output().failed(122, &["127.0.0.1:1"]).without(&["tried for"]);
}

#[test]
fn verbose_says_label_wait_and_token_and_twice_what_happens() {
    let host = Host::new();
    let run = |verbose: &str| {
        let said = host.runs(&format!("x --label nightly {verbose}"), "echo $FAIRLOCK_TOKEN").gave(0);
        let token = format!("token {}", said.out.trim());
        said.with(&[&token]).err
    };
    let said = run("-v");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("lock `x` granted to nightly (") && said.contains(" after "), "{said}");
    let said = run("-vv");
    assert!(said.contains(" granted to ") && said.contains(" released by "), "{said}");
}

/// A lock that is not acquired in time gives 124, and leaves no place.
#[test]
fn a_lock_not_acquired_in_time_gives_124() {
    let host = Host::new();
    let ours = host.lock("x");
    let guard = ours.lock().unwrap();
    let holder = format!(":{} for ", std::process::id());
    for (wait, message) in [
        ("300ms", "fairlock: x was not acquired within 300ms: held by "),
        ("0", "fairlock: x is not free: held by "),
        ("0.25s", "fairlock: x was not acquired within 250ms: held by "),
        ("200ms --plain", "fairlock: x was not acquired within 200ms: held by "),
    ] {
        let start = Instant::now();
        let said = host.runs(&format!("x --wait {wait}"), "echo no").failed(124, &[&holder]);
        assert!(said.err.starts_with(message), "{}", said.err);
        assert!(wait != "300ms" || start.elapsed() >= Duration::from_millis(300));
        assert_eq!(ours.admin().inspect().unwrap().queue.len(), 0);
    }
    guard.unlock().unwrap();
    host.runs("x --plain --wait 20s", "echo yes").is(0, "yes\n", "");
}

/// A server that can't be reached gives 122, and a refused password 125 without the password in the message.
#[test]
fn an_unreachable_server_gives_122_a_refused_password_125() {
    let server = RedisServer::builder().requirepass("canary").start();
    starts(NOWHERE, "x -w 0.1", "echo no").output().failed(122, &["; tried for "]);
    let wrong = server.url_as("", "wrong-canary");
    for arguments in ["run x -- echo no", "show x", "ls"] {
        says(&wrong, arguments).gave(125).with(&["password"]).without(&["canary"]);
    }
    for arguments in [format!("ls x {wrong}"), format!("{wrong} ls"), format!("ls --redi {wrong}")] {
        says(NOWHERE, &arguments).gave(125).without(&["canary"]);
    }
    let said = says(&wrong, "--help");
    assert!(said.out.contains("FAIRLOCK_REDIS") && !said.out.contains("canary"));
}

#[test]
fn options_that_cannot_work_give_125_and_say_why() {
    for (options, why) in [
        ("x --lease 500ms", "--lease is 500ms: it has to be from 1s to 36500d\n"), // it is a time, so no form
        ("x --lease 5q", "it has to be from 1s to 36500d, such as 500ms, 30s, "),
        (
            "x --lease 30s --durable",
            "--lease is 30s, but with --durable the server grants 10s at most: choose a shorter",
        ),
        (
            "x --lease 3s --response-timeout 2s",
            "--lease is 3s, but a lease has to be at least twice as long: add --response-timeout 1500ms,",
        ),
        (
            "x --kill-after 20s",
            "--kill-after is 20s and --lease is 30s, but --kill-after must be at most half of --lease: add --kill-after 15s, or",
        ),
        (
            "x --max-hold 2s --kill-after 1500ms",
            "--kill-after is 1500ms, but --max-hold must be at least twice --kill-after: add --kill-after 1s,",
        ),
        ("x --wait 5x", "expected a duration such as 500ms, 30s, 1h30m, or 5 for seconds"),
        ("x -n -w 5", "cannot be used with"),
        ("b a --permits 2", "--permits is for one name, and there are 2: several are taken as"),
        ("b a b --shared", "--shared is for one name, and there are 2"),
        ("b a --write", "--write is for one name"),
        ("b a --plain", "--plain is for one name"),
        ("", "required"),
    ] {
        starts(NOWHERE, options, "echo no").output().failed(125, &[why]);
    }
    for run in ["run x echo no", "run x --wait 0 echo no"] {
        let tip = "3 names and no program: put `--` before it, as in `run x -- echo no`";
        says(NOWHERE, run).failed(125, &[tip]);
    }
    says(NOWHERE, "run x").failed(125, &["put `--` before the program and its arguments"]);
    says(NOWHERE, "lock x").failed(125, &["`fairlock run NAME -- PROGRAM` runs"]).without(&["unlock"]);
    says(NOWHERE, "run x --wiat 0 -- echo no")
        .without(&["put `--`", "-- --wiat"])
        .with(&["exists: '--wait'"]);
    // What stands behind `--` would be run.
    says(NOWHERE, "run -5 -- echo no").failed(125, &["'-5'"]).without(&["tip"]);
    for time in ["-w -5", "--max-hold -1", "--lease -2"] {
        says(NOWHERE, &format!("run x {time} -- echo no")).failed(125, &["such as 500ms, 30s, 1h30m"]);
    }
}

/// A lock that nobody holds is not acquired because of the waiters ahead.
#[test]
fn a_free_lock_is_not_acquired_past_those_ahead() {
    let host = Host::new();
    // As Redisson writes a waiter, which is alive for long.
    let owner = "6e3814a1-e847-452b-a982-45baf93a1df2:57";
    host.server.query::<()>(&["RPUSH", "redisson_lock_queue:{x}", owner]);
    host.server.query::<()>(&["ZADD", "redisson_lock_timeout:{x}", "9999999999999", owner]);
    for (wait, first) in [("0", "x is not free: "), ("300ms", "x was not acquired within 300ms: ")] {
        let words = format!("fairlock: {first}not held, but 1 in the queue before it\n");
        host.runs(&format!("x --discipline redisson --wait {wait}"), "echo no").is(124, "", &words);
    }
    host.server.query::<()>(&["DEL", "redisson_lock_queue:{x}", "redisson_lock_timeout:{x}"]);
}
