//! The minder: a process that ends the program in time, whatever happens to fairlock itself.
//!
//! It leads the program's process group, so the group's id can't be reused while the minder lives, and only KILL ends it with
//! the group. A pipe tells it until when the hold is certain, by the monotonic clock that all processes of a machine share:
//!
//! | it reads | TERM to the group | KILL to the group, itself included |
//! | --- | --- | --- |
//! | nothing new: the lease is not renewed, or fairlock is stopped | when `grace` is left | when nothing is left |
//! | the end of the pipe: fairlock was killed | at once | `grace` later, but before the lease ends |
//! | `taken`: the lock was taken by force | at once | `grace` later |
//!
//! After TERM, a late renewal changes nothing.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use fairlock::crossbeam_channel::{Receiver, RecvError, unbounded};
use nix::sys::signal::{Signal, killpg};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, getpgrp};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};

use crate::exit::{Exit, Failure};

/// The minder, seen from fairlock.
#[derive(Debug)]
pub(super) struct Minder {
    process: Child,
    to_minder: ChildStdin,
    said: Receiver<Said>,
    ending: bool,
    gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Ready,
    /// It begins to end the program.
    Ending,
}

/// Whether the minder is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    Kept,
    /// Another process killed it.
    Gone,
}

impl Minder {
    /// Starts the minder and waits until it is ready.
    pub(super) fn start(grace: Duration) -> Result<Minder, Failure> {
        let no_minder = |error| Failure::ours(format!("the minder can't be started: {error}"));
        let program = std::env::current_exe().map_err(no_minder)?;
        let mut command = Command::new(program);
        command.args(["__minder", &grace.as_millis().to_string()]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(no_minder)?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (to_minder, from_minder) = pipes.ok_or_else(|| Failure::ours("the minder has no pipes"))?;
        let (say, said) = unbounded();
        let listen = move || {
            for line in BufReader::new(from_minder).lines().map_while(Result::ok) {
                let _ = say.send(if line == "ready" { Said::Ready } else { Said::Ending });
            }
        };
        thread::Builder::new().name("fairlock-minder".to_owned()).spawn(listen).map_err(no_minder)?;
        let minder = Minder { process, to_minder, said, ending: false, gone: false };
        match minder.said.recv_timeout(Duration::from_secs(30)) {
            Ok(Said::Ready) => Ok(minder),
            _ => Err(Failure::ours("the minder does not start")),
        }
    }

    /// The process group that it leads.
    pub(super) fn group(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    /// The hold is certain for this long.
    pub(super) fn certain_for(&mut self, time: Duration) {
        // The clock is read after `time` was: what passed between makes it too early, never too late.
        let until = now().saturating_add(time);
        let _ = writeln!(self.to_minder, "until {}", until.as_nanos());
    }

    /// Another owner may have the lock already.
    pub(super) fn taken(&mut self) {
        let _ = writeln!(self.to_minder, "taken");
    }

    /// What the minder says.
    pub(super) fn words(&self) -> &Receiver<Said> {
        &self.said
    }

    /// Records what the minder said.
    pub(super) fn note(&mut self, said: Result<Said, RecvError>) -> Watch {
        match said {
            Ok(said) => {
                self.ending |= said == Said::Ending;
                Watch::Kept
            }
            Err(RecvError) => {
                self.gone = true;
                Watch::Gone
            }
        }
    }

    /// The program has ended: whether the minder ended it, or was killed itself. If so, the rest of the program's group is
    /// killed, too.
    pub(super) fn has_ended_it(&mut self) -> bool {
        let _ = self.process.kill();
        // Once the other end is closed, the channel has all that it ever said.
        while let Ok(said) = self.said.recv() {
            self.ending |= said == Said::Ending;
        }
        let ended_it = self.ending || self.gone;
        if ended_it {
            // It is not waited for yet, so the group's id can't have been reused.
            let _ = killpg(self.group(), Signal::SIGKILL);
        }
        let _ = self.process.wait();
        ended_it
    }
}

impl Drop for Minder {
    fn drop(&mut self) {
        // Harmless if it was waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The minder process itself.
pub(crate) fn mind(grace_ms: u64) -> Result<Exit, Failure> {
    let grace = Duration::from_millis(grace_ms);
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2] {
        // They are for the program: the minder only catches them.
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, flag).map_err(|error| Failure::ours(error.to_string()))?;
    }
    let (say, said) = mpsc::channel();
    thread::spawn(move || stdin().lines().map_while(Result::ok).try_for_each(|line| say.send(line)));
    tell_fairlock("ready");
    let mut until = None;
    let kill_at = loop {
        let term_at = until.map(|until: Duration| until.saturating_sub(grace));
        let wait = term_at.map_or(Duration::from_secs(3600), |at| at.saturating_sub(now()));
        match said.recv_timeout(wait) {
            Ok(line) if line == "taken" => break now() + grace,
            Ok(line) => {
                let nanos = line.strip_prefix("until ").and_then(|nanos| nanos.parse().ok());
                until = nanos.map(Duration::from_nanos).or(until);
            }
            Err(RecvTimeoutError::Timeout) => {
                // Or after an hour in line.
                if let Some(until) = until
                    && now() >= until.saturating_sub(grace)
                {
                    break until;
                }
            }
            Err(RecvTimeoutError::Disconnected) => match until {
                Some(until) => break until.min(now() + grace),
                None => return Ok(Exit::Done), // there is no program yet
            },
        }
    };
    tell_fairlock("ending");
    let _ = killpg(getpgrp(), Signal::SIGTERM);
    thread::sleep(kill_at.saturating_sub(now()));
    let _ = killpg(getpgrp(), Signal::SIGKILL);
    Ok(Exit::Lost)
}

/// Fairlock may be gone: then this does nothing.
fn tell_fairlock(word: &str) {
    let _ = writeln!(stdout(), "{word}");
    let _ = stdout().flush();
}

/// A clock that all processes of a machine share, and that can't be set.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
