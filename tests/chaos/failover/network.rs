//! A network with a gate in front of each server and sentinel. Every connection of servers, sentinels and workers passes a
//! gate, which knows both ends. So any link can be cut and delayed, and a partition separates exactly the named nodes.
//!
//! A gate knows a worker by the user of its login, and a server or sentinel by the address that it connects from
//! (`bind-source-addr`; Linux has all of 127.0.0.0/8). Both contain the number of the network, and a gate refuses those of
//! another one: a port may have been another network's before. A cut link drops nothing and tells neither end: what was sent
//! arrives when the link is mended, as TCP does it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The password of all workers' users.
pub(crate) const PASSWORD: &str = "canary";
/// What the users of all workers begin with; the network's number and the worker's follow.
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

/// The links between all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Tells its nodes from those of other networks.
    number: u16,
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
    /// How often each node's connections were dropped.
    drops: BTreeMap<Node, u64>,
    ended: bool,
}

impl State {
    fn is_cut(&self, one: Node, other: Node) -> bool {
        self.island.contains(&one) != self.island.contains(&other)
            || self.cut.iter().any(|link| *link == [one, other] || *link == [other, one])
    }
}

impl Network {
    pub(crate) fn new() -> Network {
        static OPENED: AtomicU16 = AtomicU16::new(0);
        // Another process may run networks as well.
        let first = process::id().to_le_bytes();
        let number =
            u16::from_le_bytes([first[0], first[1]]).wrapping_add(OPENED.fetch_add(1, Ordering::Relaxed));
        Network(Arc::new(Shared { number, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Where this server's or sentinel's own connections come from.
    pub(crate) fn source(&self, node: Node) -> String {
        let last = match node {
            Node::Server(number) => SERVERS_FROM + number,
            Node::Sentinel(number) => SENTINELS_FROM + number,
            Node::Worker(_) => unreachable!("a worker is known by its user"),
        };
        let [high, low] = self.0.number.to_be_bytes();
        Ipv4Addr::new(127, high, low, last).to_string()
    }

    fn node_by_source(&self, source: IpAddr) -> Option<Node> {
        let IpAddr::V4(source) = source else { return None };
        let [127, high, low, last] = source.octets() else { return None };
        match last {
            _ if u16::from_be_bytes([high, low]) != self.0.number => None,
            SENTINELS_FROM.. => Some(Node::Sentinel(last - SENTINELS_FROM)),
            SERVERS_FROM.. => Some(Node::Server(last - SERVERS_FROM)),
            _ => None,
        }
    }

    /// The user that this worker logs in as.
    pub(crate) fn user(&self, number: u8) -> String {
        format!("{}{number}", self.users())
    }

    fn users(&self) -> String {
        format!("{USER}{}-", self.0.number)
    }

    /// The worker that sent this, which begins with its login: `AUTH user password` in the server's protocol.
    fn worker_by_login(&self, piece: &[u8]) -> Option<Node> {
        let text = String::from_utf8_lossy(piece);
        let mut lines = text.split("\r\n").skip(2);
        if lines.next()? != "AUTH" {
            return None;
        }
        Some(Node::Worker(lines.nth(1)?.strip_prefix(&self.users())?.parse().ok()?))
    }

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
        self.change(|state| {
            let drops = std::mem::take(&mut state.drops);
            *state = State { ended: state.ended, drops, ..State::default() };
        });
    }

    /// What this node has sent, and what was sent to it, and is held at a cut link, never arrives.
    pub(crate) fn drop_held(&self, node: Node) {
        self.change(|state| *state.drops.entry(node).or_default() += 1);
    }

    fn drops(&self, ends: [Node; 2]) -> u64 {
        let state = self.state();
        ends.iter().filter_map(|end| state.drops.get(end)).sum()
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
                // On its own thread: the client's first words decide who it is.
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
    let from = match network.node_by_source(source.ip()) {
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
            let Some(from) = network.worker_by_login(&first) else {
                // A link that no fault can reach would make every partition meaningless.
                let words = String::from_utf8_lossy(&first);
                eprintln!(
                    "{node:?} refuses a connection from {source} that does not begin with a login of its network: {words:?}"
                );
                return;
            };
            from
        }
    };
    let drops = network.drops([from, node]);
    network.wait_for_link(from, node);
    if network.drops([from, node]) != drops {
        return;
    }
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

/// Passes on what arrives, in the time that the link takes; what arrives meanwhile is next. An end that closes is passed on as
/// well, once the link lets it through.
fn pump(network: &Network, [one, other]: [Node; 2], mut from: TcpStream, mut to: TcpStream) {
    let (mut buffer, drops) = ([0; 65536], network.drops([one, other]));
    loop {
        let length = from.read(&mut buffer).unwrap_or_default();
        thread::sleep(network.wait_for_link(one, other)); // the fault itself
        if length == 0 || network.drops([one, other]) != drops || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // An error means that an end is closed already, which is fine.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
