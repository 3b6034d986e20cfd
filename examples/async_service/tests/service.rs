//! Two processes of the service before one API: no sixth call reaches it, and SIGTERM cuts no call off.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually, look_until, signals};

const PROGRAM: &str = env!("CARGO_BIN_EXE_async-service");
/// The limit for anything here, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

struct Service {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    address: String,
}

impl Service {
    fn start(server: &RedisServer, api: Option<&str>) -> (Service, String) {
        let mut command = Command::new(PROGRAM);
        command.args(["--redis", &server.url(), "--listen", "127.0.0.1:0"]);
        command.args(api.into_iter().flat_map(|api| ["--api", api]));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut says = |what: &str| said.next().unwrap().unwrap().strip_prefix(what).unwrap().to_owned();
        let api = api.map_or_else(|| says("the API is at "), str::to_owned);
        let address = says("listens on ");
        (Service { child, said, address }, api)
    }

    /// Ends by SIGTERM, with no call cut off.
    fn ends(mut self) {
        signals::terminate(&self.child);
        let ended = look_until(SOON, || self.child.try_wait().unwrap());
        assert!(ended.unwrap_or_else(|| panic!("it does not end")).success());
        assert_eq!(self.said.next().unwrap().unwrap(), "ends, 0 calls were cut off");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status of a report; none if the service no longer listens.
fn report(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET /report HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split(' ').nth(1)?.to_owned())
}

/// How often each status was the answer to twenty callers, each of which asks so often.
fn callers(address: &str, reports: usize) -> thread::JoinHandle<BTreeMap<String, usize>> {
    let address = address.to_owned();
    thread::spawn(move || {
        let ask = || (0..reports).map_while(|_| report(&address)).collect::<Vec<_>>();
        let all: Vec<String> = thread::scope(|scope| {
            let callers: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
            callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
        });
        let mut counts = BTreeMap::new();
        all.into_iter().for_each(|status| *counts.entry(status).or_default() += 1);
        counts
    })
}

/// Two processes never make a sixth call together, and end without cutting a call off.
#[test]
fn two_processes_never_make_a_sixth_call() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let (one, api) = Service::start(&server, None);
    let (other, _) = Service::start(&server, Some(&api));

    let (at_one, at_other) = (callers(&one.address, 10), callers(&other.address, 1000));
    let in_queue = || server.query::<u64>(&["ZCARD", "fairlock_queue:{lock:example-service}"]);
    eventually("requests of both stand in the queue", || in_queue() > 25);
    let ended = Instant::now();
    other.ends();
    assert!(
        ended.elapsed() < Duration::from_secs(10),
        "it waits for no request that waits: {:?}",
        ended.elapsed()
    );
    let at_other = at_other.join().unwrap();
    let kinds: Vec<&str> = at_other.keys().map(String::as_str).collect();
    assert!(matches!(kinds[..], ["200", "503"] | ["503"]), "{at_other:?}");
    assert_eq!(at_one.join().unwrap(), BTreeMap::from([("200".to_owned(), 200)]));

    one.ends();
    assert_no_residue(&server, &[]);
}
