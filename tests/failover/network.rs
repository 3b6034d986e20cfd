//! A network with a gate in front of each server and sentinel. Every connection of servers, sentinels and workers passes a
//! gate, which knows both ends. So any link can be cut and delayed, and a partition separates exactly the named nodes.
//!
//! A gate knows a worker by the user of its login, and a server or sentinel by the address that it connects from
//! (`bind-source-addr`; Linux has all of 127.0.0.0/8). A cut link drops nothing and tells neither end: what was sent arrives
//! when the link is mended, as TCP does it.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The password of all workers' users.
pub(crate) const PASSWORD: &str = "pw";
/// The user of the first worker; the others follow.
const USER: &str = "worker-";
/// The last part of the first server's and the first sentinel's source address.
const SERVERS_FROM: u8 = 10;
const SENTINELS_FROM: u8 = 30;

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Server(u8),
    Sentinel(u8),
    Worker(u8),
}

impl Node {
    /// Where this server's or sentinel's own connections come from.
    pub(crate) fn source(self) -> String {
        let last = match self {
            Node::Server(number) => SERVERS_FROM + number,
            Node::Sentinel(number) => SENTINELS_FROM + number,
            Node::Worker(_) => unreachable!("a worker is known by its user"),
        };
        Ipv4Addr::new(127, 0, 0, last).to_string()
    }

    fn from_source(source: IpAddr) -> Option<Node> {
        let IpAddr::V4(source) = source else { return None };
        let [127, 0, 0, last] = source.octets() else { return None };
        match last {
            SENTINELS_FROM.. => Some(Node::Sentinel(last - SENTINELS_FROM)),
            SERVERS_FROM.. => Some(Node::Server(last - SERVERS_FROM)),
            _ => None,
        }
    }

    /// The user that this worker logs in as.
    pub(crate) fn user(number: u8) -> String {
        format!("{USER}{number}")
    }

    /// The worker that sent this, which begins with its login: `AUTH user password` in the server's protocol.
    fn from_login(piece: &[u8]) -> Option<Node> {
        let text = String::from_utf8_lossy(piece);
        let mut lines = text.split("\r\n").skip(2);
        if lines.next()? != "AUTH" {
            return None;
        }
        Some(Node::Worker(lines.nth(1)?.strip_prefix(USER)?.parse().ok()?))
    }
}

/// The links between all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// These nodes reach each other and no other node.
    island: BTreeSet<Node>,
    /// These links are cut, whatever their direction.
    cut: Vec<[Node; 2]>,
    /// How long each piece of traffic takes.
    delay: Duration,
    ended: bool,
}

impl State {
    fn is_cut(&self, one: Node, other: Node) -> bool {
        self.island.contains(&one) != self.island.contains(&other)
            || self.cut.iter().any(|link| *link == [one, other] || *link == [other, one])
    }
}

impl Network {
    /// Separates these nodes from all others.
    pub(crate) fn separate(&self, island: &[Node]) {
        self.change(|state| state.island = island.iter().copied().collect());
    }

    /// Cuts the link between two nodes.
    pub(crate) fn cut(&self, one: Node, other: Node) {
        self.change(|state| state.cut.push([one, other]));
    }

    /// Delays every piece of traffic on every link, in each direction.
    pub(crate) fn delay(&self, time: Duration) {
        self.change(|state| state.delay = time);
    }

    /// Mends all links: what was held arrives now.
    pub(crate) fn heal(&self) {
        self.change(|state| *state = State { ended: state.ended, ..State::default() });
    }

    /// Ends all waiting at cut links.
    pub(crate) fn end(&self) {
        self.change(|state| state.ended = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks while the link is cut. Returns how long traffic on it takes.
    fn wait_for_link(&self, one: Node, other: Node) -> Duration {
        let mut state = self.state();
        while state.is_cut(one, other) && !state.ended {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.delay
    }
}

/// The address at which all others reach one node.
#[derive(Debug)]
pub(crate) struct Gate {
    port: u16,
    behind: Arc<AtomicU16>,
    ended: Arc<AtomicBool>,
}

impl Gate {
    /// Opens a gate for this node. Nothing passes until [`lead_to`](Gate::lead_to).
    pub(crate) fn open(network: &Network, node: Node) -> Gate {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (behind, ended) = (Arc::new(AtomicU16::new(0)), Arc::new(AtomicBool::new(false)));
        let gate = Gate { port, behind: Arc::clone(&behind), ended: Arc::clone(&ended) };
        let network = network.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                let (network, port) = (network.clone(), behind.load(Ordering::Acquire));
                // On a thread of its own: the client's first words decide who it is.
                thread::spawn(move || connect(&network, node, port, client));
            }
        });
        gate
    }

    /// The port of the process behind it.
    pub(crate) fn lead_to(&self, port: u16) {
        self.behind.store(port, Ordering::Release);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Ends the accepting thread.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// Serves one connection until either end closes it.
fn connect(network: &Network, node: Node, port: u16, mut client: TcpStream) {
    let Ok(source) = client.peer_addr() else { return };
    let mut first = vec![0; 4096];
    let from = match Node::from_source(source.ip()) {
        Some(from) => {
            first.clear();
            from
        }
        None => {
            let Ok(length) = client.read(&mut first) else { return };
            first.truncate(length);
            if first.is_empty() {
                return; // closed before it said anything
            }
            let Some(from) = Node::from_login(&first) else {
                // A link that no fault can reach would make every partition meaningless.
                let words = String::from_utf8_lossy(&first);
                eprintln!(
                    "{node:?} refuses a connection from {source} that does not begin with a login: {words:?}"
                );
                return;
            };
            from
        }
    };
    network.wait_for_link(from, node);
    // If the process behind the gate is gone, the client's connection ends at once.
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    if server.write_all(&first).is_err() {
        return;
    }
    let (Ok(client_again), Ok(server_again)) = (client.try_clone(), server.try_clone()) else { return };
    let network_again = network.clone();
    thread::spawn(move || pump(&network_again, [from, node], server_again, client_again));
    pump(network, [from, node], client, server);
}

/// Passes on what arrives, in the time that the link takes. An end that closes is passed on as well, once the link lets it
/// through.
fn pump(network: &Network, [one, other]: [Node; 2], mut from: TcpStream, mut to: TcpStream) {
    let Ok(source) = from.try_clone() else { return };
    let (pass_on, arrived) = channel::<(Instant, Vec<u8>)>();
    let network = network.clone();
    // On a thread of its own: while one piece is delayed, others arrive.
    thread::spawn(move || {
        for (at, piece) in arrived {
            let due = at + network.wait_for_link(one, other);
            thread::sleep(due.saturating_duration_since(Instant::now())); // the fault itself
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        network.wait_for_link(one, other);
        // An error means that an end is closed already, which is fine.
        let _ = source.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut buffer = [0; 65536];
    loop {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(length) if pass_on.send((Instant::now(), buffer[..length].to_vec())).is_err() => return,
            Ok(_) => {}
        }
    }
}
