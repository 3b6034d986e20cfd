//! Starts the command, and programs under it that announce themselves.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Once};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fairlock::settings::Discipline;
use fairlock::{Client, Lock, RedisBackend};
use fairlock_tests::secrets::assert_no_secret;
use fairlock_tests::{RedisServer, WorkDir, eventually, wait_until_no_residue};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

pub(crate) const FAIRLOCK: &str = env!("CARGO_BIN_EXE_fairlock");
/// For quick events, on a very busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// The command with this server, whatever a developer's shell has set.
pub(crate) fn fairlock(url: &str, arguments: &[&str]) -> Command {
    children_hear_signals();
    let mut command = Command::new(FAIRLOCK);
    let variable = if url.starts_with("postgres") { "FAIRLOCK_POSTGRES" } else { "FAIRLOCK_REDIS" };
    command.env_remove("FAIRLOCK_REDIS").env_remove("FAIRLOCK_POSTGRES").env(variable, url);
    // Longer than a busy machine stands still.
    command.envs([("FAIRLOCK_CONNECT_TIMEOUT", "5s"), ("FAIRLOCK_RESPONSE_TIMEOUT", "5s")]);
    command.args(arguments).stdin(Stdio::null());
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
pub(crate) fn output(url: &str, arguments: &[&str]) -> Said {
    Running::start(fairlock(url, arguments)).output()
}

/// The same, with arguments in one text.
#[track_caller]
pub(crate) fn says(url: &str, arguments: &str) -> Said {
    output(url, &words(arguments))
}

pub(crate) fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The text without host and process behind the labels in it.
pub(crate) fn labels_alone(text: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let behind = format!(" ({}:", host.trim());
    let mut parts = text.split(&behind);
    let mut alone = parts.next().unwrap().to_owned();
    for part in parts {
        alone += part.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(')').unwrap();
    }
    alone
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// It gave this exit code.
    #[track_caller]
    pub(crate) fn gave(self, code: i32) -> Said {
        assert_eq!(self.status.code(), Some(code), "{}{}", self.out, self.err);
        self
    }

    /// It gave this exit code, and said exactly this.
    #[track_caller]
    pub(crate) fn is(self, code: i32, out: &str, err: &str) {
        assert_eq!((self.status.code(), &*self.out, &*self.err), (Some(code), out, err));
    }

    /// It ended by this signal without a word.
    #[track_caller]
    pub(crate) fn ended_by(self, signal: i32) {
        assert_eq!((self.status.signal(), &*self.out, &*self.err), (Some(signal), "", ""));
    }

    /// It gave this exit code, and said nothing but errors, with all of these words.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, words: &[&str]) -> Said {
        assert_eq!((self.status.code(), &*self.out), (Some(code), ""), "{}", self.err);
        self.with(words)
    }

    /// Its errors have all of these words.
    #[track_caller]
    pub(crate) fn with(self, words: &[&str]) -> Said {
        words.iter().for_each(|part| assert!(self.err.contains(part), "no {part}: {}", self.err));
        self
    }

    /// Its errors have none of these words.
    #[track_caller]
    pub(crate) fn without(self, words: &[&str]) -> Said {
        words.iter().for_each(|part| assert!(!self.err.contains(part), "{part}: {}", self.err));
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status.code(), Some(0), "{}", self.err);
        serde_json::from_str(&self.out).unwrap()
    }
}

/// A Redis server, a folder, and commands that are given that server. When it is dropped, it waits until no key of a lock is left:
/// a request that a test drops is withdrawn in the background, and may be granted before.
pub(crate) struct Host {
    pub(crate) server: RedisServer,
    pub(crate) dir: WorkDir,
}

impl Host {
    pub(crate) fn new() -> Host {
        Host::of(RedisServer::start())
    }

