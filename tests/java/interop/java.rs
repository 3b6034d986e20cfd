//! Drives `fairlock.interop.Peer`: a JVM with one Redisson client, whose threads do what a test tells them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fairlock_tests::{RedisServer, eventually};

use crate::world::SOON;

/// The version of Redisson that `tests/java/interop/run` has built the program with.
pub(crate) fn redisson() -> String {
    std::env::var("FAIRLOCK_INTEROP_REDISSON").expect("tests/java/interop/run names the version of Redisson")
}

/// Whether it is the old version that the discipline was described from, and not today's.
pub(crate) fn is_old() -> bool {
    redisson().starts_with("3.16.")
}

fn build() -> PathBuf {
    PathBuf::from(
        std::env::var_os("FAIRLOCK_INTEROP_BUILD").expect("tests/java/interop/run names the build dir"),
    )
}

/// The answer of a Java thread.
#[derive(Debug)]
pub(crate) struct Answer {
    /// When the call began, by [`fairlock_tests::history::now_ns`].
    pub(crate) began: u64,
    /// When it returned.
    pub(crate) ended: u64,
    /// The result. For an exception: an exclamation mark, its class and its message.
    pub(crate) result: String,
}

/// A call in progress.
pub(crate) struct Pending {
    call: String,
    answer: Receiver<Answer>,
}

impl Pending {
    /// The answer; panics if there is none in time.
    #[track_caller]
    pub(crate) fn wait(&self, bound: Duration) -> Answer {
        match self.answer.recv_timeout(bound) {
            Ok(answer) => answer,
            Err(_) => panic!("no answer within {bound:?} to: {}", self.call),
        }
    }

    /// Waits for exactly this result.
    #[track_caller]
    pub(crate) fn expect(&self, result: &str) -> Answer {
        let answer = self.wait(SOON);
        assert_eq!(answer.result, result, "{}", self.call);
        answer
    }

    /// Whether there is no answer yet.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.answer.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty))
    }
}

type Waiting = Arc<Mutex<HashMap<u64, Sender<Answer>>>>;

/// The JVM; killed when dropped.
pub(crate) struct Java {
    child: Child,
    input: Mutex<(ChildStdin, u64)>,
    waiting: Waiting,
}

impl Java {
    /// Starts the JVM and returns when it is connected. `watchdog` is the lease of holds that name none.
    pub(crate) fn start(server: &RedisServer, watchdog: Duration) -> Java {
        let class_path = format!("{0}/classes:{0}/lib/*", build().display());
        let mut child = Command::new("java")
            // A small JVM that warms up fast: no second compiler, and no parallel collector on few cores.
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms256m", "-Xmx256m", "-cp", &class_path])
            .args(["fairlock.interop.Peer", &server.url(), &watchdog.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java starts (tests/java/interop/run installs it)");
        let input = Mutex::new((child.stdin.take().expect("a pipe"), 0));
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let waiting = Waiting::default();
        let java = Java { child, input, waiting: Arc::clone(&waiting) };
        let (ready, is_ready) = channel();
        thread::spawn(move || {
            let _ = ready.send(lines.next());
            for line in lines.map_while(Result::ok) {
                deliver(&waiting, &line);
            }
            waiting.lock().unwrap().clear(); // no answers come from a dead JVM
        });
        match is_ready.recv_timeout(3 * SOON) {
            Ok(Some(Ok(line))) if line.starts_with("ready ") => java,
            other => panic!("the JVM did not start: {other:?}"),
        }
    }

    /// Tells a thread to do something, without waiting for it.
    pub(crate) fn tell(&self, thread: &str, call: &str) -> Pending {
        let (sender, answer) = channel();
        let mut input = self.input.lock().unwrap();
        input.1 += 1;
        let id = input.1;
        self.waiting.lock().unwrap().insert(id, sender);
        writeln!(input.0, "{id} {thread} {call}").expect("the JVM lives");
        Pending { call: format!("{thread} {call}"), answer }
    }

    /// Tells a thread to do something, and waits until it is done.
    #[track_caller]
    pub(crate) fn ask(&self, thread: &str, call: &str) -> Answer {
        self.tell(thread, call).wait(SOON)
    }

    /// The same, with the expected result.
    #[track_caller]
    pub(crate) fn expect(&self, thread: &str, call: &str, result: &str) -> Answer {
        self.tell(thread, call).expect(result)
    }

    /// The same, for a number.
    #[track_caller]
    pub(crate) fn number(&self, thread: &str, call: &str) -> i64 {
        let result = self.ask(thread, call).result;
        result.parse().unwrap_or_else(|_| panic!("{thread} {call}: {result}"))
    }

    /// The thread's name at the server.
    #[track_caller]
    pub(crate) fn owner(&self, thread: &str) -> String {
        self.ask(thread, "owner").result
    }

    /// The thread releases a lock that it does not hold, and gets the error.
    #[track_caller]
    pub(crate) fn expect_not_held(&self, thread: &str, call: &str) {
        let result = self.ask(thread, call).result;
        assert!(result.starts_with("!IllegalMonitorStateException "), "{thread} {call}: {result}");
    }

    /// Waits until the thread, which has asked for a lock, sleeps: it has subscribed and checked once more.
    #[track_caller]
    pub(crate) fn until_asleep(&self, thread: &str) {
        eventually("the thread sleeps", || self.ask("looks", &format!("asleep {thread}")).result == "true");
    }

    /// Kills it (SIGKILL), so that it can't say anything more.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn deliver(waiting: &Waiting, line: &str) {
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    let [id, began, ended, result] = words[..] else { panic!("not an answer: {line}") };
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let answer = Answer { began: number(began), ended: number(ended), result: result.to_owned() };
    if let Some(sender) = waiting.lock().unwrap().remove(&number(id)) {
        let _ = sender.send(answer); // the test may no longer wait
    }
}
