//! The messages on a client's own channel, and the wake-ups they stand for.

use fairlock_core::FencingToken;
use fairlock_core::backend::{RequestId, Wake, WakeSink};

/// What the message of a grant is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grants {
    Believed,
    /// A master that was deposed may have sent it: the waiter asks the one that is named now.
    ToBeConfirmed,
}

/// A message: a word, the number of an owner of this client (or a whole member), and what follows. The name of the lock comes last,
/// since it may contain any character.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientMessage<'a> {
    Recheck { number: &'a str, name: &'a str },
    Taken { number: &'a str, token: FencingToken, name: &'a str },
    Granted { owner: &'a str, request: RequestId, token: FencingToken, name: &'a str },
}

impl<'a> ClientMessage<'a> {
    pub(super) fn parse(payload: &'a str) -> Option<ClientMessage<'a>> {
        let (word, rest) = payload.split_once(' ')?;
        let (number, rest) = rest.split_once(' ')?;
        match word {
            "look" => Some(ClientMessage::Recheck { number, name: rest }),
            "taken" => {
                let (token, name) = rest.split_once(' ')?;
                Some(ClientMessage::Taken { number, token: FencingToken::new(token.parse().ok()?), name })
            }
            "granted" => {
                let (owner, request) = number.rsplit_once(':')?;
                let request = RequestId::new(u64::from_str_radix(request, 16).ok()?);
                let (token, name) = rest.split_once(' ')?;
                let token = FencingToken::new(token.parse().ok()?);
                Some(ClientMessage::Granted { owner, request, token, name })
            }
            _ => None,
        }
    }

    pub(super) fn wake(self, client: &str, sink: &dyn WakeSink, grants: Grants) {
        let owner = |number: &str| format!("{client}:{number}");
        match self {
            ClientMessage::Taken { number, token, name } => {
                sink.wake(Wake::Taken { lock: name, owner: &owner(number), token });
            }
            ClientMessage::Granted { owner, request, token, name } if grants == Grants::Believed => {
                sink.wake(Wake::Granted { lock: name, owner, request, token });
            }
            ClientMessage::Granted { owner, name, .. } => {
                sink.wake(Wake::Recheck { lock: name, owner: Some(owner) });
            }
            ClientMessage::Recheck { number, name } => {
                sink.wake(Wake::Recheck { lock: name, owner: Some(&owner(number)) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake_ups::told::Told;

    #[test]
    fn known_words_are_read_and_unknown_ones_ignored() {
        let taken = ClientMessage::Taken { number: "7", token: FencingToken::new(12), name: "a b\n" };
        assert_eq!(ClientMessage::parse("taken 7 12 a b\n"), Some(taken));
        assert_eq!(ClientMessage::parse("look 7 x"), Some(ClientMessage::Recheck { number: "7", name: "x" }));
        let granted = ClientMessage::Granted {
            owner: "u:7",
            request: RequestId::new(10),
            token: FencingToken::new(12),
            name: "a b",
        };
        assert_eq!(ClientMessage::parse("granted u:7:000000000000000a 12 a b"), Some(granted));
        for payload in ["", "0", "nudge", "taken 7 x name", "later 7 x", "granted u:7:x 12 a"] {
            assert_eq!(ClientMessage::parse(payload), None, "{payload}");
        }
    }

    #[test]
    fn a_grant_that_is_to_be_confirmed_makes_the_waiter_ask() {
        let wake = |payload, grants| {
            let told = Told::default();
            ClientMessage::parse(payload).unwrap().wake("u", &told, grants);
            told.0.into_inner()
        };
        let recheck = [format!("{:?}", Wake::Recheck { lock: "x", owner: Some("u:7") })];
        let (lock, owner, token) = ("x", "u:7", FencingToken::new(12));
        let granted = Wake::Granted { lock, owner, request: RequestId::new(0x1f), token };
        assert_eq!(wake("look 7 x", Grants::Believed), recheck);
        assert_eq!(wake("granted u:7:1f 12 x", Grants::Believed), [format!("{granted:?}")]);
        assert_eq!(wake("granted u:7:1f 12 x", Grants::ToBeConfirmed), recheck);
        let taken = Wake::Taken { lock, owner, token };
        assert_eq!(wake("taken 7 12 x", Grants::ToBeConfirmed), [format!("{taken:?}")]);
    }
}
