//! Read-write locks and semaphores: `run --shared`, `--write` and `--permits`, and what the other commands tell of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use fairlock::{Client, RedisBackend, RwLock, Semaphore};
use fairlock_tests::{RedisServer, WorkDir, assert_no_residue, eventually};
use serde_json::Value;

use support::{
    Running, SOON, arguments, fairlock, is_alive, output, process_in, script, text, wait_until_dead,
};

fn client(server: &RedisServer, label: &str) -> Client {
    Client::builder(RedisBackend::connect(&server.url()).unwrap()).label(label).build().unwrap()
}

fn rw_lock(server: &RedisServer, label: &str) -> RwLock {
    client(server, label).rw_lock("x").unwrap()
}

fn semaphore(server: &RedisServer, label: &str, permits: u32) -> Semaphore {
    client(server, label).semaphore("x", permits).unwrap()
}

fn json(server: &RedisServer, arguments: &[&str]) -> Value {
    let said = output(&server.url(), arguments);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

/// Starts a program that runs until the file `end` exists, and waits until it runs.
fn start(server: &RedisServer, options: &[&str], pid: &Path, end: &Path) -> Running {
    let program = script(pid, &format!("until test -e {}; do sleep 0.05; done", end.display()));
    Running::start(fairlock(&server.url(), &arguments(options, &program)))
}

#[test]
fn readers_run_together_and_a_writer_alone() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let [one, two, writer, late] = ["one", "two", "writer", "late"].map(|name| dir.file(name));
    let [end, end_of_writer] = ["end", "end-of-writer"].map(|name| dir.file(name));
    let mut readers =
        [&one, &two].map(|pid| start(&server, &["--shared", "x"], pid, &end)).into_iter().collect::<Vec<_>>();
    process_in(&one);
    process_in(&two); // beside the first
    let mut writing = start(&server, &["--write", "x"], &writer, &end_of_writer);
    let state = || rw_lock(&server, "looks").inspect().unwrap();
    eventually(SOON, "the writer is in line", || state().line_length == 1);
    readers.push(start(&server, &["--shared", "x"], &late, &end));
    eventually(SOON, "the late reader stands behind it", || state().line_length == 2);
    assert!(!writer.exists() && !late.exists());

    std::fs::write(&end, "").unwrap();
    process_in(&writer);
    assert_eq!((state().holders.len(), late.exists()), (1, false), "it is alone");
    std::fs::write(&end_of_writer, "").unwrap();
    for command in readers.iter_mut().chain([&mut writing]) {
        assert_eq!(command.status().code(), Some(0));
    }
    assert!(late.exists());
    assert_no_residue(&server, &[]);
}

#[test]
fn no_more_programs_run_than_there_are_permits() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let [one, two, end] = ["one", "two", "end"].map(|name| dir.file(name));
    let mut running = [&one, &two].map(|pid| start(&server, &["--permits", "2", "x"], pid, &end));
    process_in(&one);
    process_in(&two);
    for wait in ["0", "200ms"] {
        let refused = output(&server.url(), &arguments(&["--permits", "2", "--wait", wait, "x"], "echo no"));
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(124), String::new()));
        let errors = text(&refused.stderr);
        assert!(errors.contains("2 of 2 permits held by ") && errors.contains(" and 1 more"), "{errors}");
    }
    std::fs::write(&end, "").unwrap();
    for command in &mut running {
        assert_eq!(command.status().code(), Some(0));
    }
    let said =
        output(&server.url(), &arguments(&["--permits", "2", "--wait", "0", "x"], "echo $FAIRLOCK_NAME"));
    assert_eq!(text(&said.stdout), "x\n");
    assert_no_residue(&server, &[]);
}

#[test]
fn a_name_of_another_kind_is_refused_and_the_message_says_both() {
    let server = RedisServer::start();
    let permit = semaphore(&server, "ours", 5).acquire().unwrap();
    for (options, asked) in [
        (&["x"][..], "an exclusive lock: use another name"),
        (&["--plain", "x"], "an exclusive lock: use another name"),
        (&["--shared", "x"], "a read-write lock: use another name"),
        (&["--write", "x"], "a read-write lock: use another name"),
        (&["--permits", "8", "x"], "8: all clients name the same number; for another one use a new name"),
    ] {
        let refused = output(&server.url(), &arguments(options, "echo no"));
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(125), String::new()), "{options:?}");
        let is = "fairlock: lock `x` is in use for something else: it is a semaphore of 5 permits, and you asked for";
        assert_eq!(text(&refused.stderr), format!("{is} {asked}\n"));
    }
    permit.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn only_one_kind_can_be_asked_for() {
    for options in [&["--shared", "--write"][..], &["--plain", "--permits", "2"], &["--permits", "0"]] {
        let said = output("redis://127.0.0.1:1", &[&["run"], options, &["x", "--", "true"]].concat());
        let errors = text(&said.stderr);
        assert!(said.status.code() == Some(125) && errors.contains("--"), "{errors}");
        assert!(!errors.contains("127.0.0.1"), "it has asked the server: {errors}");
    }
}

