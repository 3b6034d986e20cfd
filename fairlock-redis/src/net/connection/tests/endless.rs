//! Endless replies, wherever a reply is read: to commands, on channels, from sentinels and nodes, in a greeting.

mod closing;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fairlock_core::backend::BackendErrorKind;
use fairlock_net::Endpoint;
use redis::cmd;

use super::*;
use crate::net::commands::Pool;
use crate::net::connection::BYTES;
use crate::net::settings::Settings;
use crate::net::subscription::{Event, Subscriber};
use crate::net::test_server::{Act, FakeServer, SECOND, Stream as Pouring, confirmed, polite};
use crate::net::topology::{Cluster, Sentinel, fan_out};

const TIME: Duration = Duration::from_millis(300);
/// For replies without pauses: they have to end by their length, even on a slow machine.
const PATIENT: Timeouts = Timeouts { connect: Duration::from_secs(60), response: Duration::from_secs(60) };
/// For replies that arrive byte by byte.
const SHORT: Timeouts = Timeouts { connect: SECOND, response: TIME };
/// How late an end may be on a busy machine.
const SLACK: Duration = SECOND;

/// An endless answer, the time-outs of its readers, and the error that they report.
struct Case {
    stream: Pouring,
    timeouts: Timeouts,
    says: &'static str,
}

impl Case {
    fn flood(begins: &str, goes_on: &str, says: &'static str) -> Case {
        Case { stream: Pouring::flood(begins, goes_on), timeouts: PATIENT, says }
    }

    fn drip(begins: &str) -> Case {
        Case { stream: Pouring::drip(begins), timeouts: SHORT, says: "did not end within " }
    }

    fn all() -> Vec<Case> {
        const LONG: &str = "is longer than";
        const MANY: &str = "has more than";
        vec![
            Case::flood("$10737418240\r\n", "x", LONG),
            Case::flood("*1000000000\r\n", ":1\r\n", MANY),
            // As deep as the parser goes, with a length for which it may reserve memory.
            Case::flood(&"*1000000000\r\n".repeat(90), "+\r\n", MANY),
            // The parser scans an endless line from its start again and again, so either limit may come first.
            Case { timeouts: SHORT, ..Case::flood("+", "x", "an answer") },
            Case::drip("$10737418240\r\n"),
            Case::drip("+"),
            Case::drip("*1000000000\r\n:1\r\n+"),
        ]
    }

    fn one_of_each() -> [Case; 2] {
        [Case::flood("$10737418240\r\n", "x", "is longer than"), Case::drip("*1000000000\r\n+")]
    }
}

fn broken(result: Result<impl Sized, Failure>) -> String {
    match result.err() {
        Some(Failure::Broken(cause)) => cause.to_string(),
        other => panic!("not broken: {other:?}"),
    }
}

/// A server that answers this command with the stream, the first time only.
fn pours_at(word: &'static str, stream: &Pouring) -> FakeServer {
    let (stream, poured) = (stream.clone(), AtomicBool::new(false));
    FakeServer::start(move |_, words| {
        let is_it = words[0].eq_ignore_ascii_case(word);
        if is_it && !poured.swap(true, Ordering::SeqCst) {
            return Act::Pour(stream.clone());
        }
        match words[0].as_str() {
            "subscribe" => Act::Say(confirmed(&words[1])),
            _ => polite(words),
        }
    })
}

#[test]
fn an_answer_to_a_command_has_an_end_in_time_and_in_length() {
    for Case { stream, timeouts, says } in Case::all() {
        let server = pours_at("ECHO", &stream);
        let pool = Pool::new(server.address(), &Settings::new(timeouts, 1));
        pool.check().expect("it greets");
        let asked = Instant::now();
        let failure = pool.call(cmd("ECHO").arg("x").get_packed_command()).expect_err("no whole answer");
        assert!(asked.elapsed() < timeouts.response + SLACK, "{:?}, {stream:?}", asked.elapsed());
        let error = failure.explain(pool.address(), "acquire");
        assert_eq!(error.kind(), BackendErrorKind::Unavailable);
        assert!(broken(Err::<(), _>(failure)).contains(says), "{error}");
        assert!(error.to_string().contains("whether it was carried out is not known"), "{error}");
        // None of it is read as the next answer.
        let answer = pool.call(cmd("ECHO").arg("y").get_packed_command());
        assert_eq!(answer, Ok(Value::BulkString(b"y".to_vec())));
        assert_eq!(server.connections(), 2);
        stream.was_ended();
    }
}

#[test]
fn a_greeting_has_an_end_in_time_and_in_length() {
    for Case { stream, timeouts, says } in Case::one_of_each() {
        let server = pours_at("PING", &stream);
        let asked = Instant::now();
        let failure = open(&server.address(), &timeouts).err();
        assert!(asked.elapsed() < timeouts.connect + SLACK, "{:?}, {stream:?}", asked.elapsed());
        assert!(matches!(&failure, Some(Failure::NotSent(cause)) if cause.contains(says)), "{failure:?}");
        stream.was_ended();
    }
}

