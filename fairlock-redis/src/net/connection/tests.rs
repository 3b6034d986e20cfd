//! What is asked of a peer that closes the connection, and how replies are read; at night, how a connection opens, reads and closes.

mod decoder;
#[cfg(feature = "night")]
mod endless;
#[cfg(feature = "night")]
mod opening;

use super::*;
use crate::net::test_server::TIMEOUTS;
use std::io::Write;
use std::net::TcpListener;

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
    #[cfg(feature = "tls")]
    assert_eq!(told(&[b"", b"N"], "rediss"), None);
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

#[test]
fn texts_and_numbers_are_read_and_nothing_else() {
    assert_eq!(text(&Value::SimpleString("OK".into())).unwrap(), "OK");
    assert_eq!([&bulk("12"), &Value::Int(-1)].map(|value| number(value).unwrap()), [12, -1]);
    assert!(number(&bulk("x")).is_err() && text(&Value::Nil).is_err() && items(&Value::Int(1)).is_err());
    assert_eq!(micros(&Value::Array(vec![bulk("2"), bulk("7")])).unwrap(), 2_000_007);
    assert!(micros(&Value::Array(vec![])).is_err());
}

#[test]
fn a_field_of_info_is_found_by_its_whole_name() {
    let info = "# Server\r\nrole_of:x\r\nrole:master\r\n";
    assert_eq!((field(info, "role"), field(info, "rol")), (Some("master"), None));
}
