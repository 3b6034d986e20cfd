//! Signals reach the program and all that it has started.

use fairlock_tests::{RedisServer, WorkDir, assert_no_residue};

use crate::support::{FAIRLOCK, Running, arguments, fairlock, process_in, script, text, wait_until_dead};

#[test]
fn signals_are_passed_on_and_the_program_decides_what_they_mean() {
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
fn a_signal_ends_what_the_program_has_started_as_well() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let (pid, inner) = (dir.file("pid"), dir.file("inner"));
    let program = script(&pid, &format!("sleep 1000 & echo $! > {}; wait", inner.display()));
    let mut holder = Running::start(fairlock(&server.url(), &arguments(&["x"], &program)));
    let (process, inner) = (process_in(&pid), process_in(&inner));
    holder.signal("TERM");
    assert_eq!(holder.status().code(), None, "it ends by the signal that it was sent");
    wait_until_dead(process);
    wait_until_dead(inner);
    assert_no_residue(&server, &[]);
}

#[test]
fn what_was_ignored_before_stays_ignored() {
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
