//! How a connection is made, and how it ends, as the server sees it.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
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

#[cfg(feature = "tls-rustls")]
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

#[cfg(not(feature = "tls-rustls"))]
#[test]
fn tls_needs_the_feature() {
    let (endpoint, ended) = server(serve);
    let secured = Stream::connect(&endpoint, soon()).expect("connected").secure("localhost");
    assert!(matches!(secured, Err(TlsFailure::NotBegun(what)) if what.contains("tls-rustls")));
    assert_eq!(ended.join().expect("an end"), Ended::Closed);
}
