//! Signals reach the program and its children.

use fairlock_tests::{RedisServer, WorkDir, assert_no_residue};

use crate::support::{FAIRLOCK, Running, arguments, fairlock, process_in, script, text, wait_until_dead};

#[test]
fn signals_are_passed_on_and_the_program_decides_about_them() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    for (signal, code) in [("TERM", 3), ("INT", 4), ("HUP", 5), ("QUIT", 6), ("USR1", 7), ("USR2", 8)] {
        let pid = dir.file(signal);
        let then = "while :; do sleep 0.1; done";
        let program = format!("trap 'exit {code}' {signal}; {}", script(&pid, then));
        let mut holder = Running::start(fairlock(&server.url(), &arguments(&["x"], &program)));
        process_in(&pid);
        holder.signal(signal);
        let said = holder.output();
        assert_eq!(said.status.code(), Some(code), "{signal}: {}", text(&said.stderr));
    }
    assert_no_residue(&server, &[]);
}

#[test]
fn a_signal_ends_the_children_of_the_program_as_well() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let (pid, inner) = (dir.file("pid"), dir.file("inner"));
    let program = script(&pid, &format!("sleep 1000 & echo $! > {}; wait", inner.display()));
    let mut holder = Running::start(fairlock(&server.url(), &arguments(&["x"], &program)));
    let (process, inner) = (process_in(&pid), process_in(&inner));
    holder.signal("TERM");
    assert_eq!(holder.status().code(), None, "it ends by the signal");
    wait_until_dead(process);
    wait_until_dead(inner);
    assert_no_residue(&server, &[]);
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let (pid, go) = (dir.file("pid"), dir.file("go"));
    let program = script(&pid, &format!("while ! test -e {}; do sleep 0.1; done", go.display()));
    let mut nohup = std::process::Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh", FAIRLOCK]).args(arguments(&["x"], &program));
    nohup.env("FAIRLOCK_REDIS", server.url()).stdin(std::process::Stdio::null());
    let mut holder = Running::start(nohup);
    process_in(&pid);
    holder.signal("HUP");
    std::fs::write(&go, "").unwrap();
    assert_eq!(holder.status().code(), Some(0));
}

/// As in `nohup tests/run`, or in a script that runs the tests in the background.
#[test]
fn these_tests_hold_where_signals_are_ignored() {
    let this = std::env::current_exe().unwrap();
    let mut ignoring = std::process::Command::new("sh");
    ignoring.args(["-c", "trap '' HUP INT QUIT TERM TSTP USR1 USR2; exec \"$@\"", "sh"]).arg(this);
    ignoring.args(["--exact", "killed::a_signal_while_it_connects_is_no_outage"]);
    let said = Running::start(ignoring).output();
    assert!(said.status.success() && text(&said.stdout).contains("1 passed"), "{}", text(&said.stdout));
}
