//! At a terminal: the progress line, and which process has the keyboard.

use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use fairlock_tests::{eventually, look_until};
use nix::unistd::{Pid, getpgid, tcgetpgrp};

use crate::support::{
    FAIRLOCK, Host, SOON, arguments, children_hear_signals, is_alive, process_in, script, send, text,
    wait_for_queue,
};

/// A command at its own terminal.
pub(super) struct Typed {
    pub(super) child: Child,
    pub(super) pty: Arc<pty_process::blocking::Pty>,
    shown: Arc<Mutex<String>>,
}

impl Typed {
    pub(super) fn start(url: &str, arguments: &[&str]) -> Typed {
        Typed::begin(200, url, FAIRLOCK, arguments)
    }

    /// A shell with job control, and with `fairlock` as `$F`. The terminal echoes its input.
    pub(super) fn shell(url: &str) -> Typed {
        let shell = Typed::begin(200, url, "sh", &["-i"]);
        shell.type_in(&format!("F={FAIRLOCK}; echo ready$((1 + 1))\n"));
        shell.wait_for("ready2");
        shell
    }

    pub(super) fn begin(columns: u16, url: &str, program: &str, arguments: &[&str]) -> Typed {
        children_hear_signals();
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(pty_process::Size::new(24, columns)).unwrap();
        let command = pty_process::blocking::Command::new(program).env("FAIRLOCK_REDIS", url);
        let child = command.args(arguments).spawn(pts).unwrap();
        let (pty, shown) = (Arc::new(pty), Arc::new(Mutex::new(String::new())));
        let (screen, output) = (Arc::clone(&pty), Arc::clone(&shown));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends with an error when the last process at the terminal has ended.
            while let Ok(read) = (&*screen).read(&mut bytes) {
                output.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text(&bytes[..read]));
            }
        });
        Typed { child, pty, shown }
    }

    pub(super) fn shown(&self) -> String {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[track_caller]
    pub(super) fn wait_for(&self, what: &str) {
        eventually(what, || self.shown().contains(what));
    }

    pub(super) fn type_in(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Ends the shell, whose last command gave this code.
    #[track_caller]
    pub(super) fn ends_with(&mut self, code: &str) {
        self.type_in("echo code:$?; exit\n");
        self.wait_for(code);
        self.status();
    }

    #[track_caller]
    pub(super) fn status(&mut self) -> std::process::ExitStatus {
        look_until(SOON, || self.child.try_wait().unwrap()).expect("it ends")
    }
}

impl Drop for Typed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_waiter_at_a_terminal_sees_its_rank_and_the_holder() {
    let host = Host::new();
    let ours = host.lock("x");
    let guard = ours.lock().unwrap();
    let first = host.lock("x").request().unwrap();
    let mut typed = Typed::start(&host.url(), &arguments(&["x"], "echo our turn"));
    typed.wait_for("x: 1 ahead, waiting for 0s; held by ");
    typed.wait_for(&format!(":{} for ", std::process::id()));
    guard.unlock().unwrap();
    let guard = first.wait().unwrap();
    typed.wait_for("x: next in the queue, waiting for ");
    guard.unlock().unwrap();
    assert_eq!(typed.status().code(), Some(0));
    typed.wait_for("\r\u{1b}[Kour turn");
}

#[test]
fn who_waits_for_a_server_at_a_terminal_sees_why() {
    let mut typed = Typed::start("redis://127.0.0.1:1", &arguments(&["x", "-w", "1.5"], "true"));
    typed.wait_for(
        "\r\u{1b}[Kconnecting for 0s; the store is unavailable: Redis at 127.0.0.1:1, connecting: ",
    );
    typed.wait_for("\r\u{1b}[Kconnecting for 1s; the store ");
    assert_eq!(typed.status().code(), Some(122));
    typed.wait_for("\r\u{1b}[Kfairlock: the store is unavailable: ");
    typed.wait_for("; tried for 1.5s");
}

#[test]
fn a_waiter_without_a_terminal_or_with_quiet_is_silent() {
    let host = Host::new();
    let ours = host.lock("x");
    let guard = ours.lock().unwrap();
    let mut waiter = host.starts("x", "true");
    wait_for_queue(&ours, 1);
    let mut quiet = Typed::start(&host.url(), &arguments(&["x", "--quiet"], "echo our turn"));
    wait_for_queue(&ours, 2);
    guard.unlock().unwrap();
    assert_eq!(quiet.status().code(), Some(0));
    quiet.wait_for("our turn");
    assert_eq!(quiet.shown(), "our turn\r\n");
    waiter.output().is(0, "", "");
}

#[test]
fn the_keyboards_interrupt_ends_a_wait_and_leaves_no_place() {
    let host = Host::new();
    let ours = host.lock("x");
    let guard = ours.lock().unwrap();
    let mut typed = Typed::start(&host.url(), &arguments(&["x"], "echo no"));
    typed.wait_for("next in the queue");
    typed.type_in("\u{3}");
    assert_eq!(typed.status().code(), None, "it ends by the signal");
    assert_eq!(ours.admin().inspect().unwrap().queue.len(), 0);
    guard.unlock().unwrap();
}

/// The keyboard's interrupt ends the program, whether or not the program has the keyboard.
#[test]
fn ctrl_c_ends_the_program_with_and_without_the_keyboard() {
    let host = Host::new();
    // Builtins only: a child of a shell can miss a signal between fork and exec (dash catches INT there), at any terminal, and
    // then both go on.
    for program in ["echo started; while :; do :; done", "echo started; read word; echo got it; read word"] {
        let mut typed = Typed::start(&host.url(), &arguments(&["x"], program));
        typed.wait_for("started");
        if program.contains("read") {
            typed.type_in("word\n");
            typed.wait_for("got it");
        }
        typed.type_in("\u{3}");
        assert_eq!(typed.status().code(), None, "it ends by the signal");
    }
}

/// Ctrl-Z.
const STOP: &str = "\u{1a}";

pub(super) fn is_stopped(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

/// Ctrl-Z, and `fg` once all have stopped. The lock is held meanwhile.
fn stop_and_go_on(host: &Host, shell: &Typed, program: u32) {
    shell.type_in(STOP);
    shell.wait_for("Stopped");
    eventually("the program has stopped", || is_stopped(program));
    assert!(host.lock("x").try_lock().unwrap().granted().is_none(), "it is still held");
    shell.type_in("fg\n");
    eventually("the program goes on", || !is_stopped(program));
}

/// A program that was stopped at the keyboard goes on in the foreground.
#[test]
fn a_program_stopped_at_the_keyboard_goes_on_in_front() {
    let host = Host::new();
    let (pid, go) = (host.dir.file("pid"), host.dir.file("go"));
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // It starts no process: one that is stopped between vfork and exec holds its parent, which then can't stop.
    let program = script(&pid, &format!("read word < {}; exit 7", go.display()));
    let mut shell = Typed::shell(&host.url());
    shell.type_in(&format!("$F run x -- sh -c '{program}'\n"));
    let process = process_in(&pid);
    let group_of = |process: u32| getpgid(Some(Pid::from_raw(process.cast_signed())));
    stop_and_go_on(&host, &shell, process);
    assert_eq!(tcgetpgrp(&*shell.pty), group_of(parent_of(process)), "it has not asked for the keyboard");
    std::fs::write(go, "").unwrap();
    shell.ends_with("code:7");
}

/// A program that had the keyboard has the keyboard again after it was stopped.
#[test]
fn a_stopped_program_has_the_keyboard_again() {
    let host = Host::new();
    let pid = host.dir.file("pid");
    let program = script(&pid, "read word; echo first:$word; read word; echo second:$word");
    let mut shell = Typed::shell(&host.url());
    shell.type_in(&format!("$F run x -- sh -c '{program}'\n"));
    let process = process_in(&pid);
    shell.type_in("one\n");
    shell.wait_for("first:one");
    stop_and_go_on(&host, &shell, process);
    shell.type_in("two\n");
    shell.wait_for("second:two");
    shell.ends_with("code:0");
}

#[test]
fn a_program_in_the_background_does_not_take_the_keyboard() {
    let host = Host::new();
    let pid = host.dir.file("pid");
    let mut shell = Typed::shell(&host.url());
    shell.type_in(&format!("$F run x -- sh -c '{}' &\n", script(&pid, "read word; echo got:$word")));
    let process = process_in(&pid);
    eventually("it asks for the keyboard", || is_stopped(process));
    shell.type_in("echo still$((1 + 1))\n");
    shell.wait_for("still2");
    shell.type_in("fg\n");
    eventually("the program goes on", || !is_stopped(process));
    shell.type_in("word\n");
    shell.wait_for("got:word");
    shell.ends_with("code:0");
}

/// Fairlock stands still alone, so the shell goes on, and the program's end must not take the keyboard from the shell.
#[test]
fn the_keyboard_is_not_taken_back_from_a_shell() {
    let host = Host::new();
    let (pid, go) = (host.dir.file("pid"), host.dir.file("go"));
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let program = script(&pid, &format!("read word; echo got:$word; read word < {}", go.display()));
    let mut shell = Typed::shell(&host.url());
    shell.type_in(&format!("$F run x -- sh -c '{program}'\n"));
    let process = process_in(&pid);
    shell.type_in("word\n");
    shell.wait_for("got:word");
    let fairlock = parent_of(process);
    send("STOP", fairlock);
    shell.wait_for("Stopped");
    std::fs::write(go, "").unwrap();
    eventually("the program has ended", || !is_alive(process));
    send("CONT", fairlock);
    eventually("so has fairlock", || !is_alive(fairlock));
    shell.type_in("echo still$((1 + 1))\n");
    shell.wait_for("still2");
    shell.ends_with("code:0");
}

fn parent_of(process: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_waiter_that_was_stopped_at_the_keyboard_goes_on_waiting() {
    let host = Host::new();
    let ours = host.lock("x");
    let guard = ours.lock().unwrap();
    let mut shell = Typed::shell(&host.url());
    shell.type_in("$F run x -- sh -c 'echo turn$((1 + 1))'\n");
    shell.wait_for("next in the queue");
    shell.type_in(STOP);
    shell.wait_for("Stopped");
    shell.type_in("fg\n");
    guard.unlock().unwrap();
    shell.wait_for("turn2");
    shell.ends_with("code:0");
}
