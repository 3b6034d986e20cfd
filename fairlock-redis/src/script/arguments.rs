//! Writes commands as RESP has them, arrays of bulk strings, straight into the bytes that are sent: nothing is copied or
//! allocated on the way, as it would be in a `redis::Cmd`.

use std::borrow::Cow;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::RequestId;

/// The end of a line.
const END: &[u8] = b"\r\n";

/// Enough bytes for nearly every argument: a command is written without a second allocation.
const ROOM: usize = 64;

/// Writes the parts as one text, as a command contains it: `$6`, the end of a line, `orders`, the end of a line.
fn push(to: &mut Vec<u8>, parts: &[&[u8]]) {
    push_head(to, b'$', parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| to.extend_from_slice(part));
    to.extend_from_slice(END);
}

/// The line that an array or a text begins with.
fn push_head(to: &mut Vec<u8>, kind: u8, length: usize) {
    let digit = |value: usize| b'0' + (value % 10) as u8;
    match length {
        // Nearly all, and a tenth of what a cycle takes if they are formatted.
        0..=9 => to.extend_from_slice(&[kind, digit(length), b'\r', b'\n']),
        10..=99 => to.extend_from_slice(&[kind, digit(length / 10), digit(length), b'\r', b'\n']),
        _ => {
            to.push(kind);
            to.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            to.extend_from_slice(END);
        }
    }
}

/// One argument of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    Text(&'a str),
    /// In decimal.
    Number(u64),
    /// In sixteen hexadecimal digits.
    #[cfg(any(feature = "redisson", test))]
    Request(RequestId),
    /// `<owner>:<request>`
    Member(&'a OwnerId, RequestId),
    /// Letters, and a time behind a `u`.
    Options(&'static str, Option<u64>),
    /// Until when an attempt may begin something: sixteen digits that [`Evalsha::complete`] fills in.
    BeginBy,
}

impl Argument<'_> {
    fn push(&self, to: &mut Vec<u8>) {
        match self {
            Argument::Text(text) => push(to, &[text.as_bytes()]),
            Argument::Number(number) => push(to, &[itoa::Buffer::new().format(*number).as_bytes()]),
            #[cfg(any(feature = "redisson", test))]
            Argument::Request(request) => push(to, &[&hex(*request)]),
            Argument::Member(owner, request) => push(to, &[owner.as_str().as_bytes(), b":", &hex(*request)]),
            Argument::Options(letters, None) => push(to, &[letters.as_bytes()]),
            Argument::Options(letters, Some(time)) => {
                push(to, &[letters.as_bytes(), b"u", itoa::Buffer::new().format(*time).as_bytes()]);
            }
            Argument::BeginBy => push(to, &[NO_TIME]),
        }
    }
}

fn hex(request: RequestId) -> [u8; 16] {
    std::array::from_fn(|at| b"0123456789abcdef"[(request.get() >> (60 - 4 * at) & 15) as usize])
}

/// A time that is over, in the form of all times of attempts.
const NO_TIME: &[u8; 16] = b"0000000000000000";

/// EVALSHA as it is sent, but for what depends on the server that it goes to.
#[derive(Debug)]
pub(crate) struct Evalsha {
    packed: Vec<u8>,
    /// Where the digits of [`Argument::BeginBy`] are.
    begin_by: Option<usize>,
}

impl Evalsha {
    /// The first two words, for the script with this hash.
    pub(crate) fn words(sha: &str) -> Vec<u8> {
        let mut words = Vec::new();
        push(&mut words, &[b"EVALSHA"]);
        push(&mut words, &[sha.as_bytes()]);
        words
    }

