//! A TCP proxy between clients and a Redis or PostgreSQL server. As the test says, it passes traffic, delays it, holds it,
//! swallows it, cuts it, loses the reply to one executed command, falls silent with it, repeats a command later, or has it arrive late.
//!
//! A rule applies from the next bytes on, to existing and new connections. Traffic is handled in pieces as it
//! arrives. A command of a lock call is one piece, and so is a pushed message.

mod late;
mod replay;
mod rule;

use std::collections::HashMap;
use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use late::HeldBack;
use replay::Recording;
pub use rule::Rule;
use rule::pass;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// From a client, on a connection for commands.
    Commands,
    /// From the server, on a connection for commands.
    Replies,
    /// From a client, on a subscribing connection, starting with its SUBSCRIBE.
    Subscriptions,
    /// A published message on its way to a client.
    WakeUps,
    /// Everything else from the server on a subscribing connection: confirmations and pings.
    Confirmations,
}

impl Traffic {
    /// Everything.
    pub const ALL: [Traffic; 5] = [
        Traffic::Commands,
        Traffic::Replies,
        Traffic::Subscriptions,
        Traffic::WakeUps,
        Traffic::Confirmations,
    ];
    /// From the server.
    pub const INWARD: [Traffic; 3] = [Traffic::Replies, Traffic::WakeUps, Traffic::Confirmations];
    /// From the clients.
    pub const OUTWARD: [Traffic; 2] = [Traffic::Commands, Traffic::Subscriptions];
}

/// A running proxy. Dropping it cuts its connections and closes its port.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: AtomicU16,
    ended: AtomicBool,
    state: Mutex<State>,
    /// The rules have changed, or the proxy ends.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rules: HashMap<Traffic, Rule>,
    awaited: Option<Awaited>,
    lost: u32,
    recording: Option<Recording>,
    /// The next commands that contain these texts arrive so much later.
    hold_back: Vec<HeldBack>,
    /// How many commands are on their way.
    held_back: usize,
    /// Commands that reach the server under another name of the same length.
    renamed: Vec<(Vec<u8>, Vec<u8>)>,
    links: Vec<Arc<Link>>,
}

/// A command after which something happens.
#[derive(Debug)]
struct Awaited {
    /// What it contains.
    text: Vec<u8>,
    /// How many such commands come before it.
    after: usize,
    /// Its reply is held, and all others from then on; else its reply is lost.
    silences: bool,
}

/// One client's connection, and the matching one to the server.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    subscribes: AtomicBool,
    /// The next reply from the server is lost, and the link is cut.
    doomed: AtomicBool,
    /// The link is dead: nothing passes.
    forgotten: AtomicBool,
    /// The server's end stays open: something arrives on it later.
    expects_late: AtomicBool,
}

