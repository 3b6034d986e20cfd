//! The options that `flock` of util-linux has, beside the real one.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use crate::support::{Host, Running, output, process_in, script, send, words};

/// Both get the same options. `flock` takes the program behind the file, `fairlock` behind `--`.
#[test]
fn the_options_and_exit_codes_are_those_of_flock() {
    let host = Host::new();
    let file = host.dir.file("lock");
    let flock = |options: &str, then: &[&str]| {
        let mut command = Command::new("flock");
        command.args(words(options)).arg(&file).args(then).stdin(Stdio::null());
        Running::start(command)
    };
    let both = |options: &str, then: &[&str]| {
        let ours = if then[0].starts_with('-') { then.to_vec() } else { [&["--"], then].concat() };
        let ours = output(&host.url(), &[&["run"], &*words(options), &["x"], &ours].concat());
        [flock(options, then).output(), ours].map(|said| (said.status.code(), said.out))
    };
    let waits = [
        "-n -E 7",
        "--nb -E 7",
        "--nonblock --conflict-exit-code 7",
        "-w 0 -E 7",
        "-w 0.2 -E 7",
        "--wait 1 -E 0",
        "--timeout=.3 -E7",
    ];
    for options in waits.iter().chain(&["-w 5", ""]) {
        for (then, code, said) in [
            (&["sh", "-c", "echo in; exit 3"][..], 3, "in\n"),
            (&["-c", "echo in; exit 4"], 4, "in\n"),
            (&["--command", "true"], 0, ""),
            (&["sh", "-c", "kill -TERM $$"], 143, ""),
        ] {
            let expected = (Some(code), said.to_owned());
            assert_eq!(both(options, then), [expected.clone(), expected], "{options:?} {then:?}");
        }
    }
    let (pid, guard) = (host.dir.file("pid"), host.lock("x").lock().unwrap());
    let theirs = flock("", &["sh", "-c", &script(&pid, "exec sleep 1000")]);
    let process = process_in(&pid);
    for options in waits {
        let expected = (Some(if options == "--wait 1 -E 0" { 0 } else { 7 }), String::new());
        assert_eq!(both(options, &["echo", "in"]), [expected.clone(), expected], "{options:?}");
    }
    // Without -E it is 1 there, which a program may mean as well.
    assert_eq!(both("-n", &["echo", "in"]).map(|(code, _)| code), [Some(1), Some(124)]);
    guard.unlock().unwrap();
    send("KILL", process);
    drop(theirs);
}
