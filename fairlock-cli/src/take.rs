//! `fairlock take`: a lock for as long as a process lives, over many commands; `give` and `check` name the hold by its text.
//!
//! `take` starts a second process, the holder, which asks for the lock, says the hold's text, and keeps the lock:
//!
//! | what ends | before the grant | before the first process has the text | afterwards |
//! | --- | --- | --- | --- |
//! | the first process, killed or by Ctrl-C | the holder leaves the queue | the holder releases: nobody has the text | it has ended |
//! | the process of `--while` | the holder leaves the queue | the holder releases | the holder releases |
//! | the time of `--for`, from the grant on | | the holder releases | the holder releases |
//! | the holder, by TERM | it leaves the queue | it releases | it releases |
//! | the holder, by KILL | its place is passed over | the lock is free when its lease ends | the same; on files at once |
//! | the hold, by `give` or by force | | | the holder ends |
//!
//! - The holder has a session of its own, so a Ctrl-C is not for it. It hears of the first process by its input: a line when the text was
//!   printed, or else the end.
//! - It watches the process by a pidfd, opened before it looks whether that process began when `take` was called: the number of a process
//!   that has ended may be another's.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write, stdout};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fairlock::backend::{Released, only};
use fairlock::owner::HandOver;
use fairlock::waits::crossbeam_channel_0_5::{Receiver, after, bounded, never, select};
use fairlock::{Error, TryLock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open, setsid};

use crate::args::{Hold, Take};
use crate::process::{ENDS, Exit, Failure, channel_of};
use crate::process::{Reader, print};
use crate::process::{Stat, lines_of_input, start_thread};
use crate::server;
use crate::settings::Server;
use crate::words::escaped;

/// What the text stands behind, and the variable that has it for `give` and `check`.
const HOLD: &str = "FAIRLOCK_HOLD";
/// Tells the holder that it is the holder, and which process it watches: number and start, or nothing.
const WATCHED: &str = "FAIRLOCK_WATCHED";
/// How long the holder tries to tell the store of its end, after an `unlock`, which itself tries up to the outage limit.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(crate) fn take(server: &Server, options: &Take) -> Result<Exit, Failure> {
    match std::env::var(WATCHED) {
        Ok(watched) => hold(server, options, &watched),
        Err(_) => start_holder(options),
    }
}