    pub(crate) fn of(server: RedisServer) -> Host {
        Host { server, dir: WorkDir::new() }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// The command with these arguments.
    #[track_caller]
    pub(crate) fn says(&self, arguments: &str) -> Said {
        says(&self.url(), arguments)
    }

    #[track_caller]
    pub(crate) fn json(&self, arguments: &str) -> Value {
        self.says(arguments).json()
    }

    /// `run` with these options and names, and a script of the shell.
    #[track_caller]
    pub(crate) fn runs(&self, options: &str, script: &str) -> Said {
        self.starts(options, script).output()
    }

    pub(crate) fn starts(&self, options: &str, script: &str) -> Running {
        starts(&self.url(), options, script)
    }

    /// Starts a script under the lock, which has its process id in this file, and waits until it runs.
    #[track_caller]
    pub(crate) fn holds(&self, options: &str, pid_file: &str, then: &str) -> (Running, u32) {
        let pid = self.dir.file(pid_file);
        let running = self.starts(options, &script(&pid, then));
        (running, process_in(&pid))
    }

    /// Waits in a script until the test has made this file.
    pub(crate) fn until(&self, file: &str) -> String {
        format!("until test -e {}; do sleep 0.05; done", self.dir.file(file).display())
    }

    pub(crate) fn makes(&self, file: &str) {
        std::fs::write(self.dir.file(file), "").unwrap();
    }

    /// The same lock for this process.
    pub(crate) fn lock(&self, name: &str) -> Lock {
        lock(&self.server, name)
    }

    pub(crate) fn client(&self, label: &str) -> Client {
        Client::builder(RedisBackend::connect(&self.url()).unwrap()).label(label).build().unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            wait_until_no_residue(&self.server);
        }
    }
}

/// The command under way that runs this script.
pub(crate) fn starts(url: &str, options: &str, script: &str) -> Running {
    Running::start(fairlock(url, &arguments(&words(options), script)))
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
        let mut status = None;
        eventually("it ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// It has no password.
    #[track_caller]
    pub(crate) fn output(&mut self) -> Said {
        // Meanwhile: more than a pipe takes would keep the command from its end.
        let (out, err) = (read(self.0.stdout.take().unwrap()), read(self.0.stderr.take().unwrap()));
        let status = self.status();
        let [out, err] = [out, err].map(|reader| text(&reader.join().unwrap()));
        let said = Said { status, out, err };
        assert_no_secret(&format!("{}{}", said.out, said.err));
        said
    }

    pub(crate) fn signal(&self, signal: &str) {
        send(signal, self.0.id());
    }
}

fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        pipe.read_to_end(&mut all).unwrap();
        all
    })
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
    let mut process = None;
    eventually("the program under the lock runs", || {
        process = read();
        process.is_some()
    });
    process.unwrap()
}

/// Whether a thread of the process goes on. When the main thread ends it is a zombie (Z) until the parent has waited for the process, which
/// the parent can do when the other threads have ended as well.
pub(crate) fn is_alive(process: u32) -> bool {
    // `pid (name) state …`
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let is_zombie = stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X']));
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count);
    threads > usize::from(is_zombie)
}

#[track_caller]
pub(crate) fn wait_until_dead(process: u32) {
    eventually("the process has ended", || !is_alive(process));
}

/// The same lock for this process.
pub(crate) fn lock(server: &RedisServer, name: &str) -> Lock {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::HandOff).connect().unwrap();
    Client::new(backend).unwrap().fair_lock(name).unwrap()
}

#[track_caller]
pub(crate) fn wait_for_queue(lock: &Lock, waiting: u64) {
    eventually("they are in the queue", || lock.admin().inspect().unwrap().queue_length == waiting);
}

pub(crate) fn arguments<'a>(run: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run"], run, &["--", "sh", "-c", script]].concat()
}

/// The cells of the only row below the titles of `ls`, but for empty cells.
#[track_caller]
pub(crate) fn only_row(table: &str) -> Vec<&str> {
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("LOCK"), "{table}");
    lines[1].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}
