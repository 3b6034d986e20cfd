//! The parts of a URL, and what is wrong with them. A refusal never repeats any of it: a password that was not encoded may stand in any part.

/// Whether a user or password contains a delimiter of URLs as it is: then the `@` stands behind what looks like the host. `rest` is
/// the URL from after its `://`.
pub fn bare_delimiter(rest: &str) -> Option<&'static str> {
    let (at, end) = (rest.find(['/', '?', '#'])?, rest.rfind('@')?);
    match &rest[at..=at] {
        _ if end < at => None,
        "/" => Some("there is a / before the @; in a user or password it is written %2F"),
        "?" => Some("there is a ? before the @; in a user or password it is written %3F"),
        _ => Some("there is a # before the @; in a user or password it is written %23"),
    }
}

/// A part of a URL as it is meant; none if a `%` stands before anything but two hexadecimal digits, or the bytes are no UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).filter(|(code, _)| !code.starts_with('+'))?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_url_is_decoded_or_refused() {
        for (text, meant) in [("", ""), ("a+b", "a+b"), ("%40%2fx%C3%A4", "@/xä")] {
            assert_eq!(percent_decoded(text).as_deref(), Some(meant));
        }
        for wrong in ["%", "%4", "%+4", "%4x", "%ä", "%ff"] {
            assert_eq!(percent_decoded(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_delimiter_that_is_not_encoded_is_found() {
        for (rest, found) in
            [("u:a/b@h:1", "%2F"), ("u:a?b@h", "%3F"), ("u:a#b@h/db", "%23"), ("u:/?#@h", "%2F")]
        {
            assert!(bare_delimiter(rest).is_some_and(|what| what.ends_with(found)), "{rest}");
        }
        for rest in ["h", "u:p@h:1/db?a=b", "u:a%2Fb@h/", "h/db", "u@h"] {
            assert_eq!(bare_delimiter(rest), None, "{rest}");
        }
    }
}
