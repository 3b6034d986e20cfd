//! The arguments of scripts, and the command that runs a script with them.

use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::RequestId;
use redis::Cmd;

use super::keys::Keys;

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
    /// The channel of the (first) lock, see [`Keys::channel`].
    #[cfg_attr(
        not(feature = "redisson"),
        allow(dead_code, reason = "our own scripts publish on a client's channel")
    )]
    Channel,
    /// The end of the attempt, see [`Pool::attempt_end`](crate::net::Pool::attempt_end): microseconds since 1970 in sixteen digits,
    /// which last until the year 2286 and which scripts compare as texts.
    BeginBy,
}

impl Argument<'_> {
    /// Appends the argument. `begin_by` is read for [`BeginBy`](Argument::BeginBy) alone.
    fn add_to(&self, command: &mut Cmd, keys: &Keys, begin_by: impl Fn() -> u64) {
        match self {
            Argument::Text(text) => command.arg(text),
            Argument::Number(number) => command.arg(number),
            #[cfg(any(feature = "redisson", test))]
            Argument::Request(request) => command.arg(request.to_string()),
            Argument::Member(owner, request) => command.arg(format!("{owner}:{request}")),
            Argument::Options(letters, None) => command.arg(letters),
            Argument::Options(letters, Some(time)) => command.arg(format!("{letters}u{time}")),
            Argument::Channel => command.arg(keys.channel()),
            Argument::BeginBy => command.arg(format!("{:016}", begin_by().min(9_999_999_999_999_999))),
        };
    }
}

/// EVALSHA as it is sent to one server. `first`: the keys of the first lock. `begin_by`: until when the server may begin what the script
/// is for.
pub(crate) fn evalsha(
    sha: &str,
    keys: &[&str],
    arguments: &[Argument<'_>],
    first: &Keys,
    begin_by: impl Fn() -> u64,
) -> Vec<u8> {
    /// Enough bytes for nearly every word: the command is written without a second allocation.
    const ROOM: usize = 48;
    let words = 3 + keys.len() + arguments.len();
    let mut command = Cmd::with_capacity(words, ROOM * words);
    command.arg("EVALSHA").arg(sha).arg(keys.len()).arg(keys);
    arguments.iter().for_each(|argument| argument.add_to(&mut command, first, &begin_by));
    command.get_packed_command()
}

/// Milliseconds, rounded up, for a time that must not get shorter.
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
    use fairlock_core::LockKind;

    use super::*;
    use crate::fake_backend::named;

    #[test]
    fn each_argument_is_one_word_of_the_command() {
        let (owner, request) = (OwnerId::new("client:1"), RequestId::new(0xc0ffee));
        let first = Keys::of(&named("a", LockKind::Plain)).unwrap();
        for (time, digits) in [
            (0, "0000000000000000"),
            (1_790_000_000_000_001, "1790000000000001"),
            (u64::MAX, "9999999999999999"),
        ] {
            let arguments = [
                Argument::Text("a b\r\n$3\r\n"),
                Argument::Number(u64::MAX),
                Argument::Request(request),
                Argument::Member(&owner, request),
                Argument::Options("ws", Some(9)),
                Argument::Options("ws", None),
                Argument::Channel,
                Argument::BeginBy,
                Argument::Text(""),
            ];
            let packed = evalsha("0123", &["a{é}", "b"], &arguments, &first, || time);
            let mut command = redis::cmd("EVALSHA");
            command.arg("0123").arg("2").arg("a{é}").arg("b").arg("a b\r\n$3\r\n").arg(u64::MAX.to_string());
            command.arg("0000000000c0ffee").arg("client:1:0000000000c0ffee").arg("wsu9").arg("ws");
            command.arg("redisson_lock__channel:{a}").arg(digits).arg("");
            assert_eq!(packed, command.get_packed_command());
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
