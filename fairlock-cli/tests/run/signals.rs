//! Signals reach the program and its children.

use std::net::TcpListener;

use crate::support::{FAIRLOCK, Host, Running, arguments, process_in, script, starts, wait_until_dead};

#[test]
fn signals_are_passed_on_and_the_program_decides_about_them() {
    let host = Host::new();
    for (signal, code) in [("TERM", 3), ("INT", 4), ("HUP", 5), ("QUIT", 6), ("USR1", 7), ("USR2", 8)] {
        let pid = host.dir.file(signal);
        let then = "while :; do sleep 0.1; done";
        let mut holder = host.starts("x", &format!("trap 'exit {code}' {signal}; {}", script(&pid, then)));
        process_in(&pid);
        holder.signal(signal);
        holder.output().gave(code);
    }
}

#[test]
fn a_signal_ends_the_children_of_the_program_as_well() {
    let host = Host::new();
    let inner = host.dir.file("inner");
    let (mut holder, process) =
        host.holds("x", "pid", &format!("sleep 1000 & echo $! > {}; wait", inner.display()));
    let inner = process_in(&inner);
    holder.signal("TERM");
    assert_eq!(holder.status().code(), None, "it ends by the signal");
    wait_until_dead(process);
    wait_until_dead(inner);
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let host = Host::new();
    let pid = host.dir.file("pid");
    let program = script(&pid, &host.until("go"));
    let mut nohup = std::process::Command::new("sh");
    nohup.args(["-c", "trap '' HUP USR2; exec \"$@\"", "sh", FAIRLOCK]).args(arguments(&["x"], &program));
    nohup.env("FAIRLOCK_REDIS", host.url()).stdin(std::process::Stdio::null());
    let mut holder = Running::start(nohup);
    process_in(&pid);
    ["HUP", "USR2"].iter().for_each(|signal| holder.signal(signal));
    host.makes("go");
    assert_eq!(holder.status().code(), Some(0));
}

#[test]
fn a_signal_while_it_connects_is_no_outage() {
    // It accepts connections, and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let mut early = starts(&url, "x", "echo no");
        let _connected = silent.accept().unwrap();
        early.signal(signal);
        early.output().ended_by(number);
    }
}
