//! The arguments of scripts, and the command that runs a script with them.

use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::RequestId;
use redis::Cmd;

use super::keys::Keys;
use crate::net::{Hears, Listeners};

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
    /// What is known of the listeners, as letters and a time behind a `u`, see `scripts/hand_off/acquire.lua`. Whether the place's request
    /// waits, and whether its client hears.
    Options {
        waits: bool,
        hears: Option<Hears>,
    },
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
    /// Appends the argument. `known` is asked for [`BeginBy`](Argument::BeginBy) and [`Options`](Argument::Options) alone.
    fn add_to(&self, command: &mut Cmd, keys: &Keys, known: &impl Known) {
        match self {
            Argument::Text(text) => command.arg(text),
            Argument::Number(number) => command.arg(number),
            #[cfg(any(feature = "redisson", test))]
            Argument::Request(request) => command.arg(request.to_string()),
            Argument::Member(owner, request) => command.arg(format!("{owner}:{request}")),
            Argument::Options { waits, hears } => {
                let listeners = known.listeners();
                let letters = letters(*waits, listeners != Listeners::Unknown, known.is_deaf(*hears));
                match listeners {
                    Listeners::KnownSince(time) => command.arg(format!("{letters}u{time}")),
                    _ => command.arg(letters),
                }
            }
            Argument::Channel => command.arg(keys.channel()),
            Argument::BeginBy => {
                command.arg(format!("{:016}", known.attempt_end().min(9_999_999_999_999_999)))
            }
        };
    }
}

/// What is known of the server that a call is packed for. It is asked when the call is packed, not when the call is made: a connection
/// may have been lost in between.
pub(crate) trait Known {
    /// Until when the server may begin what the script is for.
    fn attempt_end(&self) -> u64;

    fn listeners(&self) -> Listeners;

    /// Whether a client may get no messages now. Not if it never had a subscription.
    fn is_deaf(&self, hears: Option<Hears>) -> bool;
}

fn letters(waits: bool, knows_subscribers: bool, is_deaf: bool) -> &'static str {
    const LETTERS: [&str; 8] = ["", "w", "s", "ws", "d", "wd", "sd", "wsd"];
    LETTERS[usize::from(waits) + 2 * usize::from(knows_subscribers) + 4 * usize::from(is_deaf)]
}

/// EVALSHA as it is sent to one server. `first`: the keys of the first lock.
pub(crate) fn evalsha(
    sha: &str,
    keys: &[&str],
    arguments: &[Argument<'_>],
    first: &Keys,
    known: &impl Known,
) -> Vec<u8> {
    /// Enough bytes for nearly every word: the command is written without a second allocation.
    const ROOM: usize = 48;
    let words = 3 + keys.len() + arguments.len();
    let mut command = Cmd::with_capacity(words, ROOM * words);
    command.arg("EVALSHA").arg(sha).arg(keys.len()).arg(keys);
    arguments.iter().for_each(|argument| argument.add_to(&mut command, first, known));
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

    /// The end of an attempt, and the fault since when listeners are known.
    impl Known for (u64, Option<u64>) {
        fn attempt_end(&self) -> u64 {
            self.0
        }

        fn listeners(&self) -> Listeners {
            self.1.map_or(Listeners::Known, Listeners::KnownSince)
        }

        fn is_deaf(&self, hears: Option<Hears>) -> bool {
            hears == Some(Hears::Nothing)
        }
    }

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
                Argument::Options { waits: true, hears: None },
                Argument::Options { waits: false, hears: Some(Hears::Nothing) },
                Argument::Channel,
                Argument::BeginBy,
                Argument::Text(""),
            ];
            let packed = evalsha("0123", &["a{é}", "b"], &arguments, &first, &(time, Some(9)));
            let mut command = redis::cmd("EVALSHA");
            command.arg("0123").arg("2").arg("a{é}").arg("b").arg("a b\r\n$3\r\n").arg(u64::MAX.to_string());
            command.arg("0000000000c0ffee").arg("client:1:0000000000c0ffee").arg("wsu9").arg("sdu9");
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
