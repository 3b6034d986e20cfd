//! Several locks at once: all or none, in an order that all commands have.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use fairlock::{Client, RedisBackend};
use fairlock_tests::{RedisServer, WorkDir, assert_no_residue, eventually};

use crate::support::{
    FAIRLOCK, Running, SOON, arguments, fairlock, is_alive, lock, output, process_in, script, text,
    wait_for_line,
};

#[test]
fn the_program_holds_all_and_knows_the_token_of_each() {
    let program = "echo $FAIRLOCK_NAME; echo $FAIRLOCK_TOKEN; echo $FAIRLOCK_OWNER; \
                   for x in a b; do \"$0\" show $x --json; done";
    for discipline in ["hand-off", "redisson"] {
        let server = RedisServer::start();
        let mut run = fairlock(&server.url(), &["run", "b", "a", "b", "--", "sh", "-c", program, FAIRLOCK]);
        run.env("FAIRLOCK_DISCIPLINE", discipline);
        let said = Running::start(run).output();
        assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
        let said = text(&said.stdout);
        let lines: Vec<&str> = said.lines().collect();
        let tokens: Vec<u64> = lines[1].split(' ').map(|token| token.parse().unwrap()).collect();
        assert!(lines[0] == "b a b" && tokens.len() == 3 && tokens[0] == tokens[2], "{said}");
        for (state, token) in lines[3..].iter().zip([tokens[1], tokens[0]]) {
            let state: serde_json::Value = serde_json::from_str(state).unwrap();
            assert_eq!(state["holder"]["token"].as_u64(), Some(token), "{said}");
            assert_eq!(state["holder"]["owner"].as_str(), Some(lines[2]), "{said}");
        }
        assert_no_residue(&server, &[]);
    }
}

#[test]
fn commands_and_programs_that_name_them_in_any_order_take_turns() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let inside = dir.file("inside");
    let program = format!("mkdir {0} && sleep 0.02 && rmdir {0}", inside.display());
    let commands: Vec<Running> = [["a", "b"], ["b", "a"], ["c", "b"], ["b", "c"], ["a", "c"], ["c", "a"]]
        .into_iter()
        .map(|[one, other]| {
            // All of them need this one.
            Running::start(fairlock(&server.url(), &arguments(&[one, "z", other], &program)))
        })
        .collect();
    let client = Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap();
    for names in [["z", "a", "c"], ["b", "z", "a"]] {
        let guard = client.try_lock_all_for(&names, SOON).unwrap().guard().expect("its turn comes");
        std::fs::create_dir(&inside).unwrap();
        std::fs::remove_dir(&inside).unwrap();
        guard.unlock().unwrap();
    }
    for mut command in commands {
        let said = command.output();
        assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    }
    assert_no_residue(&server, &[]);
}

#[test]
fn if_one_is_busy_none_is_kept() {
    let server = RedisServer::start();
    let guard = lock(&server, "b").lock().unwrap();
    for (options, message) in [
        (&["-w", "0.3"][..], "fairlock: b was not acquired within 300ms: held by "),
        (&["-n"], "fairlock: b is not free: held by "),
    ] {
        let said = output(&server.url(), &arguments(&[options, &["a", "b"]].concat(), "echo no"));
        assert_eq!((said.status.code(), text(&said.stdout)), (Some(124), String::new()));
        assert!(text(&said.stderr).starts_with(message), "{}", text(&said.stderr));
        assert!(!lock(&server, "a").is_locked().unwrap());
    }
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

/// Starts a command that has `a` and waits for `b`.
fn between(server: &RedisServer, options: &[&str]) -> Running {
    let command =
        Running::start(fairlock(&server.url(), &arguments(&[options, &["b", "a"]].concat(), "echo no")));
    wait_for_line(&lock(server, "b"), 1);
    assert!(lock(server, "a").is_locked().unwrap());
    command
}

#[test]
fn a_command_that_ends_in_line_for_the_next_gives_back_what_it_has() {
    let server = RedisServer::start();
    let (ours, guard) = (lock(&server, "b"), lock(&server, "b").lock().unwrap());
    let mut told = between(&server, &["--lease", "60s"]);
    told.signal("TERM");
    let said = told.output();
    assert_eq!((said.status.signal(), said.stdout, said.stderr), (Some(15), vec![], vec![]));
    assert!(!lock(&server, "a").is_locked().unwrap() && ours.inspect().unwrap().line.is_empty());
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);

    let guard = ours.lock().unwrap();
    let mut killed = between(&server, &["--lease", "60s", "--grace", "500ms"]);
    killed.0.kill().unwrap();
    eventually(SOON, "its minder has given it back", || !lock(&server, "a").is_locked().unwrap());
    guard.unlock().unwrap();
    let next = lock(&server, "b").lock().unwrap(); // its place is passed over
    next.unlock().unwrap();
}

