//! `--at-least`: the lock stays taken after the program.

use std::time::Duration;

use fairlock::admin::Holder;
use fairlock_tests::eventually;

use crate::support::{Host, only_row, wait_until_dead};

/// The holder, if nobody works under the lock any more.
fn kept(host: &Host) -> Option<Holder> {
    let holder = host.lock("x").admin().inspect().unwrap().holder().cloned()?;
    (holder.hold_count == 0).then_some(holder)
}

/// With `--at-least`, the lock stays taken until that long after the grant, also if the program fails.
#[test]
fn at_least_keeps_the_lock_also_if_the_program_fails() {
    let host = Host::new();
    for (program, code) in [("exit 0", 0), ("exit 3", 3)] {
        host.runs("x --at-least 10m", program).is(code, "", "");
        let left = kept(&host).expect("it is taken").lease_left.unwrap();
        assert!(left > Duration::from_secs(500) && left < Duration::from_secs(600), "{left:?}");
        let kept = "kept for 9m";
        host.runs("x --wait 0", "echo no").failed(124, &[&format!("fairlock: x is not free: {kept}")]);
        host.runs("x --wait 0.2s", "echo no").failed(124, &[": kept for 9m", "s more after the end of "]);
        assert_eq!(only_row(&host.says("ls").out)[2], "kept");
        host.says("unlock x").failed(125, &["Free x, kept for 9m", "? Standard input is not"]);
        let shown = host.says("show x").out;
        assert!(shown.contains("lease left 9m") && shown.contains(", kept after its end\n"), "{shown}");
        assert!(host.lock("x").admin().force_unlock().unwrap());
    }
    host.runs("x --at-least 1ms", "exit 0").gave(0);
    assert!(!host.lock("x").is_locked().unwrap());
}

#[test]
fn when_fairlock_is_killed_the_lock_stays_taken_all_the_same() {
    let host = Host::new();
    let (mut dead, program) = host.holds("x --at-least 10m", "pid", "sleep 1000");
    dead.0.kill().unwrap();
    wait_until_dead(program);
    eventually("the minder has the server keep it", || kept(&host).is_some());
    assert!(kept(&host).unwrap().lease_left.unwrap() > Duration::from_secs(500));
    assert!(host.lock("x").admin().force_unlock().unwrap());
}
