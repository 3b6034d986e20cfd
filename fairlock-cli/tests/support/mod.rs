//! Starts the command, and programs under it that say when they run.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use fairlock::{Client, Discipline, Lock, RedisBackend};
use fairlock_tests::{RedisServer, eventually, look_until};

pub(crate) const FAIRLOCK: &str = env!("CARGO_BIN_EXE_fairlock");
/// For what is quick, on a machine that is busy.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The command with this server, and nothing else of the environment's.
pub(crate) fn fairlock(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(FAIRLOCK);
    command.env("FAIRLOCK_REDIS", url).args(arguments).stdin(Stdio::null());
    command
}

/// Runs it to its end, which has to come soon.
#[track_caller]
pub(crate) fn output(url: &str, arguments: &[&str]) -> Output {
    Running::start(fairlock(url, arguments)).output()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command that runs; killed when dropped.
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

    /// What it has said is little: it fits into the pipes.
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

/// A shell script as the program under the lock; it writes its number into a file first.
pub(crate) fn script(pid_file: &Path, then: &str) -> String {
    let file = pid_file.display();
    format!("echo $$ > {file}.new; mv {file}.new {file}; {then}")
}

/// Waits until the script runs.
#[track_caller]
pub(crate) fn process_in(pid_file: &Path) -> u32 {
    let read = || std::fs::read_to_string(pid_file).ok()?.trim().parse().ok();
    look_until(SOON, read).expect("the program under the lock runs")
}

/// Whether the process is there and does anything.
pub(crate) fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // `pid (name) state …`; Z is one that has ended and whose parent has not noticed.
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

#[track_caller]
pub(crate) fn wait_until_dead(process: u32) {
    eventually(SOON, "the process is gone", || !is_alive(process));
}

/// The same lock for this process.
pub(crate) fn lock(server: &RedisServer, name: &str) -> Lock {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::HandOff).connect().unwrap();
    Client::new(backend).unwrap().fair_lock(name).unwrap()
}

#[track_caller]
pub(crate) fn wait_for_line(lock: &Lock, waiting: u64) {
    eventually(SOON, "they stand in line", || lock.inspect().unwrap().line_length == waiting);
}

pub(crate) fn arguments<'a>(run: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run"], run, &["--", "sh", "-c", script]].concat()
}

pub(crate) fn file(dir: &fairlock_tests::WorkDir, name: &str) -> PathBuf {
    dir.file(name)
}
