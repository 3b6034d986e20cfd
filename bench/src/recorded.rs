//! The two scripts of an uncontended cycle as fairlock itself calls them, recorded with MONITOR: so a baseline can repeat
//! the calls, whatever their keys and arguments are.

use std::time::Duration;

use fairlock::settings::Discipline;
use fairlock::{Client, RedisBackend};
use redis::{Cmd, Connection, Value};

use crate::Outcome;

/// The calls that take and release a lock. The server has the scripts.
pub struct Recorded {
    pub acquire: Call,
    pub release: Call,
}

/// A command, cut at the name of the lock and at the token.
pub struct Call(Vec<Vec<Part>>);

enum Part {
    Text(Vec<u8>),
    Name,
    Token,
}

/// Nothing else that is sent contains it.
const NAME: &str = "bench:recorded-name";
/// The first cycles may send more than the usual ones.
const CYCLES: usize = 20;

impl Recorded {
    pub fn new(url: &str, lease: Duration) -> Outcome<Recorded> {
        let backend = RedisBackend::builder(url).discipline(Discipline::HandOff).connect()?;
        let client = Client::builder(backend).lease(lease).build()?;
        let lock = client.fair_lock(NAME)?;
        for _ in 0..CYCLES {
            lock.lock()?.unlock()?;
        }
        let mut monitor = redis::Client::open(url)?.get_connection()?;
        monitor.set_read_timeout(Some(Duration::from_secs(5)))?;
        monitor.send_packed_command(&redis::cmd("MONITOR").get_packed_command())?;
        monitor.recv_response()?;
        let guard = lock.lock()?;
        let token = guard.token().to_string();
        guard.unlock()?;
        client.shutdown()?;
        let acquire = Call::cut(&next_script(&mut monitor)?, &token);
        let release = Call::cut(&next_script(&mut monitor)?, &token);
        if !release.0.iter().flatten().any(|part| matches!(part, Part::Token)) {
            return Err("the release names no token".into());
        }
        Ok(Recorded { acquire, release })
    }
}

/// The words of the next EVALSHA for the lock.
fn next_script(monitor: &mut Connection) -> Outcome<Vec<Vec<u8>>> {
    loop {
        let (Value::SimpleString(line) | Value::VerbatimString { text: line, .. }) =
            monitor.recv_response()?
        else {
            continue;
        };
        let words = words(&line);
        let is_script = words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"EVALSHA"));
        if is_script && words.iter().any(|word| position(word, NAME.as_bytes()).is_some()) {
            return Ok(words);
        }
    }
}

/// The quoted words of a line of MONITOR, without their escapes.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut bytes = line.bytes();
    while bytes.by_ref().any(|byte| byte == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => break,
                b'\\' => word.extend(escaped(&mut bytes)),
                byte => word.push(byte),
            }
        }
        words.push(word);
    }
    words
}

fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    Some(match bytes.next()? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'x' => {
            let mut digit = || (bytes.next()? as char).to_digit(16);
            (digit()? * 16 + digit()?) as u8
        }
        byte => byte,
    })
}

fn position(text: &[u8], of: &[u8]) -> Option<usize> {
    text.windows(of.len()).position(|window| window == of)
}

impl Call {
    fn cut(words: &[Vec<u8>], token: &str) -> Call {
        Call(words.iter().map(|word| parts(word, token)).collect())
    }

    /// The same call for a lock, and for a token.
    pub fn command(&self, name: &str, token: &str) -> Cmd {
        let mut command = Cmd::new();
        let mut text = Vec::new();
        for word in &self.0 {
            text.clear();
            for part in word {
                text.extend_from_slice(match part {
                    Part::Text(text) => text,
                    Part::Name => name.as_bytes(),
                    Part::Token => token.as_bytes(),
                });
            }
            command.arg(&text);
        }
        command
    }
}

fn parts(mut word: &[u8], token: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    while !word.is_empty() {
        let places = [(NAME, Part::Name), (token, Part::Token)]
            .map(|(text, part)| (position(word, text.as_bytes()), text.len(), part));
        let first = places
            .into_iter()
            .filter_map(|(at, len, part)| Some((at?, len, part)))
            .min_by_key(|place| place.0);
        let (at, length, part) = first.unwrap_or((word.len(), 0, Part::Text(Vec::new())));
        parts.push(Part::Text(word[..at].to_vec()));
        parts.push(part);
        word = &word[at + length..];
    }
    parts
}

/// The token in the reply to an acquisition: its greatest number, since tokens are ahead of the clock.
pub fn token(reply: &Value) -> Option<i64> {
    match reply {
        Value::Int(number) => Some(*number),
        Value::Array(values) => values.iter().filter_map(token).max(),
        Value::BulkString(text) => text_token(std::str::from_utf8(text).ok()?),
        Value::SimpleString(text) => text_token(text),
        _ => None,
    }
}

fn text_token(text: &str) -> Option<i64> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).max()
}
