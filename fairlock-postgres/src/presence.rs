//! The key of a client's presence: the client's listening session holds the advisory lock of this number, and the number is the
//! name of its channel. Two clients with one key would do little harm: messages name their owner.

/// FNV-1a of 64 bits; part of the layout, so it must not change.
pub(crate) fn key_of(client: &str) -> i64 {
    let hash = client.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.cast_signed()
}

/// Where the client listens.
pub(crate) fn channel_of(client: &str) -> String {
    format!("fl_{:016x}", key_of(client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_those_of_all_versions() {
        assert_eq!(key_of("a").cast_unsigned(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(channel_of("a"), "fl_af63dc4c8601ec8c");
    }
}
