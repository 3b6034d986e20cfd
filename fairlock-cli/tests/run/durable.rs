//! `--durable`: what a command says while no lock is granted.

use crate::support::{Host, Said};

/// The first durable command says that clients that are not durable are refused from now on. What begins the life of a server is
/// told before, by each command; and never again.
#[test]
fn the_first_durable_command_says_that_others_are_refused() {
    let host = Host::new();
    let words = [
        "fairlock: no program has been durable on this server so far: ",
        "the key fairlock_life is deleted\n",
    ];
    host.says("show x").without(&words);
    assert_once(&host.says("show x --durable=trust=2s --response-timeout=1s").gave(0), &words);
    assert_once(&host.says("run x --durable=trust=2s --response-timeout=1s -- true").gave(0), &words);
    host.says("run x --durable=trust=2s --response-timeout=1s -- true").is(0, "", "");
    host.says("show x --durable=trust=2s --response-timeout=1s").gave(0).without(&words);
    let help = host.says("run --help").out;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("the server refuses programs that are not durable"), "{help}");
}

/// Each text is once in what a command said on standard error.
#[track_caller]
fn assert_once(said: &Said, words: &[&str]) {
    words.iter().for_each(|what| assert_eq!(said.err.matches(what).count(), 1, "{what}: {}", said.err));
}

/// A grace is told to a caller whose time is over, and once to a caller that waits.
#[test]
fn a_grace_is_told_at_a_time_out_and_once_in_a_wait() {
    let host = Host::new();
    for (wait, words) in [("0", "is not free"), ("100ms", "was not acquired within 100ms")] {
        let said = host
            .says(&format!("run x --durable=trust=2s --response-timeout=1s --wait {wait} -- true"))
            .gave(122); // no other owner has it
        let expected =
            format!("fairlock: x {words}: not held; the server has a new past, and grants no locks for ");
        assert_once(&said, &[&expected]);
    }
    let said = host.says("run x -v --durable=trust=2s --response-timeout=1s -- true").gave(0);
    assert_once(&said, &["has a new past", "its grace is over"]);
    // Refused, with what to do.
    let said = host.says("run x --durable=trust=3s --response-timeout=1s -- true").gave(125);
    let grace = "has a grace of 2522 ms, and this client one of 3532 ms";
    assert_once(&said, &[grace, "the same `--durable`", "fairlock_life"]);
}