#[test]
fn an_endless_message_is_cut_off_and_the_subscriber_comes_back() {
    for Case { mut stream, timeouts, .. } in Case::one_of_each() {
        stream.begins = confirmed("own") + &stream.begins;
        let server = pours_at("subscribe", &stream);
        let (gap, gaps) = std::sync::mpsc::channel();
        let hears = Arc::new(move |heard: &Event<'_>| {
            if *heard == Event::Gap {
                let _ = gap.send(Instant::now());
            }
        });
        let began = Instant::now();
        let subscriber = Subscriber::start(Arc::new(server.address()), timeouts, "own".to_owned(), hears)
            .expect("a subscriber");
        let back = gaps.recv_timeout(10 * SECOND).expect("it comes back");
        // A slow stream begins with the confirmation, and is late one response time-out after its next byte.
        let took = back.duration_since(began);
        assert!(took < timeouts.response + 2 * SLACK, "{took:?}, {stream:?}");
        stream.was_ended();
        drop(subscriber);
    }
}

#[test]
fn an_answer_to_a_subscription_has_an_end_in_time_and_in_length() {
    for Case { stream, timeouts, says } in Case::one_of_each() {
        let server = pours_at("subscribe", &stream);
        let asked = Instant::now();
        let subscriber =
            Subscriber::start(Arc::new(server.address()), timeouts, "own".to_owned(), Arc::new(|_: &_| {}));
        assert!(asked.elapsed() < timeouts.connect + timeouts.response + SLACK, "{:?}", asked.elapsed());
        let failure = subscriber.err();
        assert!(matches!(&failure, Some(Failure::NotSent(cause)) if cause.contains(says)), "{failure:?}");
        stream.was_ended();
    }
}

/// Answers of sentinels and nodes have an end in time and in length.
#[test]
fn answers_of_sentinels_and_nodes_end_in_time_and_length() {
    for Case { stream, timeouts, says } in Case::one_of_each() {
        let bound = 2 * (timeouts.connect + timeouts.response) + SLACK;
        for word in ["SENTINEL", "CLUSTER"] {
            let answers = fan_out(&[pours_at(word, &stream).address()], timeouts, &[cmd(word)], 1);
            let failure = answers.into_iter().next().map(|(_, answer)| broken(answer));
            assert!(failure.as_ref().is_some_and(|failure| failure.contains(says)), "{failure:?}");
        }
        let asked = Instant::now();
        let at = pours_at("SENTINEL", &stream).address();
        let error = Sentinel::connect(vec![at.clone()], at, "m", &Settings::new(timeouts, 1))
            .err()
            .expect("no master");
        assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
        assert!(asked.elapsed() < bound, "{:?}", asked.elapsed());
        let asked = Instant::now();
        let at = pours_at("CLUSTER", &stream).address();
        let error = Cluster::connect(vec![at], &Settings::new(timeouts, 1)).err().expect("no map");
        assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
        assert!(asked.elapsed() < bound, "{:?}", asked.elapsed());
    }
}

#[test]
fn long_useful_answers_come_through() {
    let bytes = "x".repeat(BYTES - 1000);
    let items = ":1\r\n".repeat(500_000);
    let answers = [format!("${}\r\n{bytes}\r\n", bytes.len()), format!("*500000\r\n{items}")];
    let turn = AtomicUsize::new(0);
    let server = FakeServer::start(move |_, words| match words[0].as_str() {
        "ECHO" => Act::Say(answers[turn.fetch_add(1, Ordering::SeqCst)].clone()),
        _ => polite(words),
    });
    let pool = Pool::new(server.address(), &Settings::new(PATIENT, 1));
    let ask = || pool.call(cmd("ECHO").arg("x").get_packed_command());
    assert!(matches!(ask(), Ok(Value::BulkString(long)) if long.len() == bytes.len()));
    assert!(matches!(ask(), Ok(Value::Array(items)) if items.len() == 500_000));
    assert_eq!(server.connections(), 1);
}

/// A message that begins together with the end of another message has an end too.
#[test]
fn a_message_that_begins_at_anothers_end_has_an_end() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("a port");
    let endpoint = Endpoint::Tcp { host: at.ip().to_string(), port: at.port() };
    let stream = Stream::connect(&endpoint, Instant::now() + SECOND).expect("connected");
    let mut peer = listener.accept().expect("accepted").0;
    peer.write_all(b"+one\r\n+tw").expect("written");
    let mut connection = Connection::new(stream, Secrets::default());
    let mut message = || connection.receive_message(Instant::now() + 60 * SECOND, TIME);
    assert_eq!(message(), Ok(Some(Value::SimpleString("one".to_owned()))));
    let asked = Instant::now();
    assert!(broken(message()).contains("did not end in time"));
    assert!(asked.elapsed() < TIME + SLACK, "{:?}", asked.elapsed());
}
