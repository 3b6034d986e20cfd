//! Asks several servers the same question at the same time: a frozen server does not delay the others. And what a voter, one of those
//! whose majority counts, says of itself: which run of its process answers, and since when.
//!
//! A voter whose file was lost may name a server that the voter had given up. While its former vote is part of a proof for one server,
//! the voter must not count for another server. So a voter counts only a trust after its start: every earlier proof has then ended.
//! The voter's clock tells its start; after that clock was set back, the client's first meeting with this run of the voter does.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::LineLimit;
use redis::{Cmd, Value, cmd};

use crate::net::commands::CommandConnection;
use crate::net::connection::{Address, Failure, Timeouts, field, open, text};

/// How long the slower servers have after enough answers.
pub(super) const LONGER: Duration = Duration::from_millis(100);

/// The lines about threads that can't be started.
static NO_THREAD: LineLimit = LineLimit::new();

/// One server's answer: a reply to each command; an error reply counts as one.
pub(crate) type Answer = (Address, Result<Vec<Result<Value, Failure>>, Failure>);

/// Asks each server on its own connection. Returns [`LONGER`] after `enough` answers, or with the last one, at the
/// latest after connect + response time-out; servers without an answer are missing.
pub(crate) fn fan_out(
    addresses: &[Address],
    timeouts: Timeouts,
    question: &[Cmd],
    enough: usize,
) -> Vec<Answer> {
    let (sender, answers) = channel();
    ask_all(addresses, timeouts, question, move |answer| {
        // The caller may no longer wait for it.
        let _ = sender.send(answer);
    });
    let mut until = Instant::now() + timeouts.connect + timeouts.response;
    let (mut found, mut good) = (Vec::new(), 0);
    while let Ok(answer) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
        good += usize::from(answer.1.is_ok());
        if good >= enough {
            until = until.min(Instant::now() + LONGER);
        }
        found.push(answer);
    }
    found
}

/// Asks each server on a thread of its own (`fairlock-fanout`), which calls `heard` with the answer, once and after connect + response
/// time-out at the latest, and ends.
pub(crate) fn ask_all(
    addresses: &[Address],
    timeouts: Timeouts,
    question: &[Cmd],
    heard: impl Fn(Answer) + Clone + Send + 'static,
) {
    let packed: Arc<[u8]> = question.iter().flat_map(Cmd::get_packed_command).collect();
    let count = question.len();
    for address in addresses {
        let (to, packed, hears) = (address.clone(), Arc::clone(&packed), heard.clone());
        let ask = move || {
            let answer = ask(&to, timeouts, &packed, count);
            hears((to, answer));
        };
        let thread = thread::Builder::new().name("fairlock-fanout".to_owned()).spawn(ask);
        if let Err(error) = thread {
            if let Some(count) = NO_THREAD.count(1, Instant::now()) {
                log::warn!(
                    target: "fairlock::net",
                    event = "no thread", count = count, error:% = error;
                    "can't start {count} thread(s) to ask a server: {error}"
                );
            }
            heard((address.clone(), Err(Failure::NotSent("no thread to ask it".into()))));
        }
    }
}

fn ask(
    address: &Address,
    timeouts: Timeouts,
    packed: &[u8],
    replies: usize,
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    let (mut connection, mut answers) = (CommandConnection::new(), Vec::new());
    connection.connect(open(address, &timeouts)?);
    connection.exchange(packed, replies, Instant::now(), timeouts.response, |reply| answers.push(reply))?;
    Ok(answers)
}

/// How much of a run's id is told to the servers: enough to tell the runs of a few processes apart.
const DIGITS: usize = 12;

/// One run of a voter's process.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// The id of the run, which changes with each restart, with or without a file.
    pub(super) id: String,
    /// How long the voter has been up by its wall clock, in seconds. Both ends were rounded down, so it may be a second less. 0 if the
    /// clock was set back to before the start.
    pub(super) uptime: u64,
}

