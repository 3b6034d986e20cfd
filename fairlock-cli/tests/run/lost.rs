//! The hold is lost: the program is ended in time.

use std::time::{Duration, Instant};

use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Proxy, RedisServer, WorkDir, assert_no_residue};

use crate::support::{
    Running, arguments, fairlock, is_alive, lock, output, process_in, script, text, wait_until_dead,
};

#[test]
fn a_program_whose_lease_cannot_be_renewed_ends_before_another_owner_has_the_lock() {
    for trap in ["", "trap '' TERM;"] {
        let (server, dir) = (RedisServer::start(), WorkDir::new());
        let proxy = Proxy::start(server.port());
        let pid = dir.file("pid");
        let program = script(
            &pid,
            &format!("{trap} sleep 1000 & echo $! > {}; wait; wait", dir.file("inner").display()),
        );
        let options = ["x", "--lease", "3s", "--grace", "500ms"];
        let mut holder = Running::start(fairlock(&proxy.url(), &arguments(&options, &program)));
        let (process, inner) = (process_in(&pid), process_in(&dir.file("inner")));
        let waiting = lock(&server, "x").request().unwrap();
        proxy.set(Traffic::Commands, Rule::Swallow);
        let guard = waiting.wait().unwrap();
        assert!(!is_alive(process) && !is_alive(inner));
        let said = holder.output();
        assert_eq!(said.status.code(), Some(123));
        assert!(text(&said.stderr).contains("; the program was ended"), "{}", text(&said.stderr));
        guard.unlock().unwrap();
        assert_no_residue(&server, &[]);
    }
}

#[test]
fn a_program_whose_lock_is_taken_by_force_gets_term_at_once_and_kill_after_its_grace() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let pid = dir.file("pid");
    let told = dir.file("told");
    // The shell waits for its trap, which never ends by itself.
    // The trap stands before the pid file: the test sends TERM as soon as that exists.
    let wait = script(&pid, "while :; do sleep 0.1; done");
    let program = format!("trap 'touch {}; sleep 1000' TERM; {wait}", told.display());
    let mut holder = Running::start(fairlock(&server.url(), &arguments(&["x", "--grace", "1s"], &program)));
    let process = process_in(&pid);
    let taken = Instant::now();
    assert!(lock(&server, "x").force_unlock().unwrap());
    let said = holder.output();
    assert_eq!(said.status.code(), Some(123));
    assert!(taken.elapsed() >= Duration::from_millis(900), "{:?}: it had its grace", taken.elapsed());
    assert!(told.exists(), "TERM came first");
    assert!(text(&said.stderr).contains("taken by force"), "{}", text(&said.stderr));
    wait_until_dead(process);
    assert_no_residue(&server, &[]);
}

#[test]
fn a_program_that_exceeds_max_hold_is_ended() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let pid = dir.file("pid");
    let program = script(&pid, "sleep 1000");
    let start = Instant::now();
    let said = output(&server.url(), &arguments(&["x", "--max-hold", "2s", "--grace", "500ms"], &program));
    assert_eq!(said.status.code(), Some(123));
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    assert_eq!(
        text(&said.stderr),
        "fairlock: lock x was held for as long as --max-hold allows; the program was ended\n"
    );
    wait_until_dead(process_in(&pid));
    assert_no_residue(&server, &[]);
}

#[test]
fn a_program_outlives_many_leases_while_the_server_answers() {
    // A renewal has a second to come in: on a busy machine it may take a part of that.
    let server = RedisServer::start();
    let start = Instant::now();
    let said =
        output(&server.url(), &arguments(&["x", "--lease", "2s", "--grace", "200ms"], "sleep 8; echo done"));
    assert_eq!(
        (said.status.code(), text(&said.stdout)),
        (Some(0), "done\n".to_owned()),
        "{}",
        text(&said.stderr)
    );
    assert!(start.elapsed() >= Duration::from_secs(8));
}
