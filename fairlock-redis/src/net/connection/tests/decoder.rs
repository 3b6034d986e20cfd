//! The decoder beside the parser of `redis`, on replies and on bytes of all kinds, cut anywhere.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use redis::Parser;

use super::*;

/// Bytes that arrive in pieces of these lengths, in turns.
struct Pieces<'a> {
    bytes: &'a [u8],
    lengths: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = self.lengths.next().copied().unwrap_or(1).min(buf.len());
        (&mut self.bytes).take(most as u64).read(buf)
    }
}

fn decoder<'a>(bytes: &'a [u8], lengths: &'a [usize]) -> Decoder<Pieces<'a>> {
    Decoder::new(Pieces { bytes, lengths: lengths.iter().cycle() })
}

/// All replies, and why no other one follows.
fn all(mut decoder: Decoder<impl Read>) -> (Vec<Value>, Failure) {
    let mut replies = Vec::new();
    loop {
        match decoder.reply() {
            Ok(reply) => replies.push(reply),
            Err(failure) => return (replies, failure),
        }
    }
}

fn all_of_redis(mut bytes: &[u8]) -> Vec<Value> {
    let mut parser = Parser::new();
    std::iter::from_fn(|| parser.parse_value(&mut bytes).ok()).collect()
}

/// A reply of any form that a server sends.
fn reply() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        any::<i64>().prop_map(|number| format!(":{number}\r\n")),
        "[a-zäß\n]{0,12}".prop_map(|text| format!("+{text}\r\n")),
        "(ERR|NOSCRIPT|MOVED 7|X) [a-z:. ]{0,12}".prop_map(|text| format!("-{text}\r\n")),
        Just("+OK\r\n".to_owned()),
        Just("$-1\r\n".to_owned()),
        Just("*-1\r\n".to_owned()),
    ];
    let bulk = vec(any::<u8>(), 0..600)
        .prop_map(|bytes| [format!("${}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat());
    let item = prop_oneof![line.prop_map(String::into_bytes), bulk];
    item.prop_recursive(4, 64, 5, |item| {
        vec(item, 0..5)
            .prop_map(|items| [format!("*{}\r\n", items.len()).into_bytes(), items.concat()].concat())
    })
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1..4_usize, 1..3000_usize], 1..8)
}

proptest! {
    #[test]
    fn replies_are_those_of_redis(replies in vec(reply(), 1..6), lengths in lengths()) {
        let bytes = replies.concat();
        let (read, end) = all(decoder(&bytes, &lengths));
        prop_assert_eq!(read.len(), replies.len());
        prop_assert_eq!(read, all_of_redis(&bytes));
        prop_assert_eq!(end, Failure::Broken("the server closed the connection".into()));
    }

    #[test]
    fn damaged_replies_are_those_of_redis_or_a_clear_error(
        replies in vec(reply(), 1..4),
        damage in vec((any::<Index>(), prop_oneof![Just(b'\r'), Just(b'9'), Just(b'-'), any::<u8>()]), 1..5),
        cut in any::<Index>(),
        lengths in lengths(),
    ) {
        let mut bytes = replies.concat();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let (read, end) = all(decoder(&bytes, &lengths));
        prop_assert_eq!(&read[..], &all_of_redis(&bytes)[..read.len()]);
        let Failure::Broken(cause) = end else { panic!("{end:?}") };
        let is_clear = |words: &&str| cause.contains(*words);
        prop_assert!(
            ["the server closed the connection", "an unintelligible answer ("].iter().any(is_clear),
            "{cause}"
        );
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..300), lengths in lengths()) {
        all(decoder(&bytes, &lengths));
    }
}

fn failure(bytes: &[u8]) -> String {
    all(decoder(bytes, &[1 << 16])).1.to_string()
}

#[test]
fn what_is_no_reply_is_an_error_that_says_why() {
    for (bytes, why) in [
        ("\r\n", "an empty line"),
        ("HTTP/1.1 400 Bad Request\r\n", "no reply begins so"),
        ("%1\r\n+a\r\n+b\r\n", "no reply begins so"),
        (":1x\r\n", "a number was expected"),
        (":\r\n", "a number was expected"),
        ("$99999999999999999999\r\n", "a number was expected"),
        (":9223372036854775808\r\n", "a number was expected"),
        ("$2\r\nabcd\r\n", "a text has another length"),
    ] {
        assert!(failure(bytes.as_bytes()).contains(why), "{bytes:?}: {}", failure(bytes.as_bytes()));
    }
    for bytes in [b"+\xff\r\n", b"-\xff\r\n"] {
        assert!(failure(bytes).contains("a line is no text"));
    }
}

#[test]
fn arrays_are_as_deep_as_redis_reads_them() {
    for depth in [DEPTH, DEPTH + 1, 1_000_000] {
        let bytes = "*1\r\n".repeat(depth) + ":1\r\n";
        let (read, end) = all(decoder(bytes.as_bytes(), &[1 << 16]));
        assert_eq!(read.len(), usize::from(depth == DEPTH), "{depth}: {end}");
        assert_eq!(read, all_of_redis(bytes.as_bytes())[..read.len()], "{depth}");
    }
}

#[test]
fn the_limits_hold_for_each_reply_and_to_the_byte() {
    let text = |length: usize| format!("${length}\r\n{}\r\n", "x".repeat(length));
    let most = BYTES - "$16777204\r\n\r\n".len();
    let (read, end) = all(decoder((text(most) + &text(most) + &text(most + 1)).as_bytes(), &[1 << 20]));
    assert_eq!(read.len(), 2);
    assert_eq!(end, Failure::Broken(format!("an answer is longer than {BYTES} bytes").into()));
    let numbers = |items: usize| format!("*{items}\r\n{}", ":1\r\n".repeat(items));
    let (read, end) = all(decoder((numbers(LINES - 1) + &numbers(LINES)).as_bytes(), &[1 << 20]));
    assert_eq!(read.len(), 1);
    assert_eq!(end, Failure::Broken(format!("an answer has more than {LINES} lines").into()));
}

#[test]
fn a_text_that_is_cut_after_a_line_is_no_text() {
    let (replies, failure) = all(decoder(b"$5\r\na\r\n", &[1]));
    assert_eq!((replies, failure), (Vec::new(), io::Error::from(ErrorKind::UnexpectedEof).into()));
}
