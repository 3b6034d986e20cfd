//! The messages on a client's own channel, and the wake-ups that they mean.

use fairlock_core::FencingToken;
use fairlock_core::backend::{RequestId, Wake, WakeSink};

/// Reads a message: a word, the number of an owner of this client (or a whole member), and what follows. The name of the lock comes
/// last, since it may contain any character. None for a word that is not known.
///
/// `confirms`: a deposed master may have sent the message. So a grant is not believed, and the waiter asks the master of now.
pub(super) fn wake(payload: &str, client: &str, sink: &dyn WakeSink, confirms: bool) -> Option<()> {
    let (word, rest) = payload.split_once(' ')?;
    let (who, rest) = rest.split_once(' ')?;
    let token_and_lock = || {
        let (token, lock) = rest.split_once(' ')?;
        Some((FencingToken::new(token.parse().ok()?), lock))
    };
    match word {
        "look" => sink.wake(Wake::Recheck { lock: rest, owner: Some(&format!("{client}:{who}")) }),
        "taken" => {
            let (token, lock) = token_and_lock()?;
            sink.wake(Wake::Taken { lock, owner: &format!("{client}:{who}"), token });
        }
        "granted" => {
            let (owner, request) = who.rsplit_once(':')?;
            let request = RequestId::new(u64::from_str_radix(request, 16).ok()?);
            let (token, lock) = token_and_lock()?;
            sink.wake(match confirms {
                true => Wake::Recheck { lock, owner: Some(owner) },
                false => Wake::Granted { lock, owner, request, token },
            });
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake_ups::recorded::RecordedWakeUps;
    use proptest::prelude::*;

    fn woken(payload: &str, confirms: bool) -> Vec<String> {
        let told = RecordedWakeUps::default();
        let is_known = wake(payload, "u", &told, confirms).is_some();
        let told = told.0.into_inner();
        assert_eq!(is_known, told.len() == 1, "{payload}");
        told
    }

    #[test]
    fn known_words_are_read_and_unknown_ones_ignored() {
        let (lock, owner, token) = ("a b\n", "u:7", FencingToken::new(12));
        let taken = Wake::Taken { lock, owner, token };
        assert_eq!(woken("taken 7 12 a b\n", false), [format!("{taken:?}")]);
        let recheck = Wake::Recheck { lock, owner: Some(owner) };
        assert_eq!(woken("look 7 a b\n", false), [format!("{recheck:?}")]);
        let granted = Wake::Granted { lock, owner, request: RequestId::new(10), token };
        assert_eq!(woken("granted u:7:000000000000000a 12 a b\n", false), [format!("{granted:?}")]);
        for payload in ["", "0", "nudge", "taken 7 x name", "later 7 x", "granted u:7:x 12 a", "v2 look 7 x"]
        {
            assert!(woken(payload, false).is_empty(), "{payload}");
        }
    }

    #[test]
    fn a_grant_that_is_to_be_confirmed_makes_the_waiter_ask() {
        let recheck = [format!("{:?}", Wake::Recheck { lock: "x", owner: Some("u:7") })];
        assert_eq!(woken("look 7 x", true), recheck);
        assert_eq!(woken("granted u:7:1f 12 x", true), recheck);
        let taken = Wake::Taken { lock: "x", owner: "u:7", token: FencingToken::new(12) };
        assert_eq!(woken("taken 7 12 x", true), [format!("{taken:?}")]);
    }

    proptest! {
        /// What is written is read, however the lock is named, and any other text is a message or none.
        #[test]
        fn damaged_messages_are_others_or_none(
            number in any::<u64>(),
            token in any::<u64>(),
            name in "\\PC{0,9}",
            at in any::<proptest::sample::Index>(),
            other in "[ :0-9a-z\\PC]{0,2}",
        ) {
            let (owner, token, lock) = (format!("u:{number}"), FencingToken::new(token), &name);
            let granted = Wake::Granted { lock, owner: &owner, request: RequestId::new(number), token };
            let texts = [
                (format!("granted {owner}:{number:016x} {token} {name}"), granted),
                (format!("taken {number} {token} {name}"), Wake::Taken { lock, owner: &owner, token }),
                (format!("look {number} {name}"), Wake::Recheck { lock, owner: Some(&owner) }),
            ];
            for (text, meant) in texts {
                prop_assert_eq!(woken(&text, false), [format!("{meant:?}")]);
                let mut characters: Vec<char> = text.chars().collect();
                let at = at.index(characters.len());
                characters.splice(at..=at, other.chars());
                woken(&characters.into_iter().collect::<String>(), false);
            }
        }
    }
}
