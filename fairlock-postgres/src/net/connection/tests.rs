//! What a server may send, or something else at its address: whole answers, damaged answers, and any bytes.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendErrorKind;
use fairlock_rules::LockEntry;
use fairlock_tests::WorkDir;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::net::address::TlsConfig;
use crate::net::open::start as log_in;
use crate::net::{Connection, Row, Statement};
use crate::row::Loaded;

/// A place where a server would listen.
struct Here {
    _dir: WorkDir,
    at: Endpoint,
    listener: UnixListener,
    address: Address,
}

impl Here {
    fn new() -> Here {
        let dir = WorkDir::new();
        let path = dir.file("s");
        let listener = UnixListener::bind(&path).unwrap();
        let address =
            Address::parse("postgres://u:canary@h/d?sslmode=disable", &TlsConfig::default()).unwrap();
        Here { _dir: dir, at: Endpoint::Unix(path), listener, address }
    }

    /// A session, and the server's side.
    fn connected(&self) -> (Connection, UnixStream) {
        let stream = Stream::connect(&self.at, soon()).unwrap();
        let (server, _) = self.listener.accept().unwrap();
        (Connection::new(stream, &self.at, &self.address, false), server)
    }

    /// A session in which the server sends these bytes, and closes its side.
    fn session(&self, bytes: &[u8]) -> (Connection, UnixStream) {
        let (con, mut server) = self.connected();
        server.write_all(bytes).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        (con, server)
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// A message: its kind, its length and this.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

fn row(values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let value = |value: &Option<Vec<u8>>| match value {
        None => (-1_i32).to_be_bytes().to_vec(),
        Some(bytes) => [&(bytes.len() as i32).to_be_bytes()[..], bytes].concat(),
    };
    message(
        b'D',
        &[(values.len() as u16).to_be_bytes().to_vec(), values.iter().flat_map(value).collect()].concat(),
    )
}

fn values() -> impl Strategy<Value = Vec<Option<Vec<u8>>>> {
    let number = any::<i64>().prop_map(|number| number.to_be_bytes().to_vec());
    let state = prop_oneof![Just(Vec::new()), Just(LockEntry::default().encode())];
    let heads = vec(any::<i64>(), 0..4).prop_map(|numbers| {
        let item = |number: &i64| [&[0, 0, 0, 8], &number.to_be_bytes()[..]].concat();
        [vec![0; 20], numbers.iter().flat_map(item).collect()].concat()
    });
    vec(
        option::weighted(0.9, prop_oneof![4 => number, 1 => state, 1 => heads, 1 => vec(any::<u8>(), 0..20)]),
        0..14,
    )
}

/// A refusal, or a notice.
fn said(kind: u8) -> impl Strategy<Value = Vec<u8>> {
    let code = select(vec!["57P01", "55P03", "42501", "42P01", "26000", "XX000", "28P01", ""]);
    (code, "[a-zé]{0,9}")
        .prop_map(move |(code, words)| message(kind, format!("SX\0C{code}\0M{words}\0\0").as_bytes()))
}

/// The rows of a statement, or a refusal, and what may come at any time.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let of_statement = vec(values(), 0..3).prop_map(|rows| {
        let rows: Vec<u8> = rows.iter().flat_map(|values| row(values)).collect();
        [message(b'1', b""), message(b'2', b""), rows, message(b'C', b"SELECT 1\0")].concat()
    });
    let told =
        "[ -~]{0,30}".prop_map(|text| message(b'A', format!("\0\0\0\x07fairlock\0{text}\0").as_bytes()));
    let at_any_time = prop_oneof![said(b'N'), told, Just(message(b'S', b"TimeZone\0UTC\0"))];
    (at_any_time, prop_oneof![4 => of_statement.boxed(), 1 => said(b'E').boxed()])
        .prop_map(|(one, other)| [one, other].concat())
}