/// The server would keep the permit for 60 s.
#[test]
fn a_permit_of_a_killed_command_comes_back_when_its_program_has_ended() {
    for kind in [&["--permits", "1"][..], &["--write"], &["--shared"]] {
        let (server, dir) = (RedisServer::start(), WorkDir::new());
        let [pid, never] = ["pid", "never"].map(|name| dir.file(name));
        let options = [kind, &["--lease", "60s", "--grace", "500ms", "x"]].concat();
        let mut killed = start(&server, &options, &pid, &never);
        let process = process_in(&pid);
        killed.0.kill().unwrap();
        let since = Instant::now();
        let next = match kind {
            ["--permits", _] => {
                semaphore(&server, "next", 1).try_acquire_for(SOON).unwrap().guard().is_some()
            }
            _ => rw_lock(&server, "next").try_write_for(SOON).unwrap().guard().is_some(),
        };
        assert!(next, "{kind:?}: not after {:?}", since.elapsed());
        assert!(!is_alive(process), "{kind:?}");
        assert_no_residue(&server, &[]);
    }
}

#[test]
fn a_killed_command_gives_back_its_own_permit_only() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let [pid, never] = ["pid", "never"].map(|name| dir.file(name));
    let ours = semaphore(&server, "ours", 3);
    let kept = ours.acquire_many(2).unwrap();
    let mut killed = start(&server, &["--permits", "3", "--grace", "500ms", "x"], &pid, &never);
    let process = process_in(&pid);
    assert_eq!(ours.inspect().unwrap().taken(), 3);
    killed.0.kill().unwrap();
    wait_until_dead(process);
    eventually(SOON, "its permit is back", || ours.inspect().unwrap().taken() == 2);
    assert!(!kept.is_lost());
    kept.unlock().unwrap();
}

#[test]
fn a_program_is_ended_when_its_permit_is_taken_and_the_others_go_on() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let [one, two, end] = ["one", "two", "end"].map(|name| dir.file(name));
    let label = |name| ["--permits", "2", "--label", name, "x"];
    let mut first = start(&server, &label("first"), &one, &end);
    let mut second = start(&server, &label("second"), &two, &end);
    process_in(&one);
    process_in(&two);
    let taken = output(&server.url(), &["unlock", "x", "first", "--yes"]);
    assert_eq!(taken.status.code(), Some(0), "{}", text(&taken.stderr));
    assert_eq!(first.status().code(), Some(123));
    std::fs::write(&end, "").unwrap();
    assert_eq!(second.status().code(), Some(0));
    assert_no_residue(&server, &[]);
}

#[test]
fn show_and_ls_tell_the_kind_all_holders_and_their_units() {
    let server = RedisServer::start();
    let permits = semaphore(&server, "ours", 5);
    let (large, small) = (permits.acquire_many(3).unwrap(), permits.acquire().unwrap());
    let waiting = semaphore(&server, "waits", 5).request_many(2).unwrap();
    let seen = json(&server, &["show", "x", "--json"]);
    assert_eq!((&seen["kind"], &seen["permits"]), (&"semaphore".into(), &5.into()));
    let takes =
        |list: &Value| list.as_array().unwrap().iter().map(|one| one["takes"].as_u64()).collect::<Vec<_>>();
    assert_eq!((takes(&seen["holders"]), takes(&seen["line"])), (vec![Some(3), Some(1)], vec![Some(2)]));
    let token = |at: usize| seen["holders"][at]["token"].as_u64();
    assert_eq!((token(0), token(1)), (Some(large.token().get()), Some(small.token().get())));
    assert_eq!(json(&server, &["ls", "--json"])[0]["kind"], "semaphore");
    let said = text(&output(&server.url(), &["show", "x"]).stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[..3],
        ["lock    x", "kind    semaphore: 4 of 5 permits are held", "holder  ours"],
        "{said}"
    );
    assert!(
        lines[3].starts_with("        3 permits, held for ") && lines[6].contains("  1 permit, held"),
        "{said}"
    );
    assert!(lines[9].starts_with("     1  waits, 2 permits, waiting for "), "{said}");
    let said = text(&output(&server.url(), &["ls"]).stdout);
    assert!(said.starts_with("x  4 of 5 permits held by ours for "), "{said}");
    assert!(said.ends_with(" and 1 more, 1 waiting\n"), "{said}");
    drop((large, small));
    waiting.wait().unwrap().unlock().unwrap();

    let (one, other) = (rw_lock(&server, "one"), rw_lock(&server, "other"));
    let reads = (one.read().unwrap(), other.read().unwrap());
    let waiting = rw_lock(&server, "waits").writer().request().unwrap();
    let said = text(&output(&server.url(), &["show", "x"]).stdout);
    for part in
        ["kind    read-write lock\n", "holder  one\n        read, held for ", "     1  waits, write, wait"]
    {
        assert!(said.contains(part), "{said}");
    }
    let said = text(&output(&server.url(), &["ls"]).stdout);
    assert!(said.starts_with("x  read by one for ") && said.ends_with(" and 1 more, 1 waiting\n"), "{said}");
    drop(reads);
    let writes = waiting.wait().unwrap();
    let seen = json(&server, &["ls", "--json"]);
    assert_eq!((&seen[0]["kind"], &seen[0]["permits"]), (&"read-write".into(), &Value::Null));
    assert!(text(&output(&server.url(), &["ls"]).stdout).starts_with("x  written by waits for "));
    writes.unlock().unwrap();
    assert_eq!(json(&server, &["show", "x", "--json"])["kind"], Value::Null);
    assert_eq!(json(&server, &["ls", "--json"]), Value::Array(Vec::new()));
}

