//! Drives worker processes from a test: starts them, reads what they say, kills them.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::look_until;

/// A worker process; killed when dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    stdin: ChildStdin,
    said: Receiver<String>,
}

impl Worker {
    /// Starts the program (`env!("CARGO_BIN_EXE_lock_worker")`) and waits until it says `ready`.
    pub fn start(program: &str, arguments: &[&str]) -> Worker {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the worker program starts");
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (say, said) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        let worker = Worker { child, stdin, said };
        worker.expect("ready", Duration::from_secs(60));
        worker
    }

    /// Lets it continue from where it waits.
    pub fn go(&mut self) {
        self.say("go");
    }

    /// Sends it a line.
    pub fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the worker lives");
    }

    /// The next line that it says, or `None` after the bound.
    pub fn next_or_none(&self, bound: Duration) -> Option<String> {
        self.said.recv_timeout(bound).ok()
    }

    /// The next line that it says. Panics if none comes in time.
    #[track_caller]
    pub fn next(&self, bound: Duration) -> String {
        self.said.recv_timeout(bound).expect("the worker says something in time")
    }

    /// Waits for exactly this line.
    #[track_caller]
    pub fn expect(&self, line: &str, bound: Duration) {
        assert_eq!(self.next(bound), line);
    }

    /// Whether no unread line is there.
    pub fn is_quiet(&self) -> bool {
        self.said.try_recv().is_err()
    }

    /// Kills it (SIGKILL), so that it can't say anything more.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Whether it ends by itself with success; `None` if it does not end in time.
    pub fn ends_well(&mut self, bound: Duration) -> Option<bool> {
        look_until(bound, || self.child.try_wait().expect("our own child").map(|status| status.success()))
    }

    /// The process, for signals.
    pub fn child(&self) -> &Child {
        &self.child
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// For a worker program: says a word to the test.
///
/// # Errors
/// If the test no longer listens.
pub fn say(word: &str) -> Result<(), Box<dyn Error>> {
    println!("{word}");
    Ok(std::io::stdout().flush()?)
}

/// For a worker program: says a word and waits for the test's `go`. The process ends when its input does.
///
/// # Errors
/// If the test no longer listens.
pub fn say_and_wait(word: &str) -> Result<(), Box<dyn Error>> {
    say(word)?;
    match std::io::stdin().lock().read_line(&mut String::new())? {
        0 => std::process::exit(0),
        _ => Ok(()),
    }
}
