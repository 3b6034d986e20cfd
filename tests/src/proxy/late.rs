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

impl Proxy {
    /// The next command that contains `text` gets no answer, and reaches the server so much later, on its own connection.
    /// Nothing more passes on the connection that it came on, and neither end is told.
    pub fn hold_back(&self, text: &str, by: Duration) {
        self.shared.state().hold_back.push((text.as_bytes().to_vec(), by));
    }

    /// How many commands are on their way.
    pub fn held_back(&self) -> usize {
        self.shared.state().held_back
    }
}

impl State {
    /// By how much this piece is to be held back.
    fn delay_of(&mut self, piece: &[u8]) -> Option<Duration> {
        let at = self.hold_back.iter().position(|(text, _)| contains(piece, text))?;
        self.held_back += 1;
        Some(self.hold_back.swap_remove(at).1)
    }
}

impl Shared {
    /// Takes a piece out of the traffic, if it is to arrive late.
    pub(super) fn take_late(self: &Arc<Self>, link: &Link, piece: &[u8]) {
        let Some(by) = self.state().delay_of(piece) else { return };
        link.forgotten.store(true, Ordering::Release);
        let (shared, piece) = (Arc::clone(self), piece.to_vec());
        thread::spawn(move || {
            shared.deliver_late(&piece, Instant::now() + by);
            shared.state().held_back -= 1;
        });
    }

    fn deliver_late(&self, piece: &[u8], at: Instant) {
        let mut state = self.state();
        loop {
            if self.ended.load(Ordering::Acquire) {
                return; // another server may have the port by then
            }
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", self.server)) else { return };
        // An error means that the server is gone.
        let _ = server.set_read_timeout(Some(ANSWER));
        if server.write_all(piece).is_ok() {
            let _ = server.read(&mut [0; 4096]);
        }
    }
}