#[test]
fn unlock_takes_all_holds_or_that_of_one_holder() {
    let server = RedisServer::start();
    let guards =
        ["a (h:1)", "b (h:2)", "b (h:3)"].map(|label| semaphore(&server, label, 5).acquire().unwrap());
    let asked = output(&server.url(), &["unlock", "x"]);
    assert!(text(&asked.stderr).contains("Take x from all its 3 holders?"), "{}", text(&asked.stderr));
    let refused = output(&server.url(), &["unlock", "x", "b", "--yes"]);
    let errors = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125), "{errors}");
    assert!(errors.contains("2 holders go by b; name one by its owner"), "{errors}");
    assert!(errors.contains(&format!("b (h:3) ({})", guards[2].owner())), "{errors}");
    let refused = output(&server.url(), &["unlock", "x", "c", "--yes"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(text(&refused.stderr), "fairlock: c does not hold x\n");
    assert!(guards.iter().all(|guard| !guard.is_lost()));

    let owner = guards[2].owner().to_string();
    for (holder, at) in [("a", 0), (owner.as_str(), 2)] {
        let taken = output(&server.url(), &["unlock", "x", holder, "--yes"]);
        assert_eq!(taken.status.code(), Some(0), "{}", text(&taken.stderr));
        guards[at].lost().recv_timeout(SOON).expect("the holder is told");
    }
    assert!(!guards[1].is_lost());
    let taken = output(&server.url(), &["unlock", "x", "--yes"]);
    assert_eq!(taken.status.code(), Some(0), "{}", text(&taken.stderr));
    guards[1].lost().recv_timeout(SOON).expect("the holder is told");

    let (one, other) = (rw_lock(&server, "one"), rw_lock(&server, "other"));
    let reads = (one.read().unwrap(), other.read().unwrap());
    assert_eq!(output(&server.url(), &["unlock", "x", "--yes"]).status.code(), Some(0));
    reads.0.lost().recv_timeout(SOON).expect("the reader is told");
    reads.1.lost().recv_timeout(SOON).expect("the reader is told");
    assert_eq!(output(&server.url(), &["unlock", "x", "--yes"]).status.code(), Some(1));
    assert_no_residue(&server, &[]);
}

/// The kicked writer stood before a reader, which enters now.
#[test]
fn kick_takes_the_place_of_a_writer_away() {
    let server = RedisServer::start();
    let ours = rw_lock(&server, "ours");
    let reading = ours.read().unwrap();
    let waiter = |label: &str| rw_lock(&server, label);
    let writer = waiter("writer").writer().request().unwrap();
    eventually(SOON, "the writer is in line", || ours.inspect().unwrap().line_length == 1);
    let mut reader = waiter("reader").reader().request().unwrap();
    eventually(SOON, "the reader is in line", || ours.inspect().unwrap().line_length == 2);
    let asked = output(&server.url(), &["kick", "x", "writer"]);
    assert!(text(&asked.stderr).contains("Take the place of writer, number 1 in the line of x?"));
    let kicked = output(&server.url(), &["kick", "x", "writer", "--yes"]);
    assert_eq!(kicked.status.code(), Some(0), "{}", text(&kicked.stderr));
    drop(
        reader.wait_for(Duration::from_secs(10)).unwrap().guard().expect("it enters beside the first reader"),
    );
    drop((reading, writer));
}