#[test]
fn a_lock_that_is_taken_while_the_next_is_waited_for_ends_the_wait() {
    let server = RedisServer::start();
    let (ours, guard) = (lock(&server, "b"), lock(&server, "b").lock().unwrap());
    let mut waits = between(&server, &[]);
    assert!(lock(&server, "a").force_unlock().unwrap());
    let said = waits.output();
    let errors = text(&said.stderr);
    assert_eq!((said.status.code(), text(&said.stdout)), (Some(123), String::new()), "{errors}");
    assert!(errors.starts_with("fairlock: lock `a` was lost by "), "{errors}");
    assert!(errors.ends_with("; the program was not started\n"), "{errors}");
    assert!(ours.inspect().unwrap().line.is_empty());
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn when_one_is_taken_the_program_is_ended_and_all_are_given_back() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    for taken in ["a", "b"] {
        let pid = dir.file(taken);
        let program = script(&pid, "exec sleep 1000");
        let mut holder =
            Running::start(fairlock(&server.url(), &arguments(&["a", "b", "--grace", "1s"], &program)));
        let process = process_in(&pid);
        assert!(lock(&server, taken).force_unlock().unwrap());
        let said = holder.output();
        assert_eq!(said.status.code(), Some(123));
        assert!(
            text(&said.stderr).contains(&format!("lock `{taken}` was lost by ")),
            "{}",
            text(&said.stderr)
        );
        assert!(!is_alive(process));
        assert!(!lock(&server, "a").is_locked().unwrap() && !lock(&server, "b").is_locked().unwrap());
    }
    assert_no_residue(&server, &[]);
}

#[test]
fn all_stay_taken_after_the_program() {
    let server = RedisServer::start();
    let said = output(&server.url(), &arguments(&["a", "b", "--at-least", "10m"], "exit 3"));
    assert_eq!((said.status.code(), text(&said.stderr)), (Some(3), String::new()));
    for name in ["a", "b"] {
        let left = lock(&server, name).inspect().unwrap().holder().unwrap().lease_left.unwrap();
        assert!(left > Duration::from_secs(500), "{name}: {left:?}");
        assert!(lock(&server, name).force_unlock().unwrap());
    }
    assert_no_residue(&server, &[]);
}

/// The server would keep them for 60 s.
#[test]
fn a_killed_command_gives_all_back_when_its_program_has_ended() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let pid = dir.file("pid");
    let options = ["c", "a", "b", "--lease", "60s", "--grace", "500ms"];
    let mut holder = Running::start(fairlock(
        &server.url(),
        &arguments(&options, &script(&pid, "trap '' TERM; sleep 1000")),
    ));
    let process = process_in(&pid);
    holder.0.kill().unwrap();
    let killed = Instant::now();
    let client = Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap();
    let guard = client.try_lock_all_for(&["a", "b", "c"], SOON).unwrap().guard().expect("they come back");
    assert!(!is_alive(process));
    assert!(killed.elapsed() >= Duration::from_millis(400), "{:?}: it had its grace", killed.elapsed());
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

/// Between the grants, too: nobody has to wait for longer.
#[test]
fn max_hold_counts_from_the_first_grant() {
    let server = RedisServer::start();
    let guard = lock(&server, "b").lock().unwrap();
    let mut waits = between(&server, &["--max-hold", "1s", "--grace", "200ms"]);
    let said = waits.output();
    let errors = text(&said.stderr);
    assert!(said.status.code() == Some(123) && errors.contains("; the program was not started"), "{errors}");
    eventually(SOON, "its time is over", || !lock(&server, "a").is_locked().unwrap());
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}
