//! The rules for traffic: how a piece passes.

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// A rule for traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It passes.
    Pass,
    /// It passes after this delay, and later traffic waits behind it.
    Delay(Duration),
    /// It is read and dropped, and the connection stays. TCP never does this, so the next reply answers a later
    /// command.
    Swallow,
    /// It is held until the rule changes, and then passes. This is a network that drops everything without telling
    /// either end, and is repaired later.
    Hold,
    /// It passes at this many bytes a second.
    Slow(u32),
}

pub(super) fn pass(piece: &[u8], mut to: &TcpStream, rule: Rule) -> io::Result<()> {
    match rule {
        // Held traffic does not reach this point, see `Shared::rule`.
        Rule::Swallow | Rule::Hold => return Ok(()),
        Rule::Pass => {}
        Rule::Delay(time) => thread::sleep(time),
        Rule::Slow(rate) => {
            // A tenth of a second's worth at a time.
            let rate = rate.max(10);
            for part in piece.chunks(usize::try_from(rate / 10).expect("it is small")) {
                thread::sleep(Duration::from_secs(1) * u32::try_from(part.len()).expect("a buffer") / rate);
                to.write_all(part)?;
            }
            return Ok(());
        }
    }
    to.write_all(piece)
}
