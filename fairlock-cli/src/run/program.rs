//! The time under the lock: starts the program, passes signals on, reports losses, and waits for its end.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fairlock::crossbeam_channel::{never, select, tick};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{AccessFlags, Pid, access};
use rustix::process::{WaitOptions, WaitStatus, waitpid};
use signal_hook::consts::{SIGCHLD, SIGINT};

use super::holds::Holds;
use super::minder::Minder;
use super::nested::Outer;
use super::reserve;
use super::signals::is_passed_on;
use super::terminal::Terminal;
use super::wait::Outside;
use crate::args::Run;
use crate::exit::{Exit, Failure};
use crate::names::escaped;

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
    let mut words = minder.words().clone();
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
                minder.ends_it();
                // It was killed: without it, the program must not go on.
                if said.is_err() {
                    words = never();
                    program.kill();
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
            command.env("FAIRLOCK_OUTER", outer.words());
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

    fn kill(&self) {
        let _ = killpg(self.group, Signal::SIGKILL);
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
            let _ = killpg(nix::unistd::getpgrp(), Signal::SIGINT);
            return Ended::OurSignal(signal);
        }
        if self.passed_on.contains(&signal) {
            return Ended::OurSignal(signal);
        }
        Ended::Code(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }
}
