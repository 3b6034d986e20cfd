//! The time under the lock: starts the program, passes signals on, reports losses, and waits for its end.
//!
//! **The terminal**: a program that asks for the terminal gets it, until the program stops or ends. The shell does not know the program's
//! process group, so for the terminal the program is in the background: it may write, and is stopped (TTIN, TTOU) when it reads or
//! changes settings. Then it gets the terminal, if fairlock has it. Not before: the other end of a pipe, for instance a pager, may
//! want the keyboard.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fairlock::waits::crossbeam_channel_0_5::{Receiver, never, select, tick};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{AccessFlags, Pid, access, getpgrp, tcgetpgrp, tcsetpgrp};
use rustix::process::{WaitOptions, WaitStatus, waitpid};
use signal_hook::consts::{
    SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};

use super::minder::Minder;
use super::wait::Outside;
use super::{Holds, Outer, reserve};
use crate::args::Run;
use crate::process::{Exit, Failure, channel_of};
use crate::words::escaped;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With this code, or by its own signal: then 128 plus the signal, as in shells.
    Code(u8),
    /// By a signal that fairlock got as well: fairlock ends by it, too.
    OurSignal(i32),
}

/// Runs the program to its end.
///
/// # Errors
/// If it can't be started.
pub(super) fn run(
    options: &Run,
    holds: &Holds,
    minder: &mut Minder,
    outside: &Outside<'_>,
) -> Result<Ended, Failure> {
    let certain = || holds.valid_for().saturating_sub(reserve(options));
    minder.certain_for(certain);
    let mut program = Program::start(options, holds, minder, outside.outer)?;
    let mut words = minder.said.clone();
    // Renewals come every third of the lease, and this is often enough to pass each of them on.
    let renewed = tick((options.terms.lease() / 20).clamp(Duration::from_millis(10), Duration::from_secs(1)));
    loop {
        select! {
            recv(outside.signals) -> signal => match signal {
                Ok(SIGCHLD) => {
                    if let Some(status) = minder.collect_others(Some(program.process)) {
                        return Ok(program.has_ended(status));
                    }
                }
                Ok(signal) => program.pass_on(signal),
                Err(_) => {}
            },
            recv(renewed) -> _ => minder.certain_for(certain),
            recv(outside.losses) -> _ => if holds.are_lost() {
                minder.taken();
            },
            recv(words) -> said => {
                minder.ending = true;
                // It was killed: without it, the program must not go on.
                if said.is_err() {
                    words = never();
                    let _ = killpg(program.group, Signal::SIGKILL);
                }
            },
        }
        if let Some(ended) = program.poll() {
            return Ok(ended);
        }
    }
}

/// Looks for the program as its start will, so that a mistyped name is not noticed only after the wait.
///
/// # Errors
/// Those of the start.
pub(super) fn look(options: &Run) -> Result<(), Failure> {
    let program = options.words()[0];
    let found = if program.as_encoded_bytes().contains(&b'/') {
        check(Path::new(program))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        let mut found = Err(Error::from(Errno::ENOENT));
        for folder in std::env::split_paths(&path) {
            match check(&folder.join(program)) {
                Err(error) if error.kind() != ErrorKind::PermissionDenied => {}
                seen => found = seen,
            }
            if found.is_ok() {
                break;
            }
        }
        found
    };
    found.map_err(|error| not_run(program, &error))
}

fn check(program: &Path) -> std::io::Result<()> {
    if program.metadata()?.is_dir() {
        return Err(Errno::EACCES.into());
    }
    Ok(access(program, AccessFlags::X_OK)?)
}

fn not_run(program: &OsStr, error: &Error) -> Failure {
    let exit = if error.kind() == ErrorKind::NotFound { Exit::NotFound } else { Exit::NotRunnable };
    Failure::new(exit, format!("{}: {error}", escaped(&program.to_string_lossy())))
}

struct Program {
    process: Pid,
    group: Pid,
    terminal: Terminal,
    passed_on: Vec<i32>,
}

impl Program {
    fn start(options: &Run, holds: &Holds, minder: &Minder, outer: &Outer) -> Result<Program, Failure> {
        let words = options.words();
        let mut command = Command::new(words[0]);
        let group = minder.group().ok_or_else(|| Failure::ours("the minder was killed"))?;
        command.args(&words[1..]).process_group(group.as_raw());
        let of = |name: &String| holds.guards().find(|guard| guard.name() == name);
        let tokens: Vec<String> =
            options.names.iter().filter_map(of).map(|guard| guard.token().to_string()).collect();
        command.env("FAIRLOCK_NAME", options.names.join(" "));
        command.env("FAIRLOCK_TOKEN", tokens.join(" "));
        command.envs(holds.guards().next().map(|guard| ("FAIRLOCK_OWNER", guard.owner().as_str())));
        if outer.are_none() {
            command.env_remove("FAIRLOCK_OUTER");
        } else {
            command.env("FAIRLOCK_OUTER", outer.0.join(" "));
        }
        let child = command.spawn().map_err(|error| not_run(words[0], &error))?;
        let process = Pid::from_raw(child.id().cast_signed());
        log::debug!(target: "fairlock::run", "started {}, process {process}", escaped(&words[0].to_string_lossy()));
        // Dropping `child` does not wait for the process: only `poll` does.
        Ok(Program { process, group, terminal: Terminal::open(), passed_on: Vec::new() })
    }

