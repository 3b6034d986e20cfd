//! How a connection is made, and how it ends, as the server sees it; the deadline of each wait.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::*;

const TIME: Duration = Duration::from_millis(300);
const SECOND: Duration = Duration::from_secs(1);

/// How the client's end was closed.
#[derive(Debug, PartialEq)]
enum Ended {
    Closed,
    Reset,
}

/// Reads until the end; each `well?` is answered by a `!`.
fn serve(mut peer: impl Read + Write) -> Ended {
    let mut bytes = [0; 1000];
    loop {
        match peer.read(&mut bytes) {
            Ok(0) => return Ended::Closed,
            Ok(read) if bytes[..read] == *b"well?" => peer.write_all(b"!").expect("the client reads"),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ended::Reset,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A server's endpoint, and what `serve` says of its only connection.
fn server<T: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (Endpoint, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let accepted = move || {
        let stream = listener.accept().expect("accepted").0;
        stream.set_read_timeout(Some(10 * SECOND)).expect("a time-out");
        serve(stream)
    };
    (Endpoint::Tcp { host: "127.0.0.1".to_owned(), port }, thread::spawn(accepted))
}

fn soon() -> Instant {
    Instant::now() + 10 * SECOND
}

/// Asks, and reads the answer.
fn ask(stream: &mut Stream) {
    stream.send(b"well?", soon()).expect("sent");
    let mut answer = [0];
    stream.read_exact(&mut answer).expect("answered");
    assert_eq!(answer, *b"!");
}

#[test]
fn it_is_reset_with_an_answer_missing_and_else_closed() {
    let (endpoint, ended) = server(serve);
    let mut stream = Stream::connect(&endpoint, soon()).expect("connected");
    ask(&mut stream);
    drop(stream);
    assert_eq!(ended.join().expect("an end"), Ended::Reset, "it was not told that this was all");
    let (endpoint, ended) = server(serve);
    let mut stream = Stream::connect(&endpoint, soon()).expect("connected");
    ask(&mut stream);
    stream.all_answered();
    drop(stream);
    assert_eq!(ended.join().expect("an end"), Ended::Closed);
    let (endpoint, ended) = server(serve);
    drop(Stream::connect(&endpoint, soon()).expect("connected"));
    assert_eq!(ended.join().expect("an end"), Ended::Closed, "nothing was sent");
}

#[test]
fn a_unix_socket_is_closed_in_any_case() {
    let path = std::env::temp_dir().join(format!("fairlock-stream-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    let ended = thread::spawn(move || serve(listener.accept().expect("accepted").0));
    let mut stream = Stream::connect(&Endpoint::Unix(path.clone()), soon()).expect("connected");
    ask(&mut stream);
    drop(stream);
    assert_eq!(ended.join().expect("an end"), Ended::Closed);
    std::fs::remove_file(&path).expect("its path");
    let gone = Stream::connect(&Endpoint::Unix(path), soon()).err().expect("nobody listens");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[test]
fn the_time_of_what_was_sent_holds_for_its_answer() {
    let (endpoint, ended) = server(serve);
    let mut stream = Stream::connect(&endpoint, soon()).expect("connected");
    let asked = Instant::now();
    stream.send(b"no question", asked + TIME).expect("sent");
    assert_eq!(stream.read(&mut [0]).expect_err("no answer").kind(), ErrorKind::TimedOut);
    assert!(asked.elapsed() >= TIME, "{:?}", asked.elapsed());
    drop(stream);
    assert_eq!(ended.join().expect("an end"), Ended::Reset);
}

/// Any name has these addresses.
fn named(ips: [&str; 3]) -> &'static Resolver {
    let known = ips.map(|ip| SocketAddr::new(ip.parse::<IpAddr>().expect("an address"), 0));
    Box::leak(Box::new(Resolver::new(move |_| Ok(known.to_vec()))))
}

#[test]
fn each_address_of_a_host_is_tried() {
    let (endpoint, ended) = server(serve);
    let Endpoint::Tcp { port, .. } = endpoint else { panic!("{endpoint}") };
    // It listens at the last one only.
    let names = named(["0.0.0.0", "::1", "127.0.0.1"]);
    drop(dial(names, "a.host", port, soon()).expect("connected"));
    assert_eq!(ended.join().expect("an end"), Ended::Closed);
    let error = dial(names, "0.0.0.0", port, soon()).err().expect("no server");
    assert_eq!(error.to_string(), "0.0.0.0 is no address of a server");
}

/// The time for one address is a part of the time, and the connection has all of it.
#[cfg(target_os = "linux")]
#[cfg(feature = "servers")] // takes seconds of real time
#[test]
fn a_silent_address_leaves_time_for_the_next() {
    let (endpoint, ended) = server(serve);
    let Endpoint::Tcp { port, .. } = endpoint else { panic!("{endpoint}") };
    let silent = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let at = SocketAddr::from(([127, 0, 0, 2], port));
    silent.bind(&at.into()).expect("an address");
    silent.listen(0).expect("listens");
    // They wait to be accepted. Further ones get no answer.
    let waiting: Vec<_> = (0..10).map_while(|_| TcpStream::connect_timeout(&at, TIME).ok()).collect();
    assert!(waiting.len() < 10, "its queue never fills up");
    let names = named(["127.0.0.2", "127.0.0.1", "127.0.0.3"]);
    let (began, time) = (Instant::now(), 10 * TIME);
    let mut socket = dial(names, "a.host", port, began + time).expect("connected");
    assert_eq!(socket.read(&mut [0]).expect_err("nothing").kind(), ErrorKind::TimedOut);
    assert!(began.elapsed() >= time, "{:?}", began.elapsed());
    drop(socket);
    assert_eq!(ended.join().expect("an end"), Ended::Closed);
    // Where all are silent, all of the time goes to one or another.
    let began = Instant::now();
    let error = dial(named(["127.0.0.2"; 3]), "a.host", port, began + TIME).err().expect("no answer");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(began.elapsed() >= TIME, "{:?}", began.elapsed());
}

fn pair() -> (Socket, UnixStream) {
    let (socket, peer) = UnixStream::pair().expect("two sockets");
    (Socket::new(OwnedFd::from(socket).into(), Instant::now() + TIME), peer)
}

#[test]
fn bytes_that_come_one_by_one_have_one_deadline() {
    let (mut socket, mut peer) = pair();
    thread::scope(|scope| {
        scope.spawn(move || {
            while peer.write_all(b"x").is_ok() {
                thread::sleep(TIME / 10);
            }
        });
        let began = Instant::now();
        socket.deadline = began + TIME;
        let error = socket.read_exact(&mut [0; 1000]).expect_err("never whole");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() >= TIME, "{:?}", began.elapsed());
        drop(socket);
    });
}

#[test]
fn a_slow_reader_has_the_same_deadline() {
    let (mut socket, mut peer) = pair();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) && peer.read(&mut [0; 100]).is_ok() {
                thread::sleep(TIME / 10);
            }
        });
        let began = Instant::now();
        socket.deadline = began + TIME;
        let error = socket.write_all(&vec![0; 100_000_000]).expect_err("never taken");
        done.store(true, Ordering::SeqCst);
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() >= TIME, "{:?}", began.elapsed());
    });
}

