//! Names with and without a hash slot, and the tags of the slots.

use super::*;

#[test]
fn all_keys_of_a_name_have_its_slot_or_it_has_none() {
    // As CLUSTER KEYSLOT says.
    assert_eq!(["123456789", "a{foo}b", "{foo}{bar}"].map(slot_of), [12739, 12182, 12182].map(Some));
    assert_eq!(["a{}", "a{b", "a}", "a}{b}"].map(slot_of), [None, None, None, Some(slot_of_hashed("b"))]);
}

#[test]
fn each_slot_has_a_short_tag() {
    for slot in 0..SLOTS {
        let tag = tag_of_slot(slot).to_string();
        assert!(slot_of_hashed(&tag) == slot && tag.len() <= 6, "{slot}: {tag}");
    }
}
