//! Any text as one word without spaces, percent-encoded as in URLs.

/// Encodes every byte except letters, digits and `-`, `_`, `.`, `~`, `/`.
pub fn encode(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            word.push(char::from(byte));
        } else {
            word.push_str(&format!("%{byte:02X}"));
        }
    }
    word
}

/// Undoes [`encode`]; `None` if `encode` did not make the word.
pub fn decode(word: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let (hex, after) = after.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_survives_encoding_and_decoding() {
        for text in ["", "orders", "a b\n\0\"%20{x}", "Schlüssel/€", ":user@host?p=1"] {
            let word = encode(text);
            assert!(word.bytes().all(|b| b.is_ascii_graphic()), "{word}");
            assert_eq!(decode(&word).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_truncated_word_is_refused() {
        assert_eq!(decode("a%2"), None);
        assert_eq!(decode("%zz"), None);
        assert_eq!(decode("%FF"), None);
    }
}