/// An answer to a flight.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    vec(part(), 0..4).prop_map(|parts| [parts.concat(), message(b'Z', b"I")].concat())
}

/// A login, up to its end.
fn login() -> impl Strategy<Value = Vec<u8>> {
    let ask =
        select(vec![&b"\0\0\0\x03"[..], b"\0\0\0\x05salt", b"\0\0\0\x0aSCRAM-SHA-256\0\0", b"\0\0\0\0"]);
    ask.prop_map(|ask| {
        let then = message(b'R', b"\0\0\0\x0br=abc,s=QSXCR+Q6sek8bf92,i=4096");
        [
            message(b'R', ask),
            then,
            message(b'R', b"\0\0\0\0"),
            message(b'K', b"\0\0\0\x01\0\0\0\x02"),
            message(b'Z', b"I"),
        ]
        .concat()
    })
}

/// Bytes to change, and where the end is.
type Damage = (Vec<(Index, Vec<u8>)>, Option<Index>);

fn damage() -> impl Strategy<Value = Damage> {
    let number = select(vec![0, 1, 3, 4, 5, 0x7fff_ffff, 0x8000_0000, u32::MAX])
        .prop_map(|n: u32| n.to_be_bytes().to_vec());
    let other = prop_oneof![number, any::<u8>().prop_map(|byte| vec![byte])];
    (vec((any::<Index>(), other), 1..5), option::of(any::<Index>()))
}

fn damaged(mut bytes: Vec<u8>, (changes, end): Damage) -> Vec<u8> {
    for (at, other) in changes {
        let at = at.index(bytes.len());
        let end = bytes.len().min(at + other.len());
        bytes.splice(at..end, other);
    }
    bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len() + 1)));
    bytes
}

/// Reads all of a row in all ways: none panics.
fn look_at(row: &Row) {
    for at in 0..15 {
        let _ = (row.text(at), row.number(at), row.count(at), row.flag(at), row.numbers(at));
    }
    if let Ok(loaded) = Loaded::read(row) {
        let again = LockEntry::decode(&loaded.entry.encode(), loaded.last);
        assert!(again.is_ok(), "{:?}", again.err());
    }
}

/// What a session does with these bytes: each way of reading ends, with an answer or a failure in words, and keeps no more than came.
fn reads(here: &Here, bytes: &[u8]) {
    let keeps_little = |con: &Connection| {
        assert!(
            con.incoming.capacity() <= 4 * bytes.len() + (64 << 10),
            "{} of {}",
            con.incoming.capacity(),
            bytes.len()
        );
    };
    let (mut con, _server) = here.session(bytes);
    match con.flight(&[Statement::new("select 1", [])], soon()) {
        Ok(rows) => rows.iter().flatten().for_each(look_at),
        Err(failure) => assert_ne!(failure.kind, BackendErrorKind::Corrupt),
    }
    keeps_little(&con);
    let (mut con, _server) = here.session(bytes);
    while con.listen(soon()).is_ok() {}
    keeps_little(&con);
    let (mut con, _server) = here.session(bytes);
    let _ = log_in(&mut con, &here.address, soon());
    keeps_little(&con);
}

#[test]
fn whole_answers_are_read_as_they_were_sent() {
    let here = Here::new();
    proptest!(|(of_statements in vec(vec(values(), 0..3), 0..4), notice in said(b'N'))| {
        let mut bytes = notice;
        for rows in &of_statements {
            rows.iter().for_each(|values| bytes.extend(row(values)));
            bytes.extend(message(b'C', b"SELECT 1\0"));
        }
        bytes.extend(message(b'Z', b"I"));
        let (mut con, _server) = here.session(&bytes);
        let rows = con.flight(&[], soon()).unwrap();
        let read = |row: &Row| Vec::from_iter((0..14).map(|at| row.maybe_bytes(at).map(<[u8]>::to_vec)));
        let read: Vec<Vec<_>> = rows.iter().map(|rows| rows.iter().map(read).collect()).collect();
        let filled = |values: &Vec<Option<Vec<u8>>>| Vec::from_iter((0..14).map(|at| values.get(at).cloned().flatten()));
        let sent: Vec<Vec<_>> = of_statements.iter().map(|rows| rows.iter().map(filled).collect()).collect();
        prop_assert_eq!(read, sent);
        rows.iter().flatten().for_each(look_at);
    });
}