/// The question about the run, asked in one round trip with the vote.
pub(super) fn run_question() -> Cmd {
    cmd("INFO").arg("server").to_owned()
}

impl Run {
    /// Reads the reply to [`run_question`].
    pub(super) fn read(reply: &Value) -> Result<Run, Failure> {
        let unintelligible = || Failure::Broken("an unintelligible answer to INFO".into());
        let info = text(reply).map_err(|_| unintelligible())?;
        let id = field(info, "run_id").and_then(|id| id.get(..DIGITS));
        let id = id.filter(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let uptime = field(info, "uptime_in_seconds").and_then(|seconds| seconds.parse::<i64>().ok());
        match (id, uptime) {
            (Some(id), Some(uptime)) => Ok(Run { id: id.to_owned(), uptime: uptime.try_into().unwrap_or(0) }),
            _ => Err(unintelligible()),
        }
    }
}

/// The present run of each voter that a client has met, and since when it knows that run.
#[derive(Default)]
pub(super) struct Runs(HashMap<String, (String, Instant)>);

impl Runs {
    /// Whether a run lasts for longer than this, as the voter says, or as the client has seen.
    pub(super) fn is_older(&mut self, voter: &str, run: &Run, least: Duration, now: Instant) -> bool {
        let (known, since) = self.0.entry(voter.to_owned()).or_insert_with(|| (run.id.clone(), now));
        if *known != run.id {
            (*known, *since) = (run.id.clone(), now);
        }
        Duration::from_secs(run.uptime) > least || now.saturating_duration_since(*since) > least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_old_by_its_clock_or_by_that_of_the_client() {
        const LEAST: Duration = Duration::from_secs(10);
        let read = |id: char, uptime: i64| {
            let id: String = [id; 12].iter().collect();
            let info = format!("run_id:{id}\r\nuptime_in_seconds:{uptime}\r\n");
            Run::read(&Value::BulkString(info.into_bytes())).expect("a run")
        };
        let (mut runs, begin) = (Runs::default(), Instant::now());
        let mut is_old = |id, uptime, after| {
            runs.is_older("voter", &read(id, uptime), LEAST, begin + Duration::from_secs(after))
        };
        assert!(is_old('a', 11, 0));
        assert!(!is_old('b', 10, 0));
        // The voter's clock was set back to before its start.
        assert!(!is_old('b', -3600, 10));
        assert!(is_old('b', -3600, 11));
        assert!(!is_old('c', -3600, 12), "another run");
        assert!(!is_old('b', -3600, 13), "it is not that one any more");
    }
}

#[cfg(feature = "night")]
#[cfg(test)]
mod tests_at_night {
    use super::*;
    use crate::net::test_server::{Act, FakeServer, TIMEOUTS, polite};
    use redis::cmd;

    #[test]
    fn a_silent_server_does_not_delay_the_others() {
        let good = FakeServer::start(|_, words| polite(words));
        let frozen = FakeServer::start(|_, _| Act::Nothing);
        let asked = Instant::now();
        let question = [cmd("ECHO").arg("a").to_owned(), cmd("ECHO").arg("b").to_owned()];
        let answers = fan_out(&[frozen.address(), good.address()], TIMEOUTS, &question, 1);
        assert!((LONGER..TIMEOUTS.connect).contains(&asked.elapsed()), "{:?}", asked.elapsed());
        let [(address, Ok(replies))] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((address.to_string(), replies.len()), (good.address().to_string(), 2));
    }

    #[test]
    fn without_any_answer_it_ends_on_time() {
        let frozen = FakeServer::start(|_, _| Act::Nothing);
        let asked = Instant::now();
        let answers = fan_out(&[frozen.address(), frozen.address()], TIMEOUTS, &[cmd("PING")], 1);
        assert!(asked.elapsed() < 3 * TIMEOUTS.connect, "{:?}", asked.elapsed());
        assert!(answers.iter().all(|(_, answer)| answer.is_err()), "{answers:?}");
    }
}
