//! Stopping and continuing a child process, as a debugger, a laptop lid or a busy host would.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::process::Child;

/// Stops `child` (SIGSTOP) and returns when it stands still; harmless if it does already. Panics if it has ended.
pub fn stop(child: &Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP).expect("a child that was not waited for can be signalled");
    // The signal only asks. With NOWAIT, an exit reported here stays for `Child::wait`.
    let heard =
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let status = heard.expect("a child can be waited for").expect("no NOHANG, so there is a status");
    assert!(status.stopped(), "process {} ended before it could be stopped", child.id());
}

/// Continues a stopped `child` (SIGCONT); harmless if it was not stopped.
pub fn cont(child: &Child) {
    kill_process(Pid::from_child(child), Signal::CONT)
        .expect("a child that was not waited for can be signalled");
}

/// Whether `child` stands still (SIGSTOP). Always false outside Linux.
pub fn is_stopped(child: &Child) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    // `pid (name) state …`, where the name may contain anything.
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

/// Asks `child` to end (SIGTERM).
pub fn terminate(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM)
        .expect("a child that was not waited for can be signalled");
}
