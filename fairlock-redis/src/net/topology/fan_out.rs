//! Asks several servers the same question at the same time, so that one which is frozen delays nobody.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use crate::net::commands::CommandConnection;
use crate::net::connection::{Address, Failure, Timeouts, open};

/// How long the slower servers have after the first one has answered.
const GRACE: Duration = Duration::from_millis(100);

/// What one server answered: a reply to each command; an error reply is an answer as well.
pub(crate) type Answer = (Address, Result<Vec<Result<Value, Failure>>, Failure>);

/// Asks each of the servers, on a connection of its own. Returns [`GRACE`] after the first server has answered, or
/// when all have, at the latest after connect + response time-out; those that have not answered are missing. The threads of these
/// (`fairlock-fanout`) end by themselves, at their time-outs.
pub(crate) fn fan_out(addresses: &[Address], timeouts: Timeouts, question: &[Cmd]) -> Vec<Answer> {
    let packed: Vec<u8> = question.iter().flat_map(Cmd::get_packed_command).collect();
    let (count, (sender, answers)) = (question.len(), channel());
    for address in addresses {
        let (address, packed, to) = (address.clone(), packed.clone(), sender.clone());
        let ask = move || {
            let answer = ask(&address, timeouts, &packed, count);
            // Nobody may wait for it any more.
            let _ = to.send((address, answer));
        };
        let thread = thread::Builder::new().name("fairlock-fanout".to_owned()).spawn(ask);
        if let Err(error) = thread {
            log::warn!(
                target: "fairlock::net",
                event = "no thread", error:% = error;
                "no thread to ask a server could be started: {error}"
            );
        }
    }
    drop(sender);
    let mut until = Instant::now() + timeouts.connect + timeouts.response;
    let mut found = Vec::new();
    while let Ok(answer) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if answer.1.is_ok() {
            until = until.min(Instant::now() + GRACE);
        }
        found.push(answer);
    }
    found
}

fn ask(
    address: &Address,
    timeouts: Timeouts,
    packed: &[u8],
    replies: usize,
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    let (mut connection, mut answers) = (CommandConnection::new(), Vec::new());
    connection.connect(open(address, &timeouts)?);
    connection.exchange(packed, replies, timeouts.response, |reply| answers.push(reply))?;
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::test_server::{Act, FakeServer, TIMEOUTS, polite};
    use redis::cmd;

    #[test]
    fn a_server_that_says_nothing_does_not_delay_the_others() {
        let good = FakeServer::start(|_, words| polite(words));
        let frozen = FakeServer::start(|_, _| Act::Nothing);
        let asked = Instant::now();
        let question = [cmd("ECHO").arg("a").to_owned(), cmd("ECHO").arg("b").to_owned()];
        let answers = fan_out(&[frozen.address(), good.address()], TIMEOUTS, &question);
        assert!(asked.elapsed() < TIMEOUTS.connect, "{:?}", asked.elapsed());
        let [(address, Ok(replies))] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((address.to_string(), replies.len()), (good.address().to_string(), 2));
    }

    #[test]
    fn when_nobody_answers_it_ends_and_tells_what_is_known() {
        let frozen = FakeServer::start(|_, _| Act::Nothing);
        let asked = Instant::now();
        let answers = fan_out(&[frozen.address(), frozen.address()], TIMEOUTS, &[cmd("PING")]);
        assert!(asked.elapsed() < 3 * TIMEOUTS.connect, "{:?}", asked.elapsed());
        assert!(answers.iter().all(|(_, answer)| answer.is_err()), "{answers:?}");
    }
}
