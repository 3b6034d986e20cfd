//! The minder: a process that ends the program in time, and gives the lock back, whatever happens to fairlock itself.
//!
//! The minder leads the program's process group, so the group's id can't be reused while the minder lives. A pipe brings the
//! minder the hold, and until when the hold is certain, by the monotonic clock that all processes of a machine share:
//!
//! | it reads | TERM to the group | KILL to the group |
//! | --- | --- | --- |
//! | nothing new: the lease is not renewed, or fairlock is stopped | when `kill_after` is left | when nothing is left |
//! | the end of the pipe: fairlock was killed | at once | `kill_after` later, but before the lease ends |
//! | `taken`: the lock was taken by force | at once | `kill_after` later, but before the lease ends |
//!
//! After TERM, a late renewal changes nothing. KILL ends the minder with the group, except when fairlock was killed: then the
//! minder leaves the group, waits until the group has no process, and releases the hold. When fairlock is killed:
//!
//! | at this time | the program | the lock |
//! | --- | --- | --- |
//! | in the queue, before the grant | does not start | the place is passed over; the minder ends |
//! | after the grant, before `hold` is sent | does not start | ends with its lease |
//! | in the queue for the next of several | does not start | the locks that it has are released at once |
//! | after `hold`, before the first `until` | does not start | is released at once |
//! | from the first `until` on | TERM, then KILL | is released when the group is empty |
//! | the program has ended, and fairlock has killed the minder | has ended | ends with its lease, unless the release was sent |
//! | with the minder | is not ended | ends with its lease |
//!
//! - The pipe ends when the last of fairlock's threads is gone, since the program does not inherit it: no renewal is sent
//!   afterwards. A renewal on its way names the hold, and has no effect once the hold is gone.
//! - A program that is being started when fairlock is killed still has the pipe until its `exec`, and is in the group by then.
//! - The release names owner, request and token. A hold that was lost meanwhile, and any later one, is not touched; a repeat
//!   after a lost answer does nothing more.
//! - After KILL no process can be added to the group. One that can't be killed keeps it: then the lock ends with its lease.
//! - Once TERM was sent for another reason the pipe is not read any more: then KILL follows on schedule and ends the minder too.
//! - Each wait ends with the lease, and the last attempt by the time-outs of the connection.
//! - The address, which may contain a password, is in the minder's environment: neither in its command line, nor in the program's
//!   environment if it was not there before.

use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdout};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairlock::admin::LockName;
use fairlock::backend::{Hold, LockId, RequestId, only};
use fairlock::owner::{Owner, OwnerId};
use fairlock::waits::crossbeam_channel_0_5::{Receiver, unbounded};
use fairlock::{FencingToken, Guard};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, getpgrp, setpgid};
use rustix::process::{Pid as Process, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};

use super::names;
use crate::args::{self, MINDER, Run};
use crate::process::{Exit, Failure, Stat, lines_of_input, start_thread};
use crate::server::{self, Store};
use crate::settings::Server;

/// The minder, seen from fairlock.
#[derive(Debug)]
pub(super) struct Minder {
    /// None once `children` has collected it: its id may be that of another process.
    process: Option<Child>,
    to_minder: ChildStdin,
    /// A word when the minder is ready, and one when it begins to end the program. Closed when the minder is gone.
    pub(super) said: Receiver<()>,
    /// The minder ends the program, or was killed.
    pub(super) ending: bool,
}

impl Minder {
    /// Starts the minder and waits until it is ready.
    pub(super) fn start(
        server: &Server,
        options: &Run,
        kill_after: Duration,
        presence: Option<File>,
    ) -> Result<Minder, Failure> {
        let no_minder = |error| Failure::ours(format!("the minder can't be started: {error}"));
        let program = std::env::current_exe().map_err(no_minder)?;
        let mut command = Command::new(program);
        command.arg(MINDER).args(options.kind.options());
        command.args(["--", &kill_after.as_millis().to_string()]).args(names(options));
        server.pass_on(&mut command);
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // On files a killed process is replaced at once: the minder keeps the lock until the program has ended.
        command.stderr(presence.map_or_else(Stdio::null, Stdio::from));
        let mut process = command.spawn().map_err(no_minder)?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (to_minder, from_minder) = pipes.ok_or_else(|| Failure::ours("the minder has no pipes"))?;
        let (say, said) = unbounded();
        let listen =
            move || BufReader::new(from_minder).lines().map_while(Result::ok).try_for_each(|_| say.send(()));
        start_thread("fairlock-minder", listen)?;
        let minder = Minder { process: Some(process), to_minder, said, ending: false };
        let ready = minder.said.recv_timeout(Duration::from_secs(30));
        ready.map(|()| minder).map_err(|_| Failure::ours("the minder did not start"))
    }