/// The first process.
fn start_holder(options: &Take) -> Result<Exit, Failure> {
    let failed = |error| Failure::ours(format!("the holder can't be started: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(WATCHED, watched(options)?);
    let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut said = String::new();
    let heard = holder.stdout.take().map(|out| BufReader::new(out).read_line(&mut said));
    heard.transpose().map_err(failed)?;
    if said.is_empty() {
        // It has said why, on the same standard error.
        let status = holder.wait().map_err(failed)?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.map_or(Exit::Failed, Exit::Of));
    }
    // An error here ends the holder's input, and the holder releases.
    if print(&said)? == Reader::Gone {
        return Err(Failure::ours("nobody reads the hold's text, so the lock is given back".to_owned()));
    }
    if let Some(input) = &mut holder.stdin {
        let _ = writeln!(input, "printed");
    }
    Ok(Exit::Done)
}

/// The process whose end ends the hold, with its start.
fn watched(options: &Take) -> Result<String, Failure> {
    let process = match (options.while_, options.for_) {
        (Some(process), _) => process,
        (None, Some(_)) => return Ok(String::new()),
        (None, None) => getppid().map_or(0, Pid::as_raw_pid),
    };
    let start =
        start_of(process).ok_or_else(|| Failure::ours(format!("there is no process {process} (--while)")))?;
    Ok(format!("{process} {start}"))
}

/// When the process began. None if it has ended.
fn start_of(process: i32) -> Option<u64> {
    Stat::of(process).filter(|stat| !stat.is_over).map(|stat| stat.start)
}

/// The holder.
fn hold(server: &Server, options: &Take, watched: &str) -> Result<Exit, Failure> {
    let _ = setsid(); // fails if it leads a group already: then Ctrl-C is for it
    let signals = channel_of(ENDS)?;
    let (mut first, ends) = (lines_of_input()?, end_of(watched)?);
    let deadline = options.limit().and_then(|limit| Instant::now().checked_add(limit));
    let (client, _) = server::holder(server, &options.terms)?;
    let lock = client.fair_lock(&options.name)?.owned_by(&client.new_owner())?;
    let granted = match options.limit() {
        Some(Duration::ZERO) => lock.try_lock()?,
        _ => {
            let mut request = lock.request()?;
            let time_out =
                deadline.map_or_else(never, |at| after(at.saturating_duration_since(Instant::now())));
            let given_up = select! {
                recv(request.decided().as_crossbeam()) -> _ => None,
                recv(time_out) -> _ => None,
                recv(first) -> _ => Some("the command that asked for it has ended"),
                recv(ends) -> _ => Some("the process that it was for has ended (--while)"),
                recv(signals) -> _ => Some("a signal has ended the wait"),
            };
            if let Some(why) = given_up {
                drop(request);
                let _ = client.shutdown_within(LAST_WORDS);
                return Err(Failure::new(
                    Exit::TimedOut,
                    format!("{} was not taken: {why}", escaped(&options.name)),
                ));
            }
            match request.wait_for(Duration::ZERO)? {
                TryLock::Busy(_) => request.withdraw()?,
                granted => granted,
            }
        }
    };
    let guard = granted.into_result().map_err(|busy| Failure::new(Exit::TimedOut, busy.to_string()))?;
    guard.renew()?; // a hold that was handed over is short at first
    let over = options.for_.map_or_else(never, after);
    let said = writeln!(stdout(), "{HOLD}={}", HandOver::from(&guard)).and_then(|()| stdout().flush());
    while said.is_ok() {
        select! {
            recv(first) -> printed => match printed {
                Ok(_) => {
                    let_go_of_the_terminal();
                    first = never(); // from here on it ends when it likes
                }
                Err(_) => break,
            },
            recv(guard.lost().as_crossbeam()) -> _ => break,
            recv(ends) -> _ => break,
            recv(over) -> _ => break,
            recv(signals) -> _ => break,
        }
    }
    let released = guard.unlock();
    let _ = client.shutdown_within(LAST_WORDS);
    match released {
        Ok(()) | Err(Error::Lost(_)) => Ok(Exit::Done),
        Err(error) => Err(error.into()),
    }
}

/// A channel that is closed when this process has ended: number and start. Never for no process.
fn end_of(watched: &str) -> Result<Receiver<()>, Failure> {
    let Some((process, start)) = watched.split_once(' ') else { return Ok(never()) };
    let (open, ends) = bounded::<()>(0);
    let pidfd = process.parse().ok().and_then(Pid::from_raw).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    match pidfd {
        // The start is read once the pidfd is there: from then on it is the pidfd's process that has this number.
        Some(Ok(pidfd)) if process.parse().ok().and_then(start_of) == start.parse().ok() => {
            start_thread("fairlock-watch", move || {
                while poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).is_err() {}
                drop(open);
            })?;
        }
        Some(Err(error)) if error != rustix::io::Errno::SRCH => {
            return Err(Failure::ours(format!("process {process} can't be watched: {error} (--while)")));
        }
        _ => {} // it has ended
    }
    Ok(ends)
}

/// Who waits for the end of the first process's output, as `$(…)` and ssh do, must not wait for the holder. The holder stays in its directory:
/// files of passwords and of TLS may be named from there, and are read for each connection.
fn let_go_of_the_terminal() {
    if let Ok(nothing) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
}

/// Releases the hold of this text.
pub(crate) fn give(server: &Server, options: &Hold) -> Result<Exit, Failure> {
    let hold = named(options)?;
    let released = only(server::store(server)?.backend().release(&[hold.hold()]))
        .map_err(|error| server::explained(server, Error::about(&hold.hold().lock.name, error)))?;
    if released == Released::NotHeld { Err(not_held(&hold)) } else { Ok(Exit::Done) }
}

/// Says whether the lock is held by this text's hold: prints its token.
pub(crate) fn check(server: &Server, options: &Hold) -> Result<Exit, Failure> {
    let hold = named(options)?;
    let state = server::client(server)?.admin(hold.name())?.inspect_queue(0..0)?;
    let is_it = state
        .holders
        .iter()
        .any(|holder| holder.owner == *hold.owner() && holder.token == Some(hold.token()));
    if !is_it {
        return Err(not_held(&hold));
    }
    print(&format!("{}\n", hold.token()))?;
    Ok(Exit::Done)
}

fn named(options: &Hold) -> Result<HandOver, Failure> {
    let of_variable = || std::env::var(HOLD).ok().filter(|text| !text.is_empty());
    let text = options.text.clone().or_else(of_variable);
    let text = text.ok_or_else(|| {
        Failure::ours(format!("which hold? Give the text that `fairlock take` printed, or set {HOLD}"))
    })?;
    let text = text.strip_prefix(HOLD).and_then(|text| text.strip_prefix('=')).unwrap_or(&text);
    text.parse().map_err(|_| {
        Failure::ours(format!(
            "this is no text of a hold: expected what `fairlock take` printed, {HOLD}=fairlock1.…"
        ))
    })
}

fn not_held(hold: &HandOver) -> Failure {
    let what =
        format!("{} is not held by this hold any more: it was given back, or lost", escaped(hold.name()));
    Failure::new(Exit::Lost, what)
}
