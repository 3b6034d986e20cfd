//! Looks up a host's addresses within a deadline; the operating system's look-up has none.
//!
//! A look-up runs on its own thread (`fairlock-dns`), at most one for a host, and all callers that connect to the host wait for
//! this thread. If the name server is silent, the thread stays until the system gives up, 10 to 28 seconds with common settings.
//! The thread holds nothing but the host's entry here.
//!
//! A prompt answer counts, even that there is no such host: the server may have moved, and its old address may belong to
//! a replica now, or to another system. Only without a prompt answer do the last known addresses count; from then on
//! they count at once, until the name server is quick again.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long the name server has to answer if addresses are known.
const SOON: Duration = Duration::from_millis(200);
/// The most hosts to remember: a cluster whose nodes come and go under new names must not fill the memory.
const MOST: usize = 256;

/// Asks for a host's addresses, without a time limit; the port means nothing.
type LookUp = Box<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// The known hosts.
pub(crate) struct Resolver {
    look_up: LookUp,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
}

#[derive(Default)]
struct Host {
    state: Mutex<ResolverState>,
    /// Signals the end of a look-up.
    ended: Condvar,
}

#[derive(Default)]
struct ResolverState {
    /// A look-up is under way.
    looking: bool,
    /// How many have ended, and why the last one failed, if it did.
    ended: u64,
    failed: Option<String>,
    /// The addresses from the last successful look-up.
    known: Vec<SocketAddr>,
    /// The name server was late, and has not answered since.
    slow: bool,
}

impl Resolver {
    /// The operating system's, shared by the process: one look-up a host, however many backends use it.
    pub(crate) fn system() -> &'static Resolver {
        static NAMES: LazyLock<Resolver> =
            LazyLock::new(|| Resolver::new(|host| Ok((host, 0).to_socket_addrs()?.collect())));
        &NAMES
    }

    pub(crate) fn new(
        look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Resolver {
        Resolver { look_up: Box::new(look_up), hosts: Mutex::default() }
    }

    /// The addresses of a host, at least one.
    ///
    /// # Errors
    /// In words: there is no such host, or no answer until then.
    pub(crate) fn addresses(
        &'static self,
        host: &str,
        port: u16,
        until: Instant,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let mut found = self.ask(host, until)?;
        found.iter_mut().for_each(|found| found.set_port(port));
        Ok(found)
    }

    fn ask(&'static self, name: &str, until: Instant) -> io::Result<Vec<SocketAddr>> {
        let host = self.host(name);
        let mut state = host.state.lock();
        if !state.looking {
            self.start(name, &host, &mut state)?;
        }
        let (before, until) = (state.ended, state.patience(Instant::now(), until));
        host.ended.wait_while_until(&mut state, |state| state.ended == before, until);
        if state.ended != before {
            return match &state.failed {
                None => Ok(state.known.clone()),
                Some(why) => Err(io::Error::other(why.clone())),
            };
        }
        state.slow = true;
        if state.known.is_empty() {
            return Err(io::Error::other("the host's name was not looked up in time"));
        }
        Ok(state.known.clone())
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        if let Some(host) = hosts.get(name) {
            return Arc::clone(host);
        }
        if hosts.len() >= MOST {
            // A host with a running look-up stays, so that it gets no second thread.
            hosts.retain(|_, host| host.state.lock().looking);
        }
        Arc::clone(hosts.entry(name.to_owned()).or_default())
    }

    fn start(&'static self, name: &str, host: &Arc<Host>, state: &mut ResolverState) -> io::Result<()> {
        let (name, host) = (name.to_owned(), Arc::clone(host));
        let look_up = move || {
            let began = Instant::now();
            let found = (self.look_up)(&name);
            let mut state = host.state.lock();
            state.looking = false;
            state.ended += 1;
            state.slow = began.elapsed() > SOON;
            match found {
                Ok(found) if found.is_empty() => {
                    state.failed = Some("the host's name has no address".to_owned());
                }
                Ok(found) => (state.known, state.failed) = (found, None),
                Err(error) => state.failed = Some(format!("the host's name is not known ({error})")),
            }
            drop(state);
            host.ended.notify_all();
        };
        let thread = thread::Builder::new().name("fairlock-dns".to_owned()).spawn(look_up);
        thread.map_err(|error| {
            io::Error::other(format!("can't start a thread to look up the host's name ({error})"))
        })?;
        // The thread ends the look-up under the mutex that is held here, so after this.
        state.looking = true;
        Ok(())
    }
}

impl ResolverState {
    /// How long to wait for the look-up.
    fn patience(&self, now: Instant, until: Instant) -> Instant {
        match (self.known.is_empty(), self.slow) {
            (true, _) => until,
            (false, true) => now,
            // Half of the time is left for connecting.
            (false, false) => now + SOON.min(until.saturating_duration_since(now) / 2),
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert!(asked.elapsed() >= SOON, "{:?}", asked.elapsed());
        let asked = Instant::now();
        for _ in 0..1000 {
            assert_eq!(name_server.addresses(10 * SECOND), known);
        }
        assert!(asked.elapsed() < 500 * SOON, "each waits a moment: {:?}", asked.elapsed());
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
        assert_eq!(state.patience(now, now + SOON), now + SOON / 2);
        assert_eq!(state.patience(now, now + 10 * SOON), now + SOON);
    }

    #[test]
    fn addresses_are_not_looked_up_and_names_do_not_fill_the_memory() {
        let names: &'static Resolver = Box::leak(Box::new(Resolver::new(|_| Ok(vec![at("::1", 0)]))));
        let found = |names, host: &str| addresses(names, host, 5, 10 * SECOND);
        assert_eq!(found(names, "10.1.2.3"), Ok(vec![at("10.1.2.3", 5)]));
        assert_eq!(found(names, "::2"), Ok(vec![at("::2", 5)]));
        assert!(names.hosts.lock().is_empty());
        for number in 0..3 * MOST {
            assert_eq!(found(names, &format!("node-{number}")), Ok(vec![at("::1", 5)]));
            let known = names.hosts.lock().len();
            assert!(known <= MOST && (known == number + 1 || number >= MOST), "{known} after {number}");
        }
        let none: &'static Resolver = Box::leak(Box::new(Resolver::new(|_| Ok(Vec::new()))));
        assert_eq!(found(none, "a.host"), Err("the host's name has no address".to_owned()));
    }
}