    /// The process group that it leads.
    pub(super) fn group(&self) -> Option<Pid> {
        self.process.as_ref().map(|process| Pid::from_raw(process.id().cast_signed()))
    }

    /// Collects the children that have ended, up to the program: returns its status.
    pub(super) fn collect_others(&mut self, program: Option<Pid>) -> Option<WaitStatus> {
        collect(&mut self.process, program)
    }

    /// The next hold, in the order of their names, to give back if fairlock is killed.
    pub(super) fn holds(&mut self, guard: &Guard<Owner>) {
        let (request, token, owner) = (guard.request_id().get(), guard.token(), guard.owner());
        let _ = writeln!(self.to_minder, "hold {request} {token} {owner}");
    }

    /// The hold is certain for this long.
    pub(super) fn certain_for(&mut self, time: impl FnOnce() -> Duration) {
        let now = now(); // before `time`: what passes between the two makes the end too early, never too late
        let _ = writeln!(self.to_minder, "until {}", now.saturating_add(time()).as_nanos());
    }

    /// Another owner may have the lock already.
    pub(super) fn taken(&mut self) {
        let _ = writeln!(self.to_minder, "taken");
    }

    /// The program has ended: whether the minder ended it, or was killed itself. If so, the rest of the program's group is
    /// killed, too.
    pub(super) fn has_ended_it(&mut self) -> bool {
        self.process.iter_mut().for_each(|process| drop(process.kill()));
        // A word that was not heard yet; or the other end is closed, once the minder is gone.
        self.ending |= self.said.recv().is_ok();
        // Until the minder is collected, the group's id can't be reused.
        if let Some(group) = self.group().filter(|_| self.ending) {
            let _ = killpg(group, Signal::SIGKILL);
        }
        self.process.iter_mut().for_each(|process| drop(process.wait()));
        self.ending
    }
}

