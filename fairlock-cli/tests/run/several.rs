//! Several locks at once: all or none, in an order that all commands have.

use fairlock_tests::eventually;

use crate::support::{FAIRLOCK, Host, Running, SOON, fairlock, wait_for_queue};

#[test]
fn the_program_holds_all_and_knows_the_token_of_each() {
    let program = "echo $FAIRLOCK_NAME; echo $FAIRLOCK_TOKEN; echo $FAIRLOCK_OWNER; \
                   for x in a b; do \"$0\" show $x --json; done";
    for discipline in ["hand-off", "redisson"] {
        let host = Host::new();
        let mut run = fairlock(&host.url(), &["run", "b", "a", "b", "--", "sh", "-c", program, FAIRLOCK]);
        run.env("FAIRLOCK_DISCIPLINE", discipline);
        let said = Running::start(run).output().gave(0).out;
        let lines: Vec<&str> = said.lines().collect();
        let tokens: Vec<u64> = lines[1].split(' ').map(|token| token.parse().unwrap()).collect();
        assert!(lines[0] == "b a b" && tokens.len() == 3 && tokens[0] == tokens[2], "{said}");
        for (state, token) in lines[3..].iter().zip([tokens[1], tokens[0]]) {
            let state: serde_json::Value = serde_json::from_str(state).unwrap();
            assert_eq!(state["holder"]["token"].as_u64(), Some(token), "{said}");
            assert_eq!(state["holder"]["owner"].as_str(), Some(lines[2]), "{said}");
        }
    }
}

#[test]
fn commands_and_programs_that_name_them_in_any_order_take_turns() {
    let host = Host::new();
    let inside = host.dir.file("inside");
    let program = format!("mkdir {0} && sleep 0.02 && rmdir {0}", inside.display());
    // All of them need z.
    let commands =
        ["a z b", "b z a", "c z b", "b z c", "a z c", "c z a"].map(|names| host.starts(names, &program));
    let client = host.client("");
    for names in [["z", "a", "c"], ["b", "z", "a"]] {
        let guard = client.try_lock_all_for(&names, SOON).unwrap().granted().expect("its turn comes");
        std::fs::create_dir(&inside).unwrap();
        std::fs::remove_dir(&inside).unwrap();
        guard.unlock().unwrap();
    }
    for mut command in commands {
        command.output().gave(0);
    }
}

/// Starts a command that has `a` and waits for `b`.
pub(crate) fn between(host: &Host, options: &str) -> Running {
    let command = host.starts(&format!("{options} b a"), "echo no");
    wait_for_queue(&host.lock("b"), 1);
    assert!(host.lock("a").is_locked().unwrap());
    command
}

/// A command that ends in the queue for its next lock gives back the locks that it has.
#[test]
fn a_command_that_ends_in_a_queue_gives_back_its_locks() {
    let host = Host::new();
    let (ours, guard) = (host.lock("b"), host.lock("b").lock().unwrap());
    let mut told = between(&host, "--lease 1d");
    told.signal("TERM");
    told.output().ended_by(15);
    assert!(!host.lock("a").is_locked().unwrap() && ours.admin().inspect().unwrap().queue.is_empty());

    let mut killed = between(&host, "--lease 1d");
    killed.0.kill().unwrap();
    eventually("its minder has given it back", || !host.lock("a").is_locked().unwrap());
    guard.unlock().unwrap();
    host.lock("b").lock().unwrap().unlock().unwrap(); // its place is passed over
    host.server.query::<()>(&["FLUSHALL"]);
}
