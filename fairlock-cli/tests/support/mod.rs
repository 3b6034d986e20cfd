//! Starts the command, and programs under it that announce themselves.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Once};
use std::time::Duration;

use fairlock::{Client, Discipline, Lock, RedisBackend};
use fairlock_tests::{RedisServer, eventually, look_until};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

pub(crate) const FAIRLOCK: &str = env!("CARGO_BIN_EXE_fairlock");
/// For quick events, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The command with this server.
pub(crate) fn fairlock(url: &str, arguments: &[&str]) -> Command {
    children_hear_signals();
    let mut command = Command::new(FAIRLOCK);
    let variable = if url.starts_with("postgres") { "FAIRLOCK_POSTGRES" } else { "FAIRLOCK_REDIS" };
    command.env(variable, url).args(arguments).stdin(Stdio::null());
    command
}

/// A signal that this process ignores (under `nohup`, or INT and QUIT in a script's background job) would be ignored by the
/// commands under test as well. From now on it is caught without effect: a caught signal has its default action again in a
/// started program.
pub(crate) fn children_hear_signals() {
    static CAUGHT: Once = Once::new();
    CAUGHT.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2] {
            if ignored & 1 << (signal - 1) != 0 {
                signal_hook::flag::register(signal, Arc::default()).unwrap();
            }
        }
    });
}

/// Runs it to its end, which comes soon.
#[track_caller]
pub(crate) fn output(url: &str, arguments: &[&str]) -> Output {
    Running::start(fairlock(url, arguments)).output()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running command, killed when dropped.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    #[track_caller]
    pub(crate) fn status(&mut self) -> ExitStatus {
        look_until(SOON, || self.0.try_wait().unwrap()).expect("it ends")
    }

    /// Only for output that fits into the pipes.
    #[track_caller]
    pub(crate) fn output(&mut self) -> Output {
        let status = self.status();
        let mut output = Output { status, stdout: Vec::new(), stderr: Vec::new() };
        self.0.stdout.take().unwrap().read_to_end(&mut output.stdout).unwrap();
        self.0.stderr.take().unwrap().read_to_end(&mut output.stderr).unwrap();
        output
    }

    pub(crate) fn signal(&self, signal: &str) {
        send(signal, self.0.id());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn send(signal: &str, process: u32) {
    let sent = Command::new("kill").args(["-s", signal, &process.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -s {signal} {process}");
}

/// A shell script as the program under the lock. First it writes its process id to a file.
pub(crate) fn script(pid_file: &Path, then: &str) -> String {
    let file = pid_file.display();
    format!("echo $$ > {file}.new; mv {file}.new {file}; {then}")
}

/// Waits until the script runs. Returns its process id.
#[track_caller]
pub(crate) fn process_in(pid_file: &Path) -> u32 {
    let read = || std::fs::read_to_string(pid_file).ok()?.trim().parse().ok();
    look_until(SOON, read).expect("the program under the lock runs")
}

/// Whether the process exists and is no zombie.
pub(crate) fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // `pid (name) state …`; Z has ended, but its parent has not waited for it.
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

#[track_caller]
pub(crate) fn wait_until_dead(process: u32) {
    eventually(SOON, "the process has ended", || !is_alive(process));
}

/// The same lock for this process.
pub(crate) fn lock(server: &RedisServer, name: &str) -> Lock {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::HandOff).connect().unwrap();
    Client::new(backend).unwrap().fair_lock(name).unwrap()
}

#[track_caller]
pub(crate) fn wait_for_line(lock: &Lock, waiting: u64) {
    eventually(SOON, "they are in line", || lock.inspect().unwrap().line_length == waiting);
}

pub(crate) fn arguments<'a>(run: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run"], run, &["--", "sh", "-c", script]].concat()
}

pub(crate) fn file(dir: &fairlock_tests::WorkDir, name: &str) -> PathBuf {
    dir.file(name)
}
