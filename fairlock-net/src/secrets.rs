//! What an error must not show: the password of an address, where a server repeats it in its own words.

use std::cmp::Reverse;
use std::sync::Arc;

/// In place of a secret.
const HIDDEN: &str = "***";

/// A password, as it is and as URLs have it. By default there is none.
#[derive(Clone, Default)]
pub struct Secrets(Arc<[String]>);

impl Secrets {
    /// All spellings of this password.
    pub fn of(password: &str) -> Secrets {
        let mut spellings = vec![password.to_owned()];
        for plain in ["-._~", "-._~!$&'()*+,;="] {
            // The hexadecimal digits may be small.
            spellings.push(encoded(password, plain, |byte| format!("%{byte:02X}")));
            spellings.push(encoded(password, plain, |byte| format!("%{byte:02x}")));
        }
        spellings.retain(|spelling| !spelling.is_empty());
        // The longest first: one may begin with another.
        spellings.sort_by_key(|spelling| Reverse(spelling.len()));
        spellings.dedup();
        Secrets(spellings.into())
    }

    /// The text without them.
    pub fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
    }
}

/// Percent-encoded, except letters, digits and these.
fn encoded(text: &str, plain: &str, code: impl Fn(u8) -> String) -> String {
    let one = |byte: u8| match char::from(byte) {
        c if c.is_ascii_alphanumeric() || plain.contains(c) => c.to_string(),
        _ => code(byte),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_of_a_password_is_hidden() {
        let secrets = Secrets::of("p/Q@ä'");
        for spelling in ["p/Q@ä'", "p%2FQ%40%C3%A4%27", "p%2fQ%40%c3%a4%27", "p%2FQ%40%C3%A4'"] {
            assert_eq!(secrets.hide(&format!("bad {spelling}, bad")), "bad ***, bad", "{spelling}");
        }
        assert_eq!(Secrets::of("").hide("as it is"), "as it is");
        assert_eq!(Secrets::default().hide("as it is"), "as it is");
    }
}
