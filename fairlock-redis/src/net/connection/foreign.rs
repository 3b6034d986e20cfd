//! What listens at an address, if it closes the connection without a word. Redis never does that; PostgreSQL and a port with TLS do, and
//! so does a proxy whose server is away.

use std::io::Read;
use std::time::Instant;

use fairlock_net::{Stream, Timeouts};

use super::address::Address;
use super::failure::Failure;
use super::verdict::{POSTGRES, TLS};

/// PostgreSQL's SSLRequest, which it answers by one letter: S, or N without TLS.
const ASKS_FOR_TLS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// A greeting by TLS 1.2 with one cipher, which is answered by a handshake or an alert: the first byte is 22 or 21.
const HELLO: &[u8] = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03fairlock asks what listens there\x00\x00\x02\xc0\x2f\x01\x00";

/// The failure of a first contact, which says what listens there as far as that can be told.
pub(crate) fn told_apart(failure: Failure, address: &Address, timeouts: &Timeouts) -> Failure {
    if !failure.was_closed() || address.tls.is_some() || address.host().is_none() {
        return failure;
    }
    let deadline = Instant::now() + timeouts.connect;
    let first_byte = |question: &[u8]| {
        let mut stream = Stream::connect(&*address.reached().ok()?, deadline).ok()?;
        stream.send(question, deadline).ok()?;
        let mut answer = [0];
        stream.read_exact(&mut answer).ok()?;
        Some(answer[0])
    };
    match first_byte(&ASKS_FOR_TLS) {
        Some(b'S' | b'N') => return Failure::refused(POSTGRES, "answers"),
        // A server of another kind, or one that is busy.
        Some(_) => return failure,
        None => {}
    }
    match first_byte(HELLO) {
        Some(21 | 22) => Failure::refused(TLS, "answers"),
        _ => failure,
    }
}
