//! `--every` and `--most-waiting`: when a program is not run, though it could be.

use std::time::Duration;

use fairlock_tests::eventually;

use crate::support::{Host, says};

const NOWHERE: &str = "redis://127.0.0.1:1";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The periods are so long that none ends during the test, unless the test begins at the end of a month.
#[test]
fn every_runs_a_program_once_in_a_period_even_if_it_fails() {
    let host = Host::new();
    let done = ["fairlock: lock `x` was done at 20", "Z, in this period\n"];
    host.runs("x --every 31d", "exit 7").gave(7);
    host.runs("x --every 31d", "echo no").failed(124, &done);
    host.runs("x --every 31d -E 75", "echo no").failed(75, &done);
    host.runs("x --every 31d -E 0 -q", "echo no").is(0, "", "");
    assert!(
        host.lock("x").every(31 * DAY).unwrap().try_lock().unwrap().is_busy(),
        "the library's is the same"
    );
    host.runs("x --wait 0", "echo yes").is(0, "yes\n", "");
}

#[test]
fn a_run_at_work_keeps_others_from_their_period() {
    let host = Host::new();
    let (mut holder, _) = host.holds("x", "pid", &host.until("end"));
    host.runs("x --every 1s", "echo no").failed(124, &["x is not free: held by "]);
    host.makes("end");
    holder.output().gave(0);
    host.runs("x --every 1s", "echo yes").is(0, "yes\n", "");
}

#[test]
fn of_those_that_may_wait_the_rest_ends_at_once() {
    let host = Host::new();
    let (mut holder, _) = host.holds("x", "pid", &host.until("end"));
    let mut waits = host.starts("x --most-waiting 1", "echo yes");
    eventually("it waits", || host.lock("x").admin().inspect().unwrap().queue_length == 1);
    host.runs("x --most-waiting 1", "echo no").failed(124, &["lock `x` is busy, with 1 ahead"]);
    host.runs("x --most-waiting 1 -q", "echo no").is(124, "", "");
    host.makes("end");
    holder.output().gave(0);
    waits.output().is(0, "yes\n", "");
}

#[test]
fn conditions_that_cannot_be_are_refused() {
    for (options, why) in [
        ("x --every 999ms", "expected 1s to 31d, found 999ms"),
        ("x --every 32d", "expected 1s to 31d"),
        ("x --every 1h --wait 5", "cannot be used with"),
        ("x --every 1h --permits 5", "cannot be used with"),
        ("x y --every 1h", "--every is for one name, and there are 2"),
        ("x y --most-waiting 1", "--most-waiting is for one name, and there are 2"),
        ("x --most-waiting 0", "0 is not in 1.."),
    ] {
        says(NOWHERE, &format!("run {options} -- echo no")).failed(125, &[why]);
    }
}
