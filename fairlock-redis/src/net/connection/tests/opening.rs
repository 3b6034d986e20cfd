//! What a server has to answer before a connection counts as open.

use fairlock_core::backend::BackendErrorKind;
use fairlock_net::Secrets;

use super::*;
use crate::net::test_server::{Act, FakeServer, SECOND, TIMEOUTS, TestServer, polite};

fn refused(address: &Address) -> String {
    match open(address, &TIMEOUTS).err() {
        Some(Failure::Refused { code, .. }) => code,
        other => panic!("not refused: {other:?}"),
    }
}

fn not_sent(address: &Address, timeouts: &Timeouts) -> String {
    match open(address, timeouts).err() {
        Some(Failure::NotSent(cause)) => cause.to_string(),
        other => panic!("not unsent: {other:?}"),
    }
}

#[test]
fn the_database_and_the_names_are_set_also_over_a_socket() {
    let server = TestServer::start_with(&["--unixsocket", "redis.sock", "--databases", "4"]);
    let url = format!("unix://{}/redis.sock?db=3", server.directory().display());
    let mut con = open(&Address::parse(&url).expect("an address"), &TIMEOUTS).expect("a connection");
    let until = Instant::now() + SECOND;
    con.send(&cmd("CLIENT").arg("INFO").get_packed_command(), until).expect("sent");
    let info: String = redis::from_redis_value(con.receive(until).expect("a reply")).expect("a text");
    assert!(info.contains(" db=3 ") && info.contains(" name=fairlock "), "{info}");
    let failure = open(&Address::parse(&url.replace("=3", "=9")).expect("an address"), &TIMEOUTS).err();
    assert!(matches!(failure, Some(Failure::Refused { message, .. }) if message.contains("out of range")));
    assert!(
        not_sent(&Address::parse("unix:///no/such").expect("an address"), &TIMEOUTS).contains("No such file")
    );
}

#[test]
fn a_server_that_is_not_ready_is_refused_with_its_words() {
    for (words, code) in [
        ("-LOADING Redis is loading the dataset in memory\r\n", "LOADING"),
        ("-DENIED Redis is running in protected mode\r\n", "DENIED"),
        ("-ERR max number of clients reached\r\n", "ERR"),
    ] {
        let server = FakeServer::start(|_, _| Act::SayAndHangUp(words.to_owned()));
        assert_eq!(refused(&server.address()), code);
    }
}

/// Of one that accepts and stays silent, and of one whose answers come one by one.
#[test]
fn a_server_without_an_answer_costs_the_connect_time_once() {
    for is_silent in [true, false] {
        let server = FakeServer::start(move |_, words| {
            std::thread::sleep(SECOND / 5);
            if is_silent { Act::Nothing } else { polite(words) }
        });
        let timeouts = Timeouts { connect: SECOND / 2, response: 10 * SECOND };
        let asked = Instant::now();
        assert_eq!(not_sent(&server.address(), &timeouts), "no answer within 500ms (connect_timeout)");
        let took = asked.elapsed();
        assert!(took >= timeouts.connect && took < 2 * timeouts.connect, "silent: {is_silent}: {took:?}");
    }
}

#[test]
fn another_kind_of_server_is_refused_without_a_panic() {
    for garbage in [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "*-9\r\n",
        "$99999999999999999999\r\n",
        "\u{0}\r\n",
        "*9223372036854775807\r\n",
        "$9223372036854775807\r\nx",
        "%9223372036854775807\r\n",
        "|0\r\n+x\r\n",
        "-\r\n",
        ":\r\n",
    ] {
        let server = FakeServer::start(move |_, _| Act::SayAndHangUp(garbage.to_owned()));
        assert!(open(&server.address(), &TIMEOUTS).is_err(), "{garbage:?}");
    }
    assert!(
        not_sent(&Address::parse("redis://no-such-host.invalid").expect("an address"), &TIMEOUTS)
            .contains("name")
    );
}

