//! How long a look-up is waited for, which addresses count, and what stays known.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A name server that passes on the answers of a test, and is silent while there are none.
struct NameServer {
    names: &'static Resolver,
    asked: Arc<AtomicUsize>,
    answers: Sender<io::Result<Vec<SocketAddr>>>,
}

impl NameServer {
    fn start() -> NameServer {
        let (answers, given): (_, Receiver<io::Result<Vec<SocketAddr>>>) = channel();
        let (asked, given) = (Arc::new(AtomicUsize::new(0)), Mutex::new(given));
        let count = Arc::clone(&asked);
        let names = Resolver::new(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            given.lock().recv().unwrap_or_else(|_| Err(io::Error::other("the test is over")))
        });
        NameServer { names: Box::leak(Box::new(names)), asked, answers }
    }

    fn says(&self, ip: &str) {
        self.answers.send(Ok(vec![at(ip, 0)])).expect("it listens");
    }

    fn says_no(&self) {
        self.answers.send(Err(io::Error::other("no such name"))).expect("it listens");
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// A look-up is another thread, which may begin after the call that needs it has ended.
    fn is_asked(&self, times: usize) {
        let end = Instant::now() + 120 * SECOND;
        while self.asked() < times {
            assert!(Instant::now() < end, "{} of {times}", self.asked());
            thread::yield_now();
        }
        assert_eq!(self.asked(), times);
    }

    /// Whether it is waited for when it says this address at once: on a busy machine it may be late.
    fn is_prompt(&self, number: u8) -> bool {
        let ip = format!("10.0.0.{number}");
        self.says(&ip);
        let found = self.addresses(10 * SECOND);
        self.is_done();
        found == Ok(vec![at(&ip, 7)])
    }

    fn addresses(&self, time: Duration) -> Result<Vec<SocketAddr>, String> {
        addresses(self.names, "a.host", 7, time)
    }

    /// Waits until no look-up runs.
    fn is_done(&self) {
        let (host, end) = (self.names.host("a.host"), Instant::now() + 120 * SECOND);
        let mut state = host.state.lock();
        while state.looking {
            assert!(!host.ended.wait_until(&mut state, end).timed_out(), "it goes on");
        }
    }
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

/// Errors have no equality, but their words have.
fn addresses(
    names: &'static Resolver,
    host: &str,
    port: u16,
    time: Duration,
) -> Result<Vec<SocketAddr>, String> {
    names.addresses(host, port, Instant::now() + time).map_err(|error| error.to_string())
}

/// A silent name server costs each call its time, and one thread in all.
#[test]
fn a_silent_name_server_costs_one_thread_in_all() {
    let name_server = NameServer::start();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let late = "the host's name was not looked up in time".to_owned();
                assert_eq!(name_server.addresses(SECOND / 2), Err(late));
            });
        }
    });
    name_server.is_asked(1);
    // The late answer is kept, so that the next call has it although the server is silent again.
    name_server.says("127.0.0.1");
    name_server.is_done();
    assert!(name_server.names.host("a.host").state.lock().slow);
    assert_eq!(name_server.addresses(SECOND / 2), Ok(vec![at("127.0.0.1", 7)]));
    name_server.is_asked(2);
}

#[test]
fn a_name_server_that_falls_silent_costs_a_moment_once() {
    let name_server = NameServer::start();
    name_server.says("10.0.0.1");
    let known = Ok(vec![at("10.0.0.1", 7)]);
    assert_eq!(name_server.addresses(10 * SECOND), known);
    let asked = Instant::now();
    assert_eq!(name_server.addresses(10 * SECOND), known);
    assert!(asked.elapsed() >= PROMPTLY, "{:?}", asked.elapsed());
    let asked = Instant::now();
    for _ in 0..1000 {
        assert_eq!(name_server.addresses(10 * SECOND), known);
    }
    assert!(asked.elapsed() < 500 * PROMPTLY, "each waits a moment: {:?}", asked.elapsed());
    name_server.is_asked(2);
    // The system gives up and is asked again, by one thread; the addresses stay.
    name_server.says_no();
    name_server.is_done();
    assert_eq!(name_server.addresses(10 * SECOND), known);
    assert_eq!(name_server.addresses(10 * SECOND), known);
    name_server.is_asked(3);
}

#[test]
fn a_name_server_that_is_quick_again_is_waited_for() {
    let name_server = NameServer::start();
    let known = |ip| Ok(vec![at(ip, 7)]);
    name_server.says("10.0.0.1");
    assert_eq!(name_server.addresses(10 * SECOND), known("10.0.0.1"));
    assert_eq!(name_server.addresses(10 * SECOND), known("10.0.0.1"), "it is late");
    name_server.says("10.0.0.1");
    name_server.is_done();
    // Nobody waits for this prompt answer.
    name_server.says("10.0.0.2");
    assert!(name_server.addresses(10 * SECOND).is_ok());
    name_server.is_done();
    assert!((3..20).any(|number| name_server.is_prompt(number)));
}

#[test]
fn a_prompt_answer_counts_more_than_known_addresses() {
    let name_server = NameServer::start();
    assert!(name_server.is_prompt(1) && (2..20).any(|number| name_server.is_prompt(number)));
    let error = (0..20).find_map(|_| {
        name_server.says_no();
        let error = name_server.addresses(10 * SECOND).err();
        name_server.is_done();
        error
    });
    assert_eq!(error.as_deref(), Some("the host's name is not known (no such name)"));
}

#[test]
fn half_of_a_short_time_is_left_for_connecting() {
    let (known, now) = (vec![at("10.0.0.1", 7)], Instant::now());
    let state = ResolverState { known, ..ResolverState::default() };
    assert_eq!(state.patience(now, now + PROMPTLY), now + PROMPTLY / 2);
    assert_eq!(state.patience(now, now + 10 * PROMPTLY), now + PROMPTLY);
}

#[test]
fn addresses_are_not_looked_up_and_names_do_not_fill_the_memory() {
    let names: &'static Resolver = Box::leak(Box::new(Resolver::new(|_| Ok(vec![at("::1", 0)]))));
    let found = |names, host: &str| addresses(names, host, 5, 10 * SECOND);
    assert_eq!(found(names, "10.1.2.3"), Ok(vec![at("10.1.2.3", 5)]));
    assert_eq!(found(names, "::2"), Ok(vec![at("::2", 5)]));
    assert!(names.hosts.lock().is_empty());
    for number in 0..3 * MOST_HOSTS {
        assert_eq!(found(names, &format!("node-{number}")), Ok(vec![at("::1", 5)]));
        let known = names.hosts.lock().len();
        assert!(
            known <= MOST_HOSTS && (known == number + 1 || number >= MOST_HOSTS),
            "{known} after {number}"
        );
    }
    let none: &'static Resolver = Box::leak(Box::new(Resolver::new(|_| Ok(Vec::new()))));
    assert_eq!(found(none, "a.host"), Err("the host's name has no address".to_owned()));
}
