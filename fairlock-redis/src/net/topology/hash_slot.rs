//! The hash slot in which a cluster keeps a lock.

use crc16::{State, XMODEM};

/// The number of hash slots.
pub(crate) const SLOTS: u16 = 16384;

/// Why a name has no slot.
pub(super) const NO_SLOT: &str =
    "of a name with braces there must be something between the first { and the next }, and no } without a {";

/// The slot of all keys of a lock (`keys.rs` has the list): each is the name behind a prefix, in braces if it has no `{`
/// itself. None if that puts them into different slots.
pub(crate) fn of_lock(name: &str) -> Option<u16> {
    match name.split_once('{') {
        Some((_, rest)) => match rest.split_once('}') {
            Some((tag, _)) if !tag.is_empty() => Some(of(tag)),
            // The server hashes the whole key, and the prefixes differ.
            _ => None,
        },
        // In braces, the hashed part would end at the name's own `}`.
        None if name.contains('}') => None,
        None => Some(of(name)),
    }
}

fn of(hashed: &str) -> u16 {
    State::<XMODEM>::calculate(hashed.as_bytes()) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keys;
    use crate::net::test_server::TestServer;
    use fairlock_core::backend::LockId;
    use fairlock_core::{LockKind, LockName};
    use redis::Value;

    #[test]
    fn the_server_agrees_on_the_slots_and_on_the_names_that_have_none() {
        let server = TestServer::start_with(&["--cluster-enabled", "yes"]);
        let slot = |key: &str| match server.command(&["CLUSTER", "KEYSLOT", key]) {
            Value::Int(slot) => u16::try_from(slot).expect("a slot"),
            other => panic!("{other:?}"),
        };
        for name in [
            "orders", "a b", "müller", "{a}", "a{b}c", "{a}{b}", "{{a}}", "{a", "a}", "}", "{", "{}", "{}a",
            "a{}b", "}{", "}{a}", "a{}{b}", "a}b{c}", "{a}}",
        ] {
            let keys =
                Keys::of(&LockId::new(LockName::new(name).expect("a name"), LockKind::Fair)).expect(name);
            let slots = keys.typed().map(|(key, _)| slot(key));
            let same = slots.iter().all(|slot| *slot == slots[0]);
            assert_eq!(of_lock(name), same.then_some(slots[0]), "{name}");
        }
    }
}