impl Drop for Minder {
    fn drop(&mut self) {
        // Harmless if it was waited for.
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The minder process itself.
pub(crate) fn mind(options: &args::Minder) -> Exit {
    let kill_after = Duration::from_millis(options.kill_after_ms);
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2] {
        // These signals are for the program: the minder only catches them.
        if signal_hook::flag::register(signal, Arc::default()).is_err() {
            return Exit::Failed;
        }
    }
    let Ok(said) = lines_of_input() else { return Exit::Failed };
    tell_fairlock("ready");
    let group = getpgrp();
    let (mut holds, mut until) = (Vec::new(), None);
    let was_killed = loop {
        let left = until.map_or(Duration::MAX, |until: Duration| until.saturating_sub(now()));
        match said.recv_timeout(left.saturating_sub(kill_after)) {
            Ok(line) => match line.split_once(' ') {
                Some(("hold", words)) => holds.push(words.to_owned()),
                // A hold that has just been taken is not certain any more: `taken` follows.
                Some(("until", nanos)) => until = nanos.parse().map(Duration::from_nanos).ok().max(until),
                _ => break false, // taken
            },
            Err(why) => break why.is_disconnected(),
        }
    };
    let Some(until) = until else {
        // There is no program yet.
        give_back(options, &holds, now() + kill_after);
        return Exit::Done;
    };
    let kill_at = until.min(now() + kill_after);
    tell_fairlock("ending");
    let _ = killpg(group, Signal::SIGTERM);
    let ended = was_killed && leave_group(kill_at) && is_empty_by(group, kill_at);
    thread::sleep(if ended { Duration::ZERO } else { kill_at.saturating_sub(now()) });
    // The minder ends here as well, unless it has left the group.
    let _ = killpg(group, Signal::SIGKILL);
    if is_empty_by(group, until) {
        give_back(options, &holds, until);
    }
    Exit::Lost
}

/// Leaves the group: the minder outlives the group, and can see its end. The leader of a group can only move into another group;
/// here it is the group of a helper, which ends with its input. False if the helper does not start in time.
fn leave_group(limit: Duration) -> bool {
    let leave = || -> std::io::Result<()> {
        // The file may have been replaced since this process was started.
        let this = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
        let mut helper = Command::new(this);
        helper.args([MINDER, "0", "helper"]).process_group(0);
        let mut helper = helper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let left = setpgid(Pid::from_raw(0), Pid::from_raw(helper.id().cast_signed()));
        helper.kill()?;
        helper.wait()?;
        Ok(left?)
    };
    let (say, said) = mpsc::channel();
    let started = start_thread("fairlock-leave", move || say.send(leave().is_ok()));
    started.is_ok() && said.recv_timeout(limit.saturating_sub(now())).unwrap_or(false)
}

/// Waits for the end of the group's processes, until this time at the latest.
fn is_empty_by(group: Pid, limit: Duration) -> bool {
    loop {
        if is_empty(group) {
            return true;
        }
        if now() >= limit {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the group has no process but zombies: the first process of a container may collect them late, or never.
fn is_empty(group: Pid) -> bool {
    let is_over = |process: &str| Stat::of(process).map(|stat| stat.is_over || stat.group != group.as_raw());
    match (killpg(group, None), std::fs::read_dir("/proc")) {
        (Err(Errno::ESRCH), _) => true,
        // Where other users' processes are hidden, the first one is, too.
        (Ok(()), Ok(all)) if is_over("1").is_some() => {
            let mut names = all.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            names.all(|name| is_over(&name).unwrap_or(true)) // it has just gone
        }
        _ => false,
    }
}

/// The last that was granted first.
fn give_back(options: &args::Minder, holds: &[String], limit: Duration) {
    for (at, hold) in holds.iter().enumerate().rev() {
        options.names.get(at).and_then(|name| give_back_one(options, name, hold, limit));
    }
}

/// Releases this hold and no other. While the server can't be reached it tries again, until the hold ends anyway.
fn give_back_one(options: &args::Minder, name: &str, hold: &str, limit: Duration) -> Option<()> {
    let mut words = hold.split(' ');
    let request = RequestId::new(words.next()?.parse().ok()?);
    let token = FencingToken::new(words.next()?.parse().ok()?);
    let owner = OwnerId::new(words.next()?);
    let lock = LockId::new(LockName::new(name).ok()?, options.kind.of_lock());
    let hold = Hold::new(&lock, &owner, request, token);
    let release =
        |store: Store| Ok(only(store.backend().release(&[hold])).map(drop).map_err(fairlock::Error::from)?);
    while let Err(Failure { exit: Exit::Unavailable, .. }) = server::store(&options.server).and_then(release)
        && now() < limit
    {
        thread::sleep(Duration::from_millis(100));
    }
    Some(())
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

/// Collects the children that have ended, up to the program: returns its status. Once the minder has ended, it collects none: the
/// minder's id is that of the program's group, and has to stay that.
///
/// Fairlock has children that it did not start: as the first process of a container it becomes the parent of each process whose own
/// parent has ended: left behind by the program, by `docker exec` or by a probe. Nobody else can collect these processes, and until
/// then each keeps its process id.
///
/// The system is asked for any child. A minder that is killed at that moment is collected too, and is none from then on: its id may be
/// another process's.
pub(super) fn collect(minder: &mut Option<Child>, program: Option<Pid>) -> Option<WaitStatus> {
    let look =
        WaitIdOptions::from_iter([WaitIdOptions::EXITED, WaitIdOptions::NOHANG, WaitIdOptions::NOWAIT]);
    let has_ended = |minder| matches!(waitid(WaitId::Pid(minder), look), Ok(Some(_)));
    while !minder.as_ref().map(Process::from_child).is_some_and(has_ended) {
        let (process, status) = wait(WaitOptions::NOHANG).ok()??;
        minder.take_if(|minder| Process::from_child(minder) == process);
        if program.and_then(|program| Process::from_raw(program.as_raw())) == Some(process) {
            return Some(status);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time is asked for slowly, as by a process that is stopped meanwhile.
    #[test]
    fn a_hold_is_not_certain_for_longer_than_it_was() {
        let (mut read, write) = std::io::pipe().unwrap();
        let (process, said) = (Command::new("true").spawn().ok(), unbounded().1);
        let to_minder = std::os::fd::OwnedFd::from(write).into();
        let mut minder = Minder { process, to_minder, said, ending: false };
        let end = now() + Duration::from_secs(9);
        minder.certain_for(|| {
            let left = end - now();
            thread::sleep(Duration::from_millis(50));
            left
        });
        drop(minder);
        let from = std::io::read_to_string(&mut read).unwrap();
        let until: u64 = from.trim().strip_prefix("until ").unwrap().parse().unwrap();
        assert!(Duration::from_nanos(until) <= end, "{from}, {end:?}");
    }
}