/// A server that repeats the password, in any part of its words, to AUTH or to any later command, does not make us print the
/// password.
#[test]
fn a_repeated_password_is_not_printed() {
    let spellings = ["ca/na ry", "ca%2Fna%20ry", "ca%2fna%20ry"];
    let replies = |spelling: &str| {
        [
            format!("-ERR bad login {spelling}, says I"),
            format!("-{spelling} is wrong"),
            format!("-WRONGPASS no {spelling}"),
            format!("-ERR Error running script: AUTH {spelling}: -READONLY no {spelling}"),
            format!("-ERR {}{spelling} at the end of a line", "x".repeat(195)),
            format!("?{spelling}"),
        ]
    };
    for reply in spellings.iter().flat_map(|spelling| replies(spelling)) {
        for at_once in [true, false] {
            let said = reply.clone();
            let server = FakeServer::start(move |_, words| match words[0].as_str() {
                "AUTH" if !at_once => Act::Say("+OK\r\n".to_owned()),
                "AUTH" | "ECHO" => Act::SayAndHangUp(format!("{said}\r\n")),
                _ => polite(words),
            });
            let mut address = server.address();
            address.set_login("user", "ca/na ry");
            let failure = match open(&address, &TIMEOUTS) {
                Err(failure) => failure,
                Ok(mut con) => {
                    let until = Instant::now() + SECOND;
                    con.send(&cmd("ECHO").arg("x").get_packed_command(), until).expect("sent");
                    con.receive(until).and_then(|reply| con.answered(reply)).expect_err("refused")
                }
            };
            let error = failure.explain(&address, "connecting");
            let shown = format!("{failure:?} {failure} {error:?} {error} {}", error.message());
            // Also no part of it, where the words were cut.
            for part in ["ca/n", "ca%2", "na ry", "20ry"] {
                assert!(!shown.contains(part), "{reply}: {shown}");
            }
        }
    }
}

/// The meaning of a refusal does not depend on the password.
#[test]
fn a_password_that_is_a_word_of_the_servers_hides_no_meaning() {
    let says = "-ERR AUTH <password> called without any password configured for the default user\r\n";
    let server = FakeServer::answering("AUTH", says);
    let mut address = server.address();
    address.set_login("", "password");
    let error = open(&address, &TIMEOUTS).err().expect("refused").explain(&address, "connecting");
    assert_eq!(error.kind(), BackendErrorKind::Denied, "{error}");
    assert!(error.message().contains("the server has none"), "{error}");
}

/// Such as that of a login that ends, in the next one.
#[test]
fn a_secret_that_a_connection_learns_later_is_not_printed() {
    let server = FakeServer::answering("ECHO", "-ERR no canary\r\n");
    let mut con = open(&server.address(), &TIMEOUTS).expect("a connection");
    con.hide(Secrets::of("canary"));
    let until = Instant::now() + SECOND;
    con.send(&cmd("ECHO").arg("x").get_packed_command(), until).expect("sent");
    let failure = con.receive(until).and_then(|reply| con.answered(reply)).expect_err("refused");
    assert!(!format!("{failure:?} {failure}").contains("canary"), "{failure}");
}

#[test]
fn a_server_whose_role_is_unknown_is_no_master() {
    let server = FakeServer::answering("ROLE", "*1\r\n$8\r\nsentinel\r\n");
    let mut address = server.address();
    address.must_be = MustBe::NoReplica;
    assert!(open(&address, &TIMEOUTS).is_ok());
    address.must_be = MustBe::Master;
    assert_eq!(refused(&address), "READONLY");
}

#[cfg(feature = "tls")]
#[test]
fn where_tls_is_asked_for_no_command_is_sent_without_it() {
    let server = FakeServer::start(|_, words| polite(words));
    let address = Address::parse(&format!("rediss://127.0.0.1:{}", server.port())).expect("an address");
    assert!(open(&address, &TIMEOUTS).is_err());
    assert!(server.asked("").is_empty());
}

/// A message has the time that its reader gives it, whatever the requests before it had.
#[test]
fn a_silent_server_sends_no_message_and_an_ended_one_fails() {
    let server = FakeServer::start(|_, words| if words[0] == "ECHO" { Act::HangUp } else { polite(words) });
    let timeouts = Timeouts { connect: 10 * SECOND, response: SECOND };
    let mut con = open(&server.address(), &timeouts).expect("a connection");
    let (asked, until) = (Instant::now(), Instant::now() + 60 * SECOND);
    assert_eq!(con.receive_message(asked + SECOND / 20, SECOND), Ok(None));
    assert!(asked.elapsed() < 5 * SECOND);
    con.send(&cmd("ECHO").arg("x").get_packed_command(), until).expect("sent");
    assert!(con.receive_message(until, SECOND).is_err());
}
