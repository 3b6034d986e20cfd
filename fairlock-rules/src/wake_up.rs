//! The messages to clients, and a text form of them for stores that send text.

use std::fmt;
use std::str::FromStr;

use fairlock_core::backend::{RequestId, Wake};
use fairlock_core::{FencingToken, LockName, OwnerId};

use crate::bytes::DecodeError;

/// A message to the client of an owner. Its `Display` is one word a field, of ASCII alone, and `parse` reads that.
///
/// ```
/// # use fairlock_core::{FencingToken, LockName, OwnerId};
/// use fairlock_rules::{WakeUp, WakeUpKind};
///
/// let (lock, owner) = (LockName::new("a lock")?, OwnerId::new("c:1"));
/// let text = WakeUp { lock, owner, kind: WakeUpKind::Taken { token: FencingToken::new(34) } }.to_string();
/// assert_eq!(text, "taken 61206c6f636b 633a31 34");
/// let wake_up: WakeUp = text.parse()?;
/// assert_eq!((wake_up.lock.as_str(), wake_up.owner.client()), ("a lock", "c"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WakeUp {
    /// The lock that the message is about.
    pub lock: LockName,
    /// The owner that the message is for, at the [client](OwnerId::client) of the owner.
    pub owner: OwnerId,
    /// What the message says.
    pub kind: WakeUpKind,
}

/// What a message says, see [`Wake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUpKind {
    /// The owner has the lock.
    Granted {
        /// The request that was granted.
        request: RequestId,
        /// Its fencing token.
        token: FencingToken,
    },
    /// The owner has to look.
    Recheck,
    /// Any one waiter of the client has to look.
    RecheckAny,
    /// The owner's hold was taken away.
    Taken {
        /// The token of the hold.
        token: FencingToken,
    },
}

impl WakeUp {
    /// As a sink takes it.
    pub fn as_wake(&self) -> Wake<'_> {
        let (lock, owner) = (self.lock.as_str(), self.owner.as_str());
        match self.kind {
            WakeUpKind::Granted { request, token } => Wake::Granted { lock, owner, request, token },
            WakeUpKind::Recheck => Wake::Recheck { lock, owner: Some(owner) },
            WakeUpKind::RecheckAny => Wake::Recheck { lock, owner: None },
            WakeUpKind::Taken { token } => Wake::Taken { lock, owner, token },
        }
    }
}

impl fmt::Display for WakeUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.kind {
            WakeUpKind::Granted { .. } => "granted",
            WakeUpKind::Recheck => "recheck",
            WakeUpKind::RecheckAny => "recheck-any",
            WakeUpKind::Taken { .. } => "taken",
        };
        write!(f, "{word} {} {}", Hex(self.lock.as_str()), Hex(self.owner.as_str()))?;
        match self.kind {
            WakeUpKind::Granted { request, token } => write!(f, " {} {token}", request.get()),
            WakeUpKind::Taken { token } => write!(f, " {token}"),
            WakeUpKind::Recheck | WakeUpKind::RecheckAny => Ok(()),
        }
    }
}

impl FromStr for WakeUp {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<WakeUp, DecodeError> {
        parse(text).ok_or(DecodeError::WakeUp)
    }
}

fn parse(text: &str) -> Option<WakeUp> {
    let mut words = text.split(' ');
    let word = words.next()?;
    let lock = LockName::new(&from_hex(words.next()?)?).ok()?;
    let owner = OwnerId::new(&from_hex(words.next()?)?);
    let mut number = || words.next()?.parse().ok();
    let kind = match word {
        "granted" => {
            WakeUpKind::Granted { request: RequestId::new(number()?), token: FencingToken::new(number()?) }
        }
        "recheck" => WakeUpKind::Recheck,
        "recheck-any" => WakeUpKind::RecheckAny,
        "taken" => WakeUpKind::Taken { token: FencingToken::new(number()?) },
        _ => return None,
    };
    words.next().is_none().then_some(WakeUp { lock, owner, kind })
}

/// A text as one word: names may contain anything.
struct Hex<'a>(&'a str);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn from_hex(word: &str) -> Option<String> {
    let byte = |at| word.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let bytes: Option<Vec<u8>> = (0..word.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_read_as_it_was_written() {
        let (request, token) = (RequestId::new(u64::MAX), FencingToken::new(7));
        for kind in [
            WakeUpKind::Granted { request, token },
            WakeUpKind::Recheck,
            WakeUpKind::RecheckAny,
            WakeUpKind::Taken { token },
        ] {
            let (lock, owner) = (LockName::new("é\n \0").unwrap(), OwnerId::new("c:1"));
            let wake_up = WakeUp { lock, owner, kind };
            let text = wake_up.to_string();
            assert_eq!(text.parse().as_ref(), Ok(&wake_up));
            for broken in [format!("{text} 1"), text.replacen('a', "ä", 1), text[..text.len() - 1].into()] {
                let read = broken.parse::<WakeUp>();
                assert!(read.is_err() || read.is_ok_and(|read| read.kind != kind), "{broken}");
            }
        }
        assert_eq!("".parse::<WakeUp>(), Err(DecodeError::WakeUp));
    }
}