    /// With its first [`words`](Self::words), these keys and arguments, and `later` more at the end.
    pub(crate) fn new(words: &[u8], keys: &[&str], arguments: &[Argument<'_>], later: usize) -> Evalsha {
        let of_keys: usize = keys.iter().map(|key| key.len() + "$9999\r\n\r\n".len()).sum();
        let mut packed = Vec::with_capacity(words.len() + of_keys + ROOM * (2 + arguments.len()));
        push_head(&mut packed, b'*', 3 + keys.len() + arguments.len() + later);
        packed.extend_from_slice(words);
        Argument::Number(keys.len() as u64).push(&mut packed);
        keys.iter().for_each(|key| push(&mut packed, &[key.as_bytes()]));
        let mut begin_by = None;
        for argument in arguments {
            argument.push(&mut packed);
            if let Argument::BeginBy = argument {
                begin_by = Some(packed.len() - END.len() - NO_TIME.len());
            }
        }
        Evalsha { packed, begin_by }
    }

    /// The bytes to be sent. `begin_by`: until when it may begin something, in microseconds since 1970, for a script that has to
    /// know. `last`: the arguments that it lacks.
    pub(crate) fn complete(&self, begin_by: impl FnOnce() -> u64, last: &[Argument<'_>]) -> Cow<'_, [u8]> {
        if self.begin_by.is_none() && last.is_empty() {
            return self.packed.as_slice().into();
        }
        let mut complete = Vec::with_capacity(self.packed.len() + ROOM * last.len());
        match self.begin_by {
            None => complete.extend_from_slice(&self.packed),
            Some(at) => {
                let (before, rest) = self.packed.split_at(at);
                complete.extend_from_slice(before);
                push_time(&mut complete, begin_by());
                complete.extend_from_slice(&rest[NO_TIME.len()..]);
            }
        }
        last.iter().for_each(|argument| argument.push(&mut complete));
        complete.into()
    }
}

/// In sixteen digits, which last until the year 2286.
fn push_time(to: &mut Vec<u8>, micros: u64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(micros.min(9_999_999_999_999_999)).as_bytes();
    to.extend_from_slice(&NO_TIME[digits.len()..]);
    to.extend_from_slice(digits);
}

/// The same for a time that must not be shorter.
pub(crate) fn at_least_millis(time: Duration) -> u64 {
    millis(time.saturating_add(Duration::from_nanos(999_999)))
}

/// Milliseconds, at least one: a lease or a wait of zero would be none.
pub(crate) fn millis(time: Duration) -> u64 {
    /// Three hundred years: exact in Lua's doubles, and more than any wait lasts.
    const MOST: u64 = 10_000_000_000_000;
    u64::try_from(time.as_millis()).unwrap_or(MOST).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::Argument::{Number, Text};
    use super::*;

    #[test]
    fn a_command_is_packed_as_the_redis_crate_packs_it() {
        let long = "x".repeat(70_000);
        let (key, request) = ("a{é}", RequestId::new(0xc0ffee));
        let owner = OwnerId::new("client:1");
        for (text, number) in [("", 0), ("a b\r\n$3\r\n", 9), (long.as_str(), u64::MAX)] {
            let member = Argument::Member(&owner, request);
            let [options, others] = [Some(number), None].map(|time| Argument::Options("ws", time));
            let request_id = Argument::Request(request);
            let arguments =
                [Text(text), Number(number), request_id, member, Text(key), Text(text), options, others];
            let packed = Evalsha::new(&Evalsha::words("0123"), &[key, key], &arguments, 0).packed;
            let mut command = redis::cmd("EVALSHA");
            command.arg("0123").arg(2).arg("a{é}").arg("a{é}");
            command.arg(text).arg(number).arg(request.to_string());
            command.arg(format!("client:1:{request}"));
            command.arg("a{é}").arg(text).arg(format!("wsu{number}")).arg("ws");
            assert_eq!(packed, command.get_packed_command());
            let lacks_two = Evalsha::new(&Evalsha::words("0123"), &[key, key], &arguments, 2);
            let complete = lacks_two.complete(|| 0, &[Number(7), Text("b")]);
            assert_eq!(*complete, command.arg(7).arg("b").get_packed_command());
        }
    }

    #[test]
    fn the_end_of_an_attempt_is_filled_in_for_each_server() {
        let arguments = [Text("0000000000000000"), Argument::BeginBy, Text("x")];
        for later in [0, 1] {
            let script = Evalsha::new(&Evalsha::words("0123"), &[], &arguments, later);
            for (time, digits) in [
                (0, "0000000000000000"),
                (1_790_000_000_000_001, "1790000000000001"),
                (u64::MAX, "9999999999999999"),
            ] {
                let mut command = redis::cmd("EVALSHA");
                command.arg("0123").arg(0).arg("0000000000000000").arg(digits).arg("x");
                let last = [Argument::Number(8)];
                if later > 0 {
                    command.arg(8);
                }
                assert_eq!(*script.complete(|| time, &last[..later]), command.get_packed_command());
            }
        }
    }

    #[test]
    fn times_are_never_zero_and_exact_in_lua() {
        assert_eq!(
            [Duration::ZERO, Duration::from_secs(2), Duration::MAX].map(millis),
            [1, 2000, 10_000_000_000_000]
        );
        let times = [1, 1_000_000, 1_000_001].map(Duration::from_nanos);
        assert_eq!(times.map(at_least_millis), [1, 1, 2]);
        assert_eq!(at_least_millis(Duration::MAX), 10_000_000_000_000);
    }
}
