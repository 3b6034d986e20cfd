//! Commands that arrive late: a network may hold bytes back for minutes, while their sender repeats them on another connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Link, Proxy, Shared, State, contains};

/// How long the server's answer is waited for, which nobody hears.
const ANSWER: Duration = Duration::from_secs(5);

/// A command that is to be held back.
#[derive(Debug)]
pub(super) struct HeldBack {
    text: Vec<u8>,
    by: Duration,
    arrives: Arrives,
}

/// Where it arrives.
#[derive(Clone, Copy, Debug)]
enum Arrives {
    /// On a connection for itself: each command means the same on any.
    Alone,
    /// On the connection that it was sent on: it is part of a session.
    InItsSession,
}

impl Proxy {
    /// The next command that contains `text` gets no answer, and reaches the server so much later, on its own connection.
    /// Nothing more passes on the connection that it came on, and neither end is told.
    pub fn hold_back(&self, text: &str, by: Duration) {
        let text = text.as_bytes().to_vec();
        self.shared.state().hold_back.push(HeldBack { text, by, arrives: Arrives::Alone });
    }

    /// The same for a server with sessions: what is held back reaches the server on its own connection, which ends at the
    /// server only after that, also if the client has closed it.
    pub fn hold_back_in_session(&self, bytes: &[u8], by: Duration) {
        let text = bytes.to_vec();
        self.shared.state().hold_back.push(HeldBack { text, by, arrives: Arrives::InItsSession });
    }

    /// How many commands are on their way.
    pub fn held_back(&self) -> usize {
        self.shared.state().held_back
    }
}

impl State {
    /// Whether and how this piece is to be held back.
    fn late(&mut self, piece: &[u8]) -> Option<HeldBack> {
        let at = self.hold_back.iter().position(|held| contains(piece, &held.text))?;
        self.held_back += 1;
        Some(self.hold_back.swap_remove(at))
    }
}

impl Shared {
    /// Takes a piece out of the traffic, if it is to arrive late.
    pub(super) fn take_late(self: &Arc<Self>, link: &Arc<Link>, piece: &[u8]) {
        let Some(HeldBack { by, arrives, .. }) = self.state().late(piece) else { return };
        link.expects_late.store(matches!(arrives, Arrives::InItsSession), Ordering::Release);
        link.forgotten.store(true, Ordering::Release);
        let (shared, link, piece) = (Arc::clone(self), Arc::clone(link), piece.to_vec());
        thread::spawn(move || {
            let is_time = shared.is_time(Instant::now() + by);
            match arrives {
                Arrives::Alone if is_time => shared.deliver_late(&piece),
                Arrives::Alone => {}
                Arrives::InItsSession => {
                    if is_time {
                        // The server reads it before it sees the end. Nobody hears the answer.
                        let _ = (&link.server).write_all(&piece);
                    }
                    link.expects_late.store(false, Ordering::Release);
                    link.cut();
                }
            }
            shared.state().held_back -= 1;
        });
    }

    /// Waits until then, unless the proxy ends: then another server may have the port.
    fn is_time(&self, at: Instant) -> bool {
        let mut state = self.state();
        while !self.ended.load(Ordering::Acquire) {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    fn deliver_late(&self, piece: &[u8]) {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", self.server())) else { return };
        // An error means that the server is gone.
        let _ = server.set_read_timeout(Some(ANSWER));
        if server.write_all(piece).is_ok() {
            let _ = server.read(&mut [0; 4096]);
        }
    }
}