#[test]
fn an_earlier_time_out_does_not_shorten_a_longer_one() {
    let (mut socket, _peer) = pair();
    for time in [TIME / 10, TIME] {
        let began = Instant::now();
        socket.deadline = began + time;
        assert_eq!(socket.read(&mut [0]).expect_err("nothing").kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() >= time, "{:?}", began.elapsed());
    }
    socket.deadline = Instant::now();
    assert_eq!(socket.read(&mut [0]).expect_err("no time").kind(), ErrorKind::TimedOut);
}

#[test]
fn a_time_out_that_is_too_long_is_set_again() {
    let (mut time_out, set) = (TimeOut(Duration::MAX), Cell::new(Duration::MAX));
    for time in [SECOND, TIME, SLACK / 2] {
        let sets = |left| {
            set.set(left);
            Ok(())
        };
        time_out.until(Instant::now() + time, sets, || Ok(())).expect("done");
        assert!(set.get() <= time, "{:?}", set.get());
    }
}

#[test]
fn a_call_that_a_signal_interrupts_is_repeated() {
    let (mut time_out, mut calls) = (TimeOut(Duration::MAX), 0);
    let act = || {
        calls += 1;
        if calls == 1 { Err(ErrorKind::Interrupted.into()) } else { Ok(calls) }
    };
    assert_eq!(time_out.until(Instant::now() + SECOND, |_| Ok(()), act).expect("done"), 2);
}

