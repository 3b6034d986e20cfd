//! `show --watch` and `ls --watch` at a terminal: one screen, which gives the terminal back.

use std::os::unix::process::ExitStatusExt;

use fairlock_tests::{eventually, look_until};
use nix::sys::termios::{LocalFlags, tcgetattr};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::terminal::{Typed, is_stopped};
use crate::support::{FAIRLOCK, Host, SOON, is_alive, process_in, script, send, wait_for_queue};

const BACK: &str = "\u{1b}[?25h\u{1b}[?1049l";

impl Typed {
    /// The lines of the last screen that was drawn, without bold.
    fn screen(&self) -> Vec<String> {
        let all = self.shown();
        let drawn = all.split("\u{1b}[H").filter_map(|frame| Some(frame.split_once("\u{1b}[J")?.0));
        let last = drawn.last().unwrap_or_default().replace("\u{1b}[1m", "").replace("\u{1b}[m", "");
        last.replace('\r', "").split('\n').map(|line| line.trim_end_matches("\u{1b}[K").to_owned()).collect()
    }

    #[track_caller]
    fn wait_for_line(&self, what: &str, is_it: impl Fn(&str) -> bool) {
        if look_until(SOON, || self.screen().iter().any(|line| is_it(line)).then_some(())).is_none() {
            panic!("{what}: {:#?}", self.screen());
        }
    }

    fn echoes(&self) -> bool {
        tcgetattr(&*self.pty).unwrap().local_flags.contains(LocalFlags::ECHO)
    }
}

#[test]
fn ls_keeps_a_screen_and_goes_on_after_an_outage() {
    let host = Host::new();
    let names: Vec<String> = (0..12).map(|n| format!("lock:{n:02}")).collect();
    let mut holds: Vec<_> = names
        .iter()
        .map(|name| host.client("夜間\u{202e}").fair_lock(name).unwrap().lock().unwrap())
        .collect();
    let typed = Typed::begin(120, &host.url(), FAIRLOCK, &["ls", "--watch=100ms"]);
    typed.wait_for_line("all are shown", |line| line.starts_with("  lock:11 "));
    let screen = typed.screen();
    assert!(
        screen[0].starts_with("locks: 12; every ") && screen.len() == 15 && !typed.echoes(),
        "{screen:#?}"
    );
    assert!(screen[3].starts_with("  lock:00 ") && screen[3].contains(" 夜間\\u{202e} "), "{screen:#?}");

    holds.pop().unwrap().unlock().unwrap();
    typed.wait_for("\r\ngone: lock:11\u{1b}[K"); // for one look
    let waiter = host.lock("lock:01").request().unwrap();
    typed.wait_for("\u{1b}[1m* lock:01 ");
    typed.pty.resize(pty_process::Size::new(8, 200)).unwrap();
    typed.wait_for_line("some are left out", |line| line == "… and 7 more");
    assert_eq!(typed.screen().len(), 8);

    host.server.stop();
    typed.wait_for_line("the outage is shown", |line| line.starts_with("no answer for "));
    assert!(typed.screen()[3].starts_with("  lock:00 "));
    host.server.cont();
    typed.wait_for_line("it goes on", str::is_empty);
    drop((waiter, holds));
    eventually("the end is shown", || typed.screen()[0].starts_with("locks: 0"));
}

#[test]
fn however_a_screen_ends_the_terminal_is_given_back() {
    let host = Host::new();
    let guard = host.lock("x").lock().unwrap();
    let waiter = host.lock("x").request().unwrap();
    wait_for_queue(&host.lock("x"), 1);
    for (ends_by, signal) in [("\u{3}", Some(SIGINT)), ("TERM", Some(SIGTERM)), ("SET", None)] {
        let mut typed = Typed::start(&host.url(), &["show", "x", "--watch=100ms"]);
        typed.wait_for_line("the queue is shown", |line| line.contains(" 1 ") && line.contains("waits/s"));
        assert!(!typed.echoes());
        match ends_by {
            "TERM" => send("TERM", typed.child.id()),
            "SET" => host.server.query::<()>(&["SET", "x", "no lock"]),
            keys => typed.type_in(keys),
        }
        let status = typed.status();
        assert_eq!(status.signal(), signal, "{status:?}");
        typed.wait_for(BACK);
        assert!(typed.echoes());
        if signal.is_none() {
            assert_eq!(status.code(), Some(125));
            typed.wait_for(&format!("{BACK}fairlock: lock `x` "));
        }
    }
    host.server.query::<()>(&["DEL", "x"]);
    drop((waiter, guard));
}

/// Ctrl-S: nothing is read, so the terminal can't be given back.
#[test]
fn a_screen_ends_though_its_terminal_takes_nothing() {
    let host = Host::new();
    let mut typed = Typed::start(&host.url(), &["ls", "--watch=100ms"]);
    typed.wait_for_line("it is there", |line| line.starts_with("locks: 0"));
    typed.type_in("\u{13}");
    eventually("it draws no more", || {
        let before = typed.shown();
        std::thread::sleep(std::time::Duration::from_millis(400));
        before == typed.shown()
    });
    send("TERM", typed.child.id());
    assert_eq!(typed.status().signal(), Some(SIGTERM));
}

/// There the terminal is the shell's: to set it would stop the command.
#[test]
fn a_screen_that_was_stopped_ends_in_the_background() {
    let host = Host::new();
    let pid = host.dir.file("pid");
    let mut shell = Typed::shell(&host.url());
    let times = |what: &str| shell.shown().matches(what).count();
    let watch = script(&pid, &format!("exec {FAIRLOCK} ls --watch=100ms"));
    shell.type_in(&format!("sh -c '{watch}'\n"));
    let process = process_in(&pid);
    shell.wait_for("locks: 0");
    shell.type_in("\u{1a}");
    shell.wait_for("Stopped");
    assert!(shell.shown().contains(BACK) && shell.echoes());
    shell.type_in("fg\n");
    eventually("it is drawn again", || times("\u{1b}[?1049h") == 2);

    send("STOP", process);
    eventually("the shell goes on", || times("Stopped") == 2);
    shell.type_in("bg\n");
    eventually("the command goes on", || !is_stopped(process));
    send("TERM", process);
    eventually("it ends", || !is_alive(process));
    shell.type_in("echo still$((1 + 1))\n");
    shell.wait_for("still2");
    shell.ends_with("code:0");
}
