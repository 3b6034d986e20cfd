//! Asks several servers the same question at the same time: a frozen server does not delay the others.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::LineLimit;
use redis::{Cmd, Value};

use crate::net::commands::CommandConnection;
use crate::net::connection::{Address, Failure, Timeouts, open};

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

#[cfg(feature = "night")]
#[cfg(test)]
mod tests {
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
