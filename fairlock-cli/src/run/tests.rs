//! The times of a run: which fit together, what is left of them, and what is said of them.

use clap::Parser;
use fairlock::{MemoryBackend, TryLock};

use super::*;
use crate::args::{Args, Command};

/// What `fairlock run x OPTIONS` is given.
fn given(options: &str) -> (Server, Run) {
    let words = ["fairlock", "--redis", "redis://127.0.0.1:1", "run", "x"]
        .into_iter()
        .chain(options.split_whitespace())
        .chain(["--", "true"]);
    let Args { server, command, .. } = Args::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
    let Command::Run(run) = command else { panic!("it is `run`") };
    (server, run)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn times_that_just_fit_are_accepted() {
    for (options, then) in [
        ("", s(5)),
        ("--lease 9s", s(3)),
        ("--lease 30s --kill-after 15s", s(15)),
        ("--lease 4s --response-timeout 2s --kill-after 1s", s(1)),
        ("--max-hold 15s", s(5)),
        ("--max-hold 3s", s(1)),
        ("--max-hold 1h --kill-after 2s", s(2)),
    ] {
        let (server, run) = given(options);
        assert_eq!(kill_after(&server, &run).unwrap(), then, "{options}");
    }
    for options in
        ["--kill-after 15001ms", "--lease 4s --response-timeout 2001ms", "--max-hold 9999ms --kill-after 5s"]
    {
        let (server, run) = given(options);
        assert!(kill_after(&server, &run).is_err(), "{options}");
    }
}

/// A twentieth of the lease, or of a shorter `--max-hold`, is not used.
#[test]
fn a_program_starts_with_more_than_its_grace() {
    for (options, grace, starts) in [
        ("", s(28), true), // of 30 s, less 0.3 s
        ("", Duration::from_millis(28_500), false),
        ("--max-hold 10s", s(9), true),
        ("--max-hold 10s", Duration::from_millis(9_700), false),
    ] {
        let (_, run) = given(options);
        let client = Client::new(MemoryBackend::new()).unwrap();
        let mut holds = Holds::default();
        let lock = client.fair_lock("x").unwrap();
        let lock = run.max_hold.map_or_else(|| lock.clone(), |limit| lock.max_hold(limit));
        let TryLock::Granted(guard) = lock.owned_by(&client.new_owner()).unwrap().try_lock().unwrap() else {
            panic!("it is free")
        };
        holds.add(guard);
        let prolonged = prolong(&run, &holds, grace);
        assert_eq!(prolonged.is_ok(), starts, "{options} {grace:?}");
        if let Err(failure) = prolonged {
            assert_eq!(failure.exit, Exit::Unavailable);
            assert!(failure.message.contains("answers too slowly"), "{}", failure.message);
        }
    }
}

#[test]
fn a_program_was_ended_by_max_hold_or_by_a_renewal_that_failed() {
    let ended = |options: &str, held_for| about_to_be_lost(&given(options).1, s(5), held_for);
    let (limit, renewal) =
        ("lock x was held for as long as --max-hold allows", "lock x was about to be lost: ");
    for (options, held_for, why) in [
        ("", s(3600), renewal),
        ("--max-hold 20s", s(1), limit), // the grant's answer may have been late
        // TERM 5 s before KILL, and KILL half a second before the limit.
        ("--max-hold 20s --lease 10s", s(14), limit),
        ("--max-hold 20s --lease 10s", Duration::from_millis(13_900), renewal),
        ("--max-hold 40s", s(32), limit),
        ("--max-hold 40s", Duration::from_millis(31_900), renewal),
    ] {
        let said = ended(options, held_for);
        assert!(said.starts_with(why), "{options} {held_for:?}: {said}");
    }
    assert!(ended("y", s(1)).starts_with("one of the locks x, y was about to be lost: "));
}