#[test]
fn damaged_answers_of_a_server_are_failures_in_words() {
    let here = Here::new();
    proptest!(|(bytes in prop_oneof![3 => answer().boxed(), 1 => login().boxed()], damage in damage())| {
        reads(&here, &damaged(bytes, damage));
    });
}

#[test]
fn damaged_beyond_any_form_the_answer_is_a_failure() {
    let here = Here::new();
    proptest!(|(bytes in vec(any::<u8>(), 0..300))| {
        reads(&here, &bytes);
    });
}

/// A web server's words are no head of a message of 1.4 GB.
#[test]
fn a_length_that_is_a_lie_reserves_no_memory() {
    let here = Here::new();
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"D\x7f\xff\xff\xff\0\x01"] {
        reads(&here, bytes);
    }
}

/// Each of its messages has an end.
#[test]
fn rows_without_an_end_are_refused_before_they_fill_the_memory() {
    let (here, row) = (Here::new(), row(&[Some(vec![7; 1 << 20])]));
    let (mut con, mut server) = here.connected();
    std::thread::scope(|scope| {
        scope.spawn(move || while server.write_all(&row).is_ok() {});
        let failure = con.flight(&[Statement::new("select 1", [])], soon()).unwrap_err();
        assert!(failure.says("has no end"), "{failure:?}");
        drop(con);
    });
}

/// The server's number of rounds is a loop that no deadline ends.
#[test]
fn a_login_of_too_many_rounds_is_refused_before_the_first() {
    let here = Here::new();
    let asks = |rounds: &str| {
        let first = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
        let salted = format!("\0\0\0\x0br=abc,s=QSXCR+Q6sek8bf92,i={rounds}");
        let (mut con, _server) = here.session(&[first, message(b'R', salted.as_bytes())].concat());
        log_in(&mut con, &here.address, soon()).unwrap_err()
    };
    assert!(asks("4294967295").says("more than 1000000 rounds"));
    assert!(!asks("4096").says("rounds"));
}

/// The words depend on the server's language.
#[test]
fn a_commit_that_no_standby_has_confirmed_has_no_answer() {
    let here = Here::new();
    let commits = |field: &str| {
        let notice = message(b'N', format!("SWARNING\0C01000\0{field}\0\0").as_bytes());
        let answer = [notice, message(b'C', b"COMMIT\0"), message(b'Z', b"I")].concat();
        here.session(&answer).0.flight(&[], soon())
    };
    assert!(commits("RSyncRepWaitForLSN").unwrap_err().says("standby"));
    for other in ["RProcessNotify", "MSyncRepWaitForLSN"] {
        commits(other).unwrap();
    }
}

#[test]
fn a_part_of_a_message_stays_for_the_next_call() {
    let (mut con, mut server) = Here::new().connected();
    let told = message(b'A', b"\0\0\0\x07fairlock\0hello\0");
    let (part, last) = told.split_at(told.len() - 1);
    server.write_all(part).unwrap();
    assert!(con.listen(Instant::now() + Duration::from_millis(20)).unwrap().is_empty());
    server.write_all(last).unwrap();
    assert_eq!(con.listen(soon()).unwrap(), ["hello"]);
}

/// The server's side closes with a request unread, which resets the connection.
#[test]
fn a_connection_that_is_reset_is_over() {
    let (mut con, server) = Here::new().connected();
    con.tell(&[Statement::new("select 1", [])], soon());
    drop(server);
    assert!(con.listen(soon()).is_err() && con.is_over);
}
