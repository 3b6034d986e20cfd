//! Servers for the tests of this folder: a real one as a child process, and a fake one with scripted answers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::Value;

use super::subscription::Endpoints;
use super::{Address, Failure, Servers, Settings, Target, Timeouts};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const TIMEOUTS: Timeouts = Timeouts { connect: SECOND, response: SECOND };

/// A subscriber's one server.
impl Endpoints for Address {
    fn next(&self) -> Result<Address, Failure> {
        Ok(self.clone())
    }
}

/// A redis-server as a child process, killed on drop.
pub(crate) struct TestServer {
    child: Child,
    port: u16,
    directory: PathBuf,
}

impl TestServer {
    pub(crate) fn start() -> TestServer {
        TestServer::start_with(&[])
    }

    pub(crate) fn start_with(options: &[&str]) -> TestServer {
        // Another process may take the port between the check and the start.
        (0..5).find_map(|_| TestServer::try_start(options)).expect("redis-server does not start")
    }

    fn try_start(options: &[&str]) -> Option<TestServer> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("fairlock-net-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the server");
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("a port").port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--dir", &directory.display().to_string()])
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is not in PATH: run tests/run, which gets it");
        let mut server = TestServer { child, port, directory };
        let end = Instant::now() + 10 * SECOND;
        while Instant::now() < end {
            if is_up(port) {
                return Some(server);
            }
            if server.child.try_wait().expect("the child's state").is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    pub(super) fn address(&self) -> Address {
        Address::parse(&format!("redis://127.0.0.1:{}", self.port)).expect("an address")
    }

    /// Connects as this user.
    pub(crate) fn connect(&self, user: &str) -> Servers {
        let target = Target::parse(&format!("redis://{user}127.0.0.1:{}", self.port)).expect("an address");
        target.connect(&Settings::new(TIMEOUTS, 1)).expect("a server")
    }

    pub(super) fn directory(&self) -> &PathBuf {
        &self.directory
    }

    /// Runs a command on its own connection.
    pub(crate) fn command(&self, words: &[&str]) -> Value {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).expect("a client");
        let mut con = client.get_connection().expect("a connection");
        redis::cmd(words[0]).arg(&words[1..]).query(&mut con).expect("a reply")
    }
}

/// An accepting port is not enough: a server answers once it listens everywhere.
fn is_up(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut [0]).is_ok()
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What a fake server does with a command.
pub(crate) enum Act {
    Say(String),
    SayAndHangUp(String),
    Nothing,
    HangUp,
    Pour(Stream),
}

/// An endless answer: a beginning, then the same bytes again and again until the client closes the connection.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(super) begins: String,
    pub(super) goes_on: String,
    pub(super) every: Duration,
    /// How many bytes the client has read; the operating system may buffer some of them.
    pub(super) poured: Arc<AtomicUsize>,
}

impl Stream {
    /// As fast as possible.
    pub(super) fn flood(begins: &str, goes_on: &str) -> Stream {
        Stream::every(Duration::ZERO, begins, &goes_on.repeat(10_000))
    }

    /// A byte at a time, often enough that no single read times out.
    pub(super) fn drip(begins: &str) -> Stream {
        Stream::every(SECOND / 50, begins, "x")
    }

    fn every(every: Duration, begins: &str, goes_on: &str) -> Stream {
        Stream { begins: begins.to_owned(), goes_on: goes_on.to_owned(), every, poured: Arc::default() }
    }

    /// The client read no more than a reply may have, and what sockets buffer.
    pub(super) fn was_ended(&self) {
        let poured = self.poured.load(Ordering::SeqCst);
        assert!(poured < 40_000_000, "{poured} bytes of {:?}", self.begins);
    }

    fn pour(&self, out: &mut TcpStream) -> std::io::Result<()> {
        out.write_all(self.begins.as_bytes())?;
        loop {
            out.write_all(self.goes_on.as_bytes())?;
            self.poured.fetch_add(self.goes_on.len(), Ordering::SeqCst);
            std::thread::sleep(self.every);
        }
    }
}

/// A server that answers the greeting and leaves the rest to the test.
pub(crate) struct FakeServer {
    port: u16,
    connections: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<Vec<String>>>>,
}

impl FakeServer {
    /// `act` gets the number of the connection (from 0) and the words of each command; [`polite`] answers those of a
    /// greeting.
    pub(crate) fn start(act: impl Fn(usize, &[String]) -> Act + Send + Sync + 'static) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let (connections, heard) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (count, notes, act) = (Arc::clone(&connections), Arc::clone(&heard), Arc::new(act));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (notes, act) = (Arc::clone(&notes), Arc::clone(&act));
                let act = move |words: &[String]| {
                    notes.lock().push(words.to_vec());
                    act(number, words)
                };
                std::thread::spawn(move || serve(stream.expect("a connection"), act));
            }
        });
        FakeServer { port, connections, heard }
    }

    /// Answers this command with these words, and the others as [`polite`].
    pub(super) fn answering(command: &'static str, reply: impl Into<String>) -> FakeServer {
        let reply = reply.into();
        FakeServer::start(move |_, words| match words[0].as_str() {
            word if word == command => Act::Say(reply.clone()),
            _ => polite(words),
        })
    }

    pub(crate) fn address(&self) -> Address {
        Address::parse(&format!("redis://127.0.0.1:{}", self.port)).expect("an address")
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections it has seen.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The commands received so far that begin with these words.
    pub(crate) fn asked(&self, beginning: &str) -> Vec<Vec<String>> {
        let mut asked = self.heard.lock().clone();
        asked.retain(|words| words.join(" ").starts_with(beginning));
        asked
    }
}

/// The answers to a greeting, and to ECHO.
pub(crate) fn polite(words: &[String]) -> Act {
    match words[0].as_str() {
        "PING" => Act::Say("+PONG\r\n".to_owned()),
        "ECHO" => Act::Say(format!("${}\r\n{}\r\n", words[1].len(), words[1])),
        _ => Act::Say("+OK\r\n".to_owned()),
    }
}

/// A text in a reply.
pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The answer to SUBSCRIBE.
pub(crate) fn confirmed(channel: &str) -> String {
    format!("*3\r\n$9\r\nsubscribe\r\n{}:1\r\n", bulk(channel))
}

/// What INFO says of a process that has been up for this many seconds.
pub(super) fn up_for(seconds: u64) -> String {
    bulk(&format!("# Server\r\nrun_id:{:040x}\r\nuptime_in_seconds:{seconds}\r\n", 7))
}

fn serve(mut out: TcpStream, act: impl Fn(&[String]) -> Act) {
    let (input, mut commands) = (out.try_clone().expect("a stream"), redis::Parser::new());
    while let Ok(command) = commands.parse_value(&input) {
        let words: Vec<String> = redis::from_redis_value(command).expect("words");
        let said = match act(&words) {
            Act::Say(reply) => out.write_all(reply.as_bytes()),
            Act::SayAndHangUp(reply) => {
                let _ = out.write_all(reply.as_bytes());
                return;
            }
            Act::Nothing => Ok(()),
            Act::HangUp => return,
            Act::Pour(stream) => stream.pour(&mut out),
        };
        if said.is_err() {
            return;
        }
    }
}