#[test]
fn the_system_looks_for_a_peer_that_has_vanished() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("a port");
    let socket = Socket::tcp(&at, Instant::now() + SECOND).expect("connected");
    assert!(socket.raw.keepalive().expect("an option"));
    #[cfg(target_os = "linux")]
    assert!(socket.raw.tcp_user_timeout().expect("an option").is_some());
}

#[test]
fn connecting_to_a_path_without_accepts_ends_in_time() {
    let path = std::env::temp_dir().join(format!("fairlock-socket-{}-full", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    listener.bind(&SockAddr::unix(&path).expect("a path")).expect("bound");
    listener.listen(1).expect("listens");
    let mut waiting = Vec::new();
    let (error, took) = loop {
        let began = Instant::now();
        match Socket::unix(&path, began + TIME) {
            Ok(socket) => waiting.push(socket),
            Err(error) => break (error, began.elapsed()),
        }
        assert!(waiting.len() < 10, "its queue never fills up");
    };
    std::fs::remove_file(&path).expect("its path");
    // Linux makes them wait, others refuse.
    assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ConnectionRefused), "{error}");
    assert!(took < TIME + SECOND, "{took:?}");
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;

    fn handshake_error(secured: Result<Stream, TlsFailure>) -> io::Error {
        match secured.err() {
            Some(TlsFailure::Handshake(error)) => error,
            other => panic!("not in the handshake: {other:?}"),
        }
    }

    /// Some protocols ask first whether they may.
    #[test]
    fn tls_begins_on_the_same_connection_after_a_question() {
        let (endpoint, first_byte) = server(|mut peer| {
            let mut bytes = [0; 5];
            peer.read_exact(&mut bytes).expect("the question");
            assert_eq!(bytes, *b"well?");
            peer.write_all(b"!").expect("the client reads");
            peer.read_exact(&mut bytes).expect("what follows");
            bytes[0]
        });
        let mut stream = Stream::connect(&endpoint, soon()).expect("connected");
        ask(&mut stream);
        stream.all_answered();
        handshake_error(stream.secure("localhost"));
        assert_eq!(first_byte.join().expect("a byte"), 0x16, "a handshake");
    }

    #[test]
    fn a_handshake_with_a_peer_that_is_silent_ends_at_the_deadline() {
        let (endpoint, ended) = server(serve);
        let asked = Instant::now();
        let stream = Stream::connect(&endpoint, asked + TIME).expect("connected");
        let failure = TlsFailure::Handshake(handshake_error(stream.secure("localhost")));
        assert_eq!(failure.to_string(), "the TLS handshake failed: no answer in time");
        assert!(asked.elapsed() >= TIME, "{:?}", asked.elapsed());
        assert_eq!(ended.join().expect("an end"), Ended::Closed);
    }

    #[test]
    fn a_name_that_no_certificate_can_have_is_refused() {
        let (endpoint, _ended) = server(serve);
        let stream = Stream::connect(&endpoint, soon()).expect("connected");
        assert!(matches!(stream.secure("no host"), Err(TlsFailure::NotBegun(_))));
    }

    /// What is sent waits for a handshake here, which the server does not answer.
    #[test]
    fn it_is_reset_with_an_answer_missing() {
        let (endpoint, ended) = server(serve);
        let stream = Stream::connect(&endpoint, soon()).expect("connected");
        let Carrier::Cleartext(socket) = stream.0 else { panic!("it has TLS") };
        let tls = Tls::over(socket, "localhost", &TlsSettings::default()).expect("a client");
        let mut stream = Stream(Carrier::Tls(Box::new(tls)));
        assert!(stream.send(b"well?", Instant::now() + TIME).is_err());
        drop(stream);
        assert_eq!(ended.join().expect("an end"), Ended::Reset);
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_needs_the_feature() {
    let (endpoint, ended) = server(serve);
    let secured = Stream::connect(&endpoint, soon()).expect("connected").secure("localhost");
    assert!(matches!(secured, Err(TlsFailure::NotBegun(what)) if what.contains("tls")));
    assert_eq!(ended.join().expect("an end"), Ended::Closed);
}
