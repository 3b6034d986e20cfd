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
        let mut stream = Stream::connect(&*address.reached(deadline).ok()?, deadline).ok()?;
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;
    use crate::net::connection::open;
    use crate::net::test_server::TIMEOUTS;

    /// The failure to connect to what gives each connection one of these answers, and its address.
    fn met(answers: &'static [&'static [u8]]) -> (Failure, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a port").port();
        std::thread::spawn(move || {
            for answer in answers {
                let mut peer = listener.accept().expect("accepted").0;
                _ = peer.read(&mut [0; 1000]);
                _ = peer.write_all(answer);
            }
        });
        let address = Address::parse(&format!("redis://127.0.0.1:{port}")).expect("an address");
        (open(&address, &TIMEOUTS).map(drop).expect_err("it is closed"), port)
    }

    #[test]
    fn what_closes_without_a_word_is_asked_what_it_is() {
        let told = |answers, scheme: &str| {
            let (failure, port) = met(answers);
            let address = Address::parse(&format!("{scheme}://127.0.0.1:{port}")).expect("an address");
            let told = told_apart(failure.clone(), &address, &TIMEOUTS);
            (told != failure).then(|| told.to_string())
        };
        let told_as = |answers, what: &str| told(answers, "redis").is_some_and(|told| told.starts_with(what));
        assert!(told_as(&[b"", b"N"], "what listens there is not Redis"));
        assert!(told_as(&[b"", b"S"], "what listens there is not Redis"));
        assert!(told_as(&[b"", b"", b"\x15"], "the port has TLS"));
        assert!(told_as(&[b"", b"", b"\x16"], "the port has TLS"));
        const OTHERS: [&[&[u8]]; 4] =
            [&[b"", b"x", b"\x16"], &[b"", b"", b"x"], &[b"", b"", b""], &[b"?\r\n", b"N"]];
        for answers in OTHERS {
            assert_eq!(told(answers, "redis"), None, "{answers:?}");
        }
        #[cfg(feature = "tls-rustls")]
        assert_eq!(told(&[b"", b"N"], "rediss"), None);
    }
}
