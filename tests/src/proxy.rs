//! A TCP proxy that stands between clients and a Redis server and does to the traffic what the test says: lets it pass,
//! delays it, swallows it, cuts it, or loses the very reply to a command that the server has carried out.
//!
//! What is said holds from the next bytes on, for connections that are there and for new ones. Bytes are looked at as
//! they arrive, in pieces: a command of a lock call and a pushed message are each one piece.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What a piece of the traffic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// From a client, on a connection for commands.
    Commands,
    /// From the server, on a connection for commands.
    Replies,
    /// From a client, on a connection that subscribes, beginning with the SUBSCRIBE.
    Subscriptions,
    /// A published message, on its way to a client.
    WakeUps,
    /// Whatever else the server says on a connection that subscribes: confirmations, signs of life.
    Confirmations,
}

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It goes on.
    Pass,
    /// It goes on after so long; what is behind it waits.
    Delay(Duration),
    /// It is read and forgotten; the connection stays.
    Swallow,
}

/// A running proxy. When it is dropped its connections are cut and its port is closed.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: u16,
    ended: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rules: HashMap<Traffic, Rule>,
    /// The reply to the next command that contains this text is lost.
    lose_reply_to: Option<Vec<u8>>,
    lost: u32,
    links: Vec<Arc<Link>>,
}

/// One client's connection and the one to the server that belongs to it.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    subscribes: AtomicBool,
    /// The next thing that the server says is lost, and the link with it.
    doomed: AtomicBool,
}

impl Proxy {
    /// Stands before the server at this port of 127.0.0.1.
    pub fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared { server, ended: AtomicBool::new(false), state: Mutex::default() });
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

    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// From now on this is done to that traffic.
    pub fn set(&self, traffic: Traffic, rule: Rule) {
        self.shared.state().rules.insert(traffic, rule);
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

    /// The next command that contains `text` reaches the server and is carried out; instead of its reply comes the end
    /// of the connection.
    pub fn lose_reply_to(&self, text: &str) {
        self.shared.state().lose_reply_to = Some(text.as_bytes().to_vec());
    }

    /// How many replies were lost in that way.
    pub fn lost(&self) -> u32 {
        self.shared.state().lost
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.cut();
        // Ends the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server that is gone is a connection that ends at once.
    fn link(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server)) else { return };
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("an option of TCP");
        }
        let (subscribes, doomed) = (AtomicBool::new(false), AtomicBool::new(false));
        let link = Arc::new(Link { client, server, subscribes, doomed });
        self.state().links.push(Arc::clone(&link));
        let pumps: [fn(&Shared, &Link); 2] = [Shared::pump_commands, Shared::pump_replies];
        for pump in pumps {
            let (shared, link) = (Arc::clone(self), Arc::clone(&link));
            thread::spawn(move || {
                pump(&shared, &link);
                link.cut(); // one direction that has ended ends the other
            });
        }
    }

    fn pump_commands(&self, link: &Link) {
        pump(&link.client, &link.server, |piece| {
            // Upper or lower case: both are spoken.
            if contains(&piece.to_ascii_lowercase(), b"subscribe") {
                link.subscribes.store(true, Ordering::Release);
            }
            let subscribes = link.subscribes.load(Ordering::Acquire);
            let mut state = self.state();
            if state.lose_reply_to.as_ref().is_some_and(|text| contains(piece, text)) {
                state.lose_reply_to = None;
                // Before the command goes on: its reply can't be quicker.
                link.doomed.store(true, Ordering::Release);
            }
            state.rule(if subscribes { Traffic::Subscriptions } else { Traffic::Commands })
        });
    }

    fn pump_replies(&self, link: &Link) {
        pump(&link.server, &link.client, |piece| {
            let mut state = self.state();
            if link.doomed.load(Ordering::Acquire) {
                state.lost += 1;
                drop(state);
                link.cut();
                return Rule::Swallow;
            }
            let traffic = match link.subscribes.load(Ordering::Acquire) {
                false => Traffic::Replies,
                true if contains(piece, b"\r\nmessage\r\n") => Traffic::WakeUps,
                true => Traffic::Confirmations,
            };
            state.rule(traffic)
        });
    }
}

impl State {
    fn rule(&self, traffic: Traffic) -> Rule {
        self.rules.get(&traffic).copied().unwrap_or(Rule::Pass)
    }
}

impl Link {
    fn cut(&self) {
        // An end that is closed already is what is wanted.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn pump(mut from: &TcpStream, mut to: &TcpStream, mut rule: impl FnMut(&[u8]) -> Rule) {
    let mut buffer = [0; 65536];
    loop {
        let piece = match from.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(length) => &buffer[..length],
        };
        match rule(piece) {
            Rule::Swallow => continue,
            Rule::Delay(time) => thread::sleep(time),
            Rule::Pass => {}
        }
        if to.write_all(piece).is_err() {
            return;
        }
    }
}

fn contains(piece: &[u8], text: &[u8]) -> bool {
    piece.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests;