    /// To the whole group: the processes of `sh -c 'a; b'` get it with the shell.
    fn pass_on(&mut self, signal: i32) {
        if is_passed_on(signal) {
            self.passed_on.push(signal);
        }
        if let Ok(signal) = Signal::try_from(signal) {
            let _ = killpg(self.group, signal);
        }
    }

    /// Checks whether it has stopped or ended. Only this thread waits for children, so its process id can't have been reused.
    fn poll(&mut self) -> Option<Ended> {
        loop {
            let process = rustix::process::Pid::from_raw(self.process.as_raw());
            match waitpid(process, WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((_, status))) => match status.stopping_signal() {
                    Some(by) => self.terminal.has_stopped(self.group, by),
                    None => return Some(self.has_ended(status)),
                },
                Ok(None) => return None,
                Err(_) => return Some(Ended::Code(Exit::Failed.code())), // impossible: it is a child of this process
            }
        }
    }

    fn has_ended(&mut self, status: WaitStatus) -> Ended {
        let ended = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Ended::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (None, signal) => self.ended_by(signal.unwrap_or(0)),
        };
        self.terminal.take_back(self.group);
        log::debug!(target: "fairlock::run", "process {} has ended: {ended:?}", self.process);
        ended
    }

    fn ended_by(&self, signal: i32) -> Ended {
        // The keyboard's signal reached the program alone. This process's group, for instance a script, gets it, too.
        if signal == SIGINT && self.terminal.given {
            let _ = killpg(getpgrp(), Signal::SIGINT);
            return Ended::OurSignal(signal);
        }
        if self.passed_on.contains(&signal) {
            return Ended::OurSignal(signal);
        }
        Ended::Code(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }
}

struct Terminal {
    /// None without a controlling terminal.
    tty: Option<File>,
    /// Whether the program has it.
    given: bool,
}

impl Terminal {
    fn open() -> Terminal {
        Terminal { tty: File::options().read(true).write(true).open("/dev/tty").ok(), given: false }
    }

    /// This signal has stopped the program's group. A group that asked for the terminal gets the terminal. Otherwise fairlock
    /// stops as well, as the shell expects, and both continue together.
    fn has_stopped(&mut self, group: Pid, by: i32) {
        let asks = matches!(by, SIGTTIN | SIGTTOU);
        if self.tty.is_none() || !(asks || by == SIGTSTP) {
            return; // stopped by hand, to be continued by hand
        }
        if asks && self.is_ours() {
            self.give(group);
        } else {
            let had_it = self.given;
            self.take_back(group);
            // The whole group of this process, as by the keyboard: a script that runs fairlock stops as well. This thread
            // continues after that.
            let _ = killpg(getpgrp(), Signal::SIGSTOP);
            if had_it && self.is_ours() {
                self.give(group);
            }
        }
        let _ = killpg(group, Signal::SIGCONT);
    }

    fn take_back(&mut self, group: Pid) {
        let Some(tty) = &self.tty else { return };
        if self.given && tcgetpgrp(tty) == Ok(group) {
            hand_to(tty, getpgrp());
        }
        self.given = false;
    }

    fn is_ours(&self) -> bool {
        self.tty.as_ref().is_some_and(|tty| tcgetpgrp(tty) == Ok(getpgrp()))
    }

    fn give(&mut self, group: Pid) {
        if let Some(tty) = &self.tty {
            hand_to(tty, group);
            self.given = true;
        }
    }
}

/// In the background this causes TTOU, unless that is blocked.
fn hand_to(tty: &File, group: Pid) {
    let ttou = SigSet::from(Signal::SIGTTOU);
    let _ = ttou.thread_block();
    let _ = tcsetpgrp(tty, group);
    let _ = ttou.thread_unblock();
}

/// The signals that users and programs send, to end a program or to notify it.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// From now on they arrive on the channel. A signal that was ignored when fairlock started (by `nohup`, or INT and QUIT in a
/// script's background job) stays ignored, for fairlock and for the program: its parent wants that, as for any command.
pub(super) fn listen() -> Result<Receiver<i32>, Failure> {
    let ignored = ignored();
    let wanted = PASSED_ON.into_iter().chain([SIGTSTP]).filter(|signal| !ignored.contains(signal));
    // Without a child's signal the program's end is not noticed, and where that was ignored the system keeps no status.
    channel_of(wanted.chain([SIGCHLD]))
}

/// Whether the program gets this signal.
pub(super) fn is_passed_on(signal: i32) -> bool {
    PASSED_ON.contains(&signal)
}

/// Read from /proc on Linux; elsewhere no signal counts as ignored.
fn ignored() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=63).filter(|signal| mask & (1 << (signal - 1)) != 0).collect()
}
