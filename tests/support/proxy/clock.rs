//! A server's clock as its clients hear it: one that is stepped forward said an earlier time before.

use std::time::Duration;

use super::{Proxy, State};

/// How the reply to TIME begins: then come ten digits of seconds, and the microseconds.
const TIME: &[u8] = b"*2\r\n$10\r\n";
const DIGITS: usize = 10;

impl Proxy {
    /// From now on clients hear that the server's clock is so many whole seconds behind what it is.
    pub fn set_clock_behind(&self, by: Duration) {
        self.shared.state().clock_behind = by;
    }
}

impl State {
    /// Changes the replies to TIME in a piece from the server.
    pub(super) fn turn_back(&self, piece: &mut [u8]) {
        if self.clock_behind.is_zero() {
            return;
        }
        let places = piece.windows(TIME.len()).enumerate().filter(|(_, window)| *window == TIME);
        let places: Vec<usize> = places.map(|(at, _)| at + TIME.len()).collect();
        for at in places {
            let Some(digits) = piece.get_mut(at..at + DIGITS) else { continue };
            let text = std::str::from_utf8(digits).unwrap_or_default();
            let Ok(seconds) = text.parse::<u64>() else { continue };
            digits.copy_from_slice(format!("{:010}", seconds - self.clock_behind.as_secs()).as_bytes());
        }
    }
}