impl Proxy {
    /// Starts a proxy for the server at this port of 127.0.0.1.
    pub fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            server: AtomicU16::new(server),
            ended: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.ended.load(Ordering::Acquire) {
                    return;
                }
                accepting.link(client);
            }
        });
        Proxy { port, shared }
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL for clients of Redis.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The server's URL, with this proxy in its place.
    pub fn in_place_of_server(&self, url: &str) -> String {
        url.replace(&format!(":{}", self.shared.server()), &format!(":{}", self.port))
    }

    /// New connections lead to the server at this port, and those that are open stay where they are: a DNS name does so, or a balancer that
    /// asks for the master.
    pub fn lead_to(&self, server: u16) {
        self.shared.server.store(server, Ordering::Release);
    }

    /// Sets the rule for this traffic.
    pub fn set(&self, traffic: Traffic, rule: Rule) {
        self.set_all(&[traffic], rule);
    }

    /// Sets the rule for several at the same moment: [`Traffic::ALL`], [`Traffic::INWARD`], [`Traffic::OUTWARD`].
    pub fn set_all(&self, traffic: &[Traffic], rule: Rule) {
        let mut state = self.shared.state();
        state.rules.extend(traffic.iter().map(|traffic| (*traffic, rule)));
        self.shared.changed.notify_all();
    }

    /// From now on this command of clients reaches the server under a name of the same length. So a server that has renamed a command
    /// refuses it in scripts alone.
    pub fn rename(&self, command: &str, name: &str) {
        let word = |word: &str| format!("${}\r\n{word}\r\n", word.len()).into_bytes();
        self.shared.state().renamed.push((word(command), word(name)));
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.shared.state().links.drain(..).for_each(|link| link.cut());
    }

    /// Cuts the connections that subscribe.
    pub fn cut_subscriptions(&self) {
        let state = self.shared.state();
        state.links.iter().filter(|link| link.subscribes.load(Ordering::Acquire)).for_each(|link| link.cut());
    }

    /// Forgets every existing connection, as a router does with idle ones. Nothing passes on them any more, and
    /// neither end is told. New connections work.
    pub fn forget_connections(&self) {
        self.shared.state().links.iter().for_each(|link| link.forgotten.store(true, Ordering::Release));
    }

    /// The next command that contains `text`, after this many others, is executed by the server. Instead of its reply, the connection ends.
    pub fn lose_later_reply_to(&self, text: &str, after: usize) {
        let text = text.as_bytes().to_vec();
        self.shared.state().awaited = Some(Awaited { text, after, silences: false });
    }

    /// The next command that contains `text`, after this many others, is executed by the server. From its reply on all traffic of the
    /// server is held, as by [`Rule::Hold`].
    pub fn silence_from(&self, text: &str, after: usize) {
        let text = text.as_bytes().to_vec();
        self.shared.state().awaited = Some(Awaited { text, after, silences: true });
    }

    /// Whether the command for which [`silence_from`](Proxy::silence_from) waits has come.
    pub fn is_silent(&self) -> bool {
        self.shared.state().rules.get(&Traffic::Replies) == Some(&Rule::Hold)
    }

    /// How many replies were lost in this way.
    pub fn lost(&self) -> u32 {
        self.shared.state().lost
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.cut();
        self.shared.changed.notify_all();
        // Ends the accepting thread.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server(&self) -> u16 {
        self.server.load(Ordering::Acquire)
    }

    /// If the server is gone, the client's connection ends at once.
    fn link(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server())) else { return };
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("an option of TCP");
        }
        let [subscribes, doomed, forgotten, expects_late] = [false; 4].map(AtomicBool::new);
        let link = Arc::new(Link { client, server, subscribes, doomed, forgotten, expects_late });
        self.state().links.push(Arc::clone(&link));
        type Pump = fn(&Arc<Shared>, &Arc<Link>);
        let pumps: [Pump; 2] = [Shared::pump_commands, Shared::pump_replies];
        for pump in pumps {
            let (shared, link) = (Arc::clone(self), Arc::clone(&link));
            thread::spawn(move || {
                pump(&shared, &link);
                link.cut(); // the end of one direction ends the other
                shared.state().links.retain(|other| !Arc::ptr_eq(other, &link));
            });
        }
    }

    fn pump_commands(self: &Arc<Self>, link: &Arc<Link>) {
        self.pump(&link.client, &link.server, &link.forgotten, |piece| {
            // Clients may use upper or lower case. With its end, since scripts have the word in comments.
            if contains(&piece.to_ascii_lowercase(), b"subscribe\r\n") || contains(piece, b"listen fl_") {
                link.subscribes.store(true, Ordering::Release);
            }
            self.take_late(link, piece);
            let subscribes = link.subscribes.load(Ordering::Acquire);
            let mut state = self.state();
            state.rename(piece);
            // Before the command passes on: its reply can't be faster.
            match state.awaited.take_if(|awaited| awaited.is(piece)) {
                Some(Awaited { silences: true, .. }) => {
                    state.rules.extend(Traffic::INWARD.map(|traffic| (traffic, Rule::Hold)));
                }
                Some(_) => link.doomed.store(true, Ordering::Release),
                None => {}
            }
            if let Some(recording) = &mut state.recording {
                recording.hear(piece);
            }
            Some(if subscribes { Traffic::Subscriptions } else { Traffic::Commands })
        });
    }

    fn pump_replies(self: &Arc<Self>, link: &Arc<Link>) {
        self.pump(&link.server, &link.client, &link.forgotten, |piece| {
            let mut state = self.state();
            if link.doomed.load(Ordering::Acquire) {
                state.lost += 1;
                drop(state);
                link.cut();
                return None;
            }
            Some(match link.subscribes.load(Ordering::Acquire) {
                false => Traffic::Replies,
                // PostgreSQL's begins with an A, which no reply of Redis does.
                true if piece.starts_with(b"A") || contains(piece, b"\r\nmessage\r\n") => Traffic::WakeUps,
                true => Traffic::Confirmations,
            })
        });
    }

    /// Runs until an end is closed, or `look` stops it.
    fn pump(
        &self,
        mut from: &TcpStream,
        to: &TcpStream,
        forgotten: &AtomicBool,
        mut look: impl FnMut(&mut [u8]) -> Option<Traffic>,
    ) {
        let mut buffer = [0; 65536];
        loop {
            let piece = match from.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(length) => &mut buffer[..length],
            };
            let Some(traffic) = look(piece) else { return };
            if forgotten.load(Ordering::Acquire) {
                continue;
            }
            if pass(piece, to, self.rule(traffic)).is_err() {
                return;
            }
        }
    }

    /// The rule for this traffic. Blocks while it is held.
    fn rule(&self, traffic: Traffic) -> Rule {
        let mut state = self.state();
        loop {
            match state.rules.get(&traffic).copied().unwrap_or(Rule::Pass) {
                Rule::Hold if self.ended.load(Ordering::Acquire) => return Rule::Swallow,
                Rule::Hold => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                rule => return rule,
            }
        }
    }
}

impl State {
    fn rename(&self, piece: &mut [u8]) {
        for (from, to) in &self.renamed {
            let mut at = 0;
            while let Some(found) = piece[at..].windows(from.len()).position(|window| window == from) {
                at += found + from.len();
                piece[at - from.len()..at].copy_from_slice(to);
            }
        }
    }
}

impl Awaited {
    /// Whether this is the command; if not, it may be one of those before it.
    fn is(&mut self, piece: &[u8]) -> bool {
        let counts = self.text.is_empty() || contains(piece, &self.text);
        let is_it = counts && self.after == 0;
        self.after = self.after.saturating_sub(usize::from(counts));
        is_it
    }
}

impl Link {
    fn cut(&self) {
        // An error means that an end is already closed, which is fine.
        let _ = self.client.shutdown(Shutdown::Both);
        if !self.expects_late.load(Ordering::Acquire) {
            let _ = self.server.shutdown(Shutdown::Both);
        }
    }
}

fn contains(piece: &[u8], text: &[u8]) -> bool {
    piece.windows(text.len()).any(|window| window == text)
}
