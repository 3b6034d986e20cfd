//! As the first process of a container, where signals have no default action and orphans are fairlock's.

use std::fs::read_to_string;
use std::io::Write;
use std::process::{Command, Stdio};

use fairlock_tests::eventually;

use crate::support::{FAIRLOCK, Host, Running, SOON, process_in, script, send, text, wait_for_queue};

/// The rest of the command line begins with the first process of a new namespace of processes. None where the system forbids that.
fn first_process() -> Option<Command> {
    let unshare = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child", "--"]);
        unshare.stdin(Stdio::null());
        unshare
    };
    let why = match unshare().arg("true").output() {
        Ok(said) if said.status.success() => return Some(unshare()),
        Ok(said) => text(&said.stderr),
        Err(error) => error.to_string(),
    };
    let what = "fairlock as the first process of a container, since this system allows no namespace";
    not_tested(&format!("{what}: unshare: {why}"));
    None
}

/// Not by a macro: the test harness hides what these print.
pub(super) fn not_tested(what: &str) {
    std::io::stderr().write_all(format!("NOT TESTED: {what}\n").as_bytes()).unwrap();
}

fn starts(host: &Host, options: &[&str], program: &str) -> Option<Running> {
    let mut command = first_process()?;
    command.arg(FAIRLOCK).arg("run").args(options).args(["--", "sh", "-c", program]);
    command.env("FAIRLOCK_REDIS", host.url());
    Some(Running::start(command))
}

/// The process ids of children, as this process sees them.
pub(super) fn children_of(process: u32) -> Vec<u32> {
    let children = read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// A signal ends fairlock, as the first process, with the signal's code, while fairlock waits and while its program runs.
#[test]
fn a_signal_ends_a_wait_and_a_run_with_its_code() {
    let host = Host::new();
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131), ("USR1", 138)] {
        let pid = host.dir.file(signal);
        let program = script(&pid, &format!("kill -{signal} 1; exec sleep 1000"));
        let Some(mut holder) = starts(&host, &["x"], &program) else { return };
        holder.output().is(code, "", "");
        let ours = host.lock("x");
        let guard = ours.try_lock().unwrap().granted().expect("it was released");
        let mut waiter = starts(&host, &["x"], "echo no").unwrap();
        wait_for_queue(&ours, 1);
        send(signal, children_of(waiter.0.id())[0]);
        waiter.output().is(code, "", "");
        assert_eq!(ours.admin().inspect().unwrap().queue_length, 0);
        guard.unlock().unwrap();
    }
}

/// Orphans of the program are collected, and the program's own end is told from theirs.
#[test]
fn orphans_are_collected_and_not_taken_for_the_program() {
    let host = Host::new();
    // Those that end by themselves, with a code, and by a signal, also one that has no name.
    let program = "for i in $(seq 50); do (true &); (exit 9 &); (sh -c 'kill -KILL $$' &); (sh -c 'kill -34 $$' &); done
        for i in $(seq 100); do
            grep -qs '^State:.Z' /proc/[0-9]*/status || exit 7
            sleep 0.1
        done
        echo $(grep -ls '^State:.Z' /proc/[0-9]*/status | wc -l) zombies";
    let Some(mut holder) = starts(&host, &["x"], program) else { return };
    holder.output().is(7, "", "");
}

/// A minder that is killed between the look at it and the collection of an orphan is collected as well: another process may have its id.
#[test]
fn a_minder_that_was_collected_gets_no_signal() {
    let host = Host::new();
    let Some(mut command) = first_process() else { return };
    let (pid, calls) = (host.dir.file("pid"), host.dir.file("calls"));
    command.args(["strace", "-D", "-qq", "-o", calls.to_str().unwrap(), "-e", "trace=kill,wait4"]);
    command.args(["-e", "inject=wait4:delay_enter=500000", FAIRLOCK, "run", "x", "--", "sh", "-c"]);
    command.arg(script(&pid, &format!("({} &); exec sleep 1000", host.until("go"))));
    command.env("FAIRLOCK_REDIS", host.url());
    let mut holder = Running::start(command);
    process_in(&pid);
    let first = children_of(holder.0.id())[0];
    let is_minder = |child: &u32| {
        read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default().contains("__minder")
    };
    let minder = children_of(first).into_iter().find(is_minder).unwrap();
    host.makes("go");
    let collects = || {
        let call = read_to_string(format!("/proc/{first}/syscall")).unwrap_or_default();
        call.split(' ').nth(1).is_some_and(|process| process.starts_with("0xffffffff"))
    };
    eventually("it collects any child", collects);
    send("KILL", minder);
    holder.output().failed(123, &["; the program was ended"]);
    let calls = read_to_string(calls).unwrap();
    assert!(calls.contains("SIGKILL") && !calls.contains("ESRCH"), "{calls}");
}

/// Where the first process collects no orphans, nothing of a command is left to it. And when fairlock is killed, the program that stays as
/// a zombie counts as ended.
#[test]
fn a_first_process_that_collects_nothing_is_left_nothing() {
    let host = Host::new();
    let Some(mut command) = first_process() else { return };
    let (run, busy) =
        (format!("FAIRLOCK_REDIS={} {FAIRLOCK} run", host.url()), host.lock("y").lock().unwrap());
    let pid = host.dir.file("pid");
    let commands = format!(
        "{run} x -- true; {run} -n y -- true; {run} x --lease 1d -- sh -c '{}'; exec sleep 1000",
        script(&pid, "exec sleep 1000")
    );
    command.args(["sh", "-c", &format!("({commands}) & exec sleep 1000")]);
    let holder = Running::start(command);
    process_in(&pid);
    let first = children_of(holder.0.id())[0];
    let shell = children_of(first);
    assert_eq!(shell.len(), 1, "no minder is left");
    send("KILL", children_of(shell[0])[0]);
    host.lock("x").try_lock_for(SOON).unwrap().granted().expect("the minder gives it back").unlock().unwrap();
    busy.unlock().unwrap();
}

/// As a child of a program that ignores SIGCHLD, and by a signal that has no name.
#[test]
fn the_status_of_the_program_is_never_lost() {
    let host = Host::new();
    host.runs("x", "kill -34 $$").is(162, "", "");
    let mut ignoring = Command::new("sh");
    ignoring.args([
        "-c",
        "trap '' CHLD; exec \"$@\"",
        "sh",
        FAIRLOCK,
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "exit 7",
    ]);
    ignoring.env("FAIRLOCK_REDIS", host.url()).stdin(Stdio::null());
    Running::start(ignoring).output().is(7, "", "");
    let pid = host.dir.file("pid");
    let mut waits = host.starts("x", &script(&pid, "exec sleep 1000"));
    send("34", process_in(&pid));
    waits.output().is(162, "", "");
}
