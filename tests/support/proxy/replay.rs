//! Repeating commands, as a network or a middlebox that retries may do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{Proxy, contains};

/// The commands recorded for repeating.
#[derive(Debug)]
pub(super) struct Recording {
    text: Vec<u8>,
    heard: Vec<Vec<u8>>,
}

impl Recording {
    pub(super) fn hear(&mut self, piece: &[u8]) {
        if contains(piece, &self.text) {
            self.heard.push(piece.to_vec());
        }
    }
}

impl Proxy {
    /// From now on, records each piece from a client that contains `text`. Forgets earlier recordings.
    pub fn record(&self, text: &str) {
        self.shared.state().recording = Some(Recording { text: text.as_bytes().to_vec(), heard: Vec::new() });
    }

    /// The recorded pieces, in order.
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        self.shared.state().recording.as_ref().map_or_else(Vec::new, |recording| recording.heard.clone())
    }

    /// Sends a piece to the server again on its own connection, and returns the answer.
    pub fn replay(&self, piece: &[u8]) -> String {
        let mut server =
            TcpStream::connect(("127.0.0.1", self.shared.server())).expect("the server is there");
        server.set_read_timeout(Some(Duration::from_secs(5))).expect("an option of TCP");
        server.write_all(piece).expect("the server reads");
        let mut answer = [0; 65536];
        let length = server.read(&mut answer).expect("the server answers in time");
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }
}
