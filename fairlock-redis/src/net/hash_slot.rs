//! The hash slot in which a cluster keeps a key.

use std::collections::HashMap;
use std::sync::LazyLock;

use crc16::{State, XMODEM};

/// The number of hash slots.
pub(crate) const SLOTS: u16 = 16384;

/// Why a name has no slot.
pub(crate) const NO_SLOT: &str = "because of its braces";

/// The slot of all keys of this name: each key is a prefix and the name, in braces if the name has no `{`. None if the keys have
/// different slots.
pub(crate) fn of_name(name: &str) -> Option<u16> {
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

/// A number whose digits are in this slot. A key with these in braces is there as well.
pub(crate) fn tag(slot: u16) -> u32 {
    /// The smallest for each slot, found when the first one is needed.
    static TAGS: LazyLock<HashMap<u16, u32>> = LazyLock::new(|| {
        let (mut tags, mut number) = (HashMap::new(), 0);
        while tags.len() < usize::from(SLOTS) {
            tags.entry(of(&u32::to_string(&number))).or_insert(number);
            number += 1;
        }
        tags
    });
    TAGS[&(slot % SLOTS)]
}

fn of(hashed: &str) -> u16 {
    State::<XMODEM>::calculate(hashed.as_bytes()) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_of_a_name_have_its_slot_or_it_has_none() {
        // As CLUSTER KEYSLOT says.
        assert_eq!(["123456789", "a{foo}b", "{foo}{bar}"].map(of_name), [12739, 12182, 12182].map(Some));
        assert_eq!(["a{}", "a{b", "a}", "a}{b}"].map(of_name), [None, None, None, Some(of("b"))]);
    }

    #[test]
    fn each_slot_has_a_short_tag() {
        for slot in 0..SLOTS {
            let tag = tag(slot).to_string();
            assert!(of(&tag) == slot && tag.len() <= 6, "{slot}: {tag}");
        }
    }
}
