//! How a connection ends, as the server sees it: by a reset if a command is unanswered, else as any other.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

use super::*;

/// How the client's end was closed.
#[derive(Debug, PartialEq)]
enum Ended {
    Closed,
    Reset,
}

/// Answers a greeting and PING, leaves ECHO unanswered, and half-answers GET.
fn serve(stream: impl Read + Write) -> Ended {
    let mut input = BufReader::new(stream);
    loop {
        let mut line = Vec::new(); // TLS is no text
        match input.read_until(b'\n', &mut line) {
            Ok(0) => return Ended::Closed,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ended::Reset,
            Err(error) => panic!("{error}"),
        }
        let reply = match line.trim_ascii_end() {
            b"PING" => "+PONG\r\n",
            b"CLIENT" | b"INFO" => "+OK\r\n",
            b"TIME" => "*2\r\n$1\r\n1\r\n$1\r\n1\r\n",
            b"GET" => "$5\r\nhel",
            _ => continue,
        };
        input.get_mut().write_all(reply.as_bytes()).expect("the client reads");
    }
}

/// A server's URL, and how its only connection ends.
fn tcp_server() -> (String, JoinHandle<Ended>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let accepted = move || {
        let stream: TcpStream = listener.accept().expect("accepted").0;
        stream.set_read_timeout(Some(10 * SECOND)).expect("a time-out");
        serve(stream)
    };
    (format!("redis://127.0.0.1:{port}"), thread::spawn(accepted))
}

fn at(url: &str) -> Address {
    Address::parse(url).expect("an address")
}

/// A client sends a command with this word, and ends.
fn say(url: &str, word: &str) {
    let pool = Pool::new(at(url), &Settings::new(SHORT, 1));
    match pool.call(cmd(word).arg("x").get_packed_command()) {
        Ok(_) => assert_eq!(word, "PING"),
        failed => _ = broken(failed),
    }
}

/// A connection that is given up with a command unanswered is reset.
#[test]
fn a_connection_given_up_with_an_open_command_is_reset() {
    for word in ["ECHO", "GET"] {
        let (url, ended) = tcp_server();
        say(&url, word);
        assert_eq!(ended.join().expect("an end"), Ended::Reset, "{word}");
    }
}

#[test]
fn a_greeting_that_is_not_answered_is_reset() {
    let (url, ended) = tcp_server();
    assert!(open(&at(&(url + "/1")), &SHORT).is_err(), "SELECT is not answered");
    assert_eq!(ended.join().expect("an end"), Ended::Reset);
}

#[test]
fn a_connection_with_nothing_unanswered_is_closed() {
    let (url, ended) = tcp_server();
    say(&url, "PING");
    assert_eq!(ended.join().expect("an end"), Ended::Closed);
}

#[test]
fn a_unix_socket_is_closed_in_any_case() {
    let path = std::env::temp_dir().join(format!("fairlock-closing-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    let ended = thread::spawn(move || serve(listener.accept().expect("accepted").0));
    say(&format!("unix://{}", path.display()), "ECHO");
    assert_eq!(ended.join().expect("an end"), Ended::Closed);
    std::fs::remove_file(&path).expect("its path");
}
