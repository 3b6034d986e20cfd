//! Writes commands as RESP has them, arrays of bulk strings, straight into the text that is sent: nothing is copied or
//! allocated on the way, as it would be in a `redis::Cmd`.

use std::borrow::Cow;
use std::time::Duration;

use fairlock_core::backend::{Hold, Place, RequestId};

/// The end of a line.
const END: &str = "\r\n";

/// Enough bytes for nearly every argument: a command is written without a second allocation.
const ROOM: usize = 96;

/// Writes the parts as one text, as a command contains it: `$6`, the end of a line, `orders`, the end of a line.
fn push(to: &mut String, parts: &[&str]) {
    to.push('$');
    to.push_str(itoa::Buffer::new().format(parts.iter().map(|part| part.len()).sum::<usize>()));
    to.push_str(END);
    parts.iter().for_each(|part| to.push_str(part));
    to.push_str(END);
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
    Member(&'a Place<'a>),
    /// `<capacity> <owner>:<request> <token> `
    Hold(&'a Hold<'a>),
    /// Until when an attempt may begin something: sixteen digits that [`Evalsha::complete`] fills in.
    BeginBy,
}

impl Argument<'_> {
    fn push(&self, to: &mut String) {
        match self {
            Argument::Text(text) => push(to, &[text]),
            Argument::Number(number) => push(to, &[itoa::Buffer::new().format(*number)]),
            #[cfg(any(feature = "redisson", test))]
            Argument::Request(request) => push(to, &[hex(*request, &mut [0; 16])]),
            Argument::Member(place) => {
                let mut digits = [0; 16];
                push(to, &[place.owner.as_str(), ":", hex(place.request, &mut digits)]);
            }
            Argument::Hold(hold) => {
                let (mut digits, mut token) = ([0; 16], itoa::Buffer::new());
                let (request, token) = (hex(hold.request, &mut digits), token.format(hold.token.get()));
                let mut capacity = itoa::Buffer::new();
                let capacity = capacity.format(hold.lock.kind.capacity());
                push(to, &[capacity, " ", hold.owner.as_str(), ":", request, " ", token, " "]);
            }
            Argument::BeginBy => push(to, &[NO_TIME]),
        }
    }
}

fn hex(request: RequestId, digits: &mut [u8; 16]) -> &str {
    for (at, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(request.get() >> (4 * at) & 15) as usize];
    }
    std::str::from_utf8(digits).unwrap_or("")
}

/// A time that is over, in the form of all times of attempts.
const NO_TIME: &str = "0000000000000000";

/// EVALSHA as it is sent, but for what depends on the server that it goes to.
#[derive(Debug)]
pub(crate) struct Evalsha {
    packed: String,
    /// Where the digits of [`Argument::BeginBy`] are.
    begin_by: Option<usize>,
}

impl Evalsha {
    /// With these keys and arguments, and so many more at the end, `later`.
    pub(crate) fn new(sha: &str, keys: &[&str], arguments: &[Argument<'_>], later: usize) -> Evalsha {
        let room =
            keys.iter().map(|key| key.len()).sum::<usize>() + ROOM * (3 + keys.len() + arguments.len());
        let mut packed = String::with_capacity(room);
        packed.push('*');
        packed.push_str(itoa::Buffer::new().format(3 + keys.len() + arguments.len() + later));
        packed.push_str("\r\n$7\r\nEVALSHA\r\n");
        Argument::Text(sha).push(&mut packed);
        Argument::Number(keys.len() as u64).push(&mut packed);
        keys.iter().for_each(|key| push(&mut packed, &[key]));
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
            return self.packed.as_bytes().into();
        }
        let mut complete = String::with_capacity(self.packed.len() + ROOM * last.len());
        match self.begin_by {
            None => complete.push_str(&self.packed),
            Some(at) => {
                let (before, rest) = self.packed.split_at(at);
                complete.push_str(before);
                push_time(&mut complete, begin_by());
                complete.push_str(&rest[NO_TIME.len()..]);
            }
        }
        last.iter().for_each(|argument| argument.push(&mut complete));
        complete.into_bytes().into()
    }
}

/// In sixteen digits, which last until the year 2286.
fn push_time(to: &mut String, micros: u64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(micros.min(9_999_999_999_999_999));
    to.push_str(&NO_TIME[digits.len()..]);
    to.push_str(digits);
}

/// Milliseconds, at least one: a lease or a wait of zero would be none.
pub(crate) fn millis(time: Duration) -> u64 {
    /// Three hundred years: exact in Lua's doubles, and more than any wait lasts.
    const MOST: u64 = 10_000_000_000_000;
    u64::try_from(time.as_millis()).unwrap_or(MOST).clamp(1, MOST)
}

/// As a server gets them.
#[cfg(test)]
#[cfg(feature = "redisson")]
pub(crate) fn words(arguments: &[Argument<'_>]) -> Vec<String> {
    let word = |argument: &Argument<'_>| {
        let mut sent = String::new();
        argument.push(&mut sent);
        sent.split_once('\n').unwrap().1.trim_end_matches(END).to_owned()
    };
    arguments.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::Argument::{Number, Text};
    use super::*;
    use fairlock_core::backend::LockId;
    use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};

    #[test]
    fn a_command_is_packed_as_the_redis_crate_packs_it() {
        let long = "x".repeat(70_000);
        let (key, request) = ("a{é}", RequestId::new(0xc0ffee));
        let lock = LockId::new(LockName::new("a").unwrap(), LockKind::Fair);
        let owner = OwnerId::new("client:1");
        let hold = Hold::new(&lock, &owner, request, FencingToken::new(u64::MAX));
        let place = Place::new(&lock, &owner, request);
        for (text, number) in [("", 0), ("a b\r\n$3\r\n", 9), (long.as_str(), u64::MAX)] {
            let (held, member) = (Argument::Hold(&hold), Argument::Member(&place));
            let arguments =
                [Text(text), Number(number), Argument::Request(request), held, member, Text(key), Text(text)];
            let packed = Evalsha::new("0123", &[key, key], &arguments, 0).packed;
            let mut command = redis::cmd("EVALSHA");
            command.arg("0123").arg(2).arg("a{é}").arg("a{é}");
            command.arg(text).arg(number).arg(request.to_string());
            command.arg(format!("1 client:1:{request} {} ", u64::MAX)).arg(format!("client:1:{request}"));
            command.arg("a{é}").arg(text);
            assert_eq!(packed.as_bytes(), command.get_packed_command());
            let lacks_two = Evalsha::new("0123", &[key, key], &arguments, 2);
            let complete = lacks_two.complete(|| 0, &[Number(7), Text("b")]);
            assert_eq!(*complete, command.arg(7).arg("b").get_packed_command());
        }
    }

    #[test]
    fn the_end_of_an_attempt_is_filled_in_for_each_server() {
        let arguments = [Text("0000000000000000"), Argument::BeginBy, Text("x")];
        for later in [0, 1] {
            let script = Evalsha::new("0123", &[], &arguments, later);
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
    }
}
