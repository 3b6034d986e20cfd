//! The text that travels as a request's label: the label, and behind the label the `traceparent` of the span that asks, if the program
//! gives one. Stores keep the text and hand it on; only this file takes it apart.

use super::{Holder, Waiter};

/// Stands between the label and the traceparent. A client's label has no control characters.
const SEPARATOR: char = '\u{1f}';

/// In bytes: version, trace, span, flags.
const TRACEPARENT: usize = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".len();

/// The text that travels: this label, with this [`traceparent`](https://www.w3.org/TR/trace-context/#traceparent-header). `None` unless the
/// traceparent has the form of the W3C, in 55 bytes.
///
/// ```
/// # use fairlock_core::backend::label_with_traceparent;
/// let text = label_with_traceparent("worker 3", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
/// assert!(text.is_some_and(|text| text.starts_with("worker 3\u{1f}00-")));
/// assert_eq!(label_with_traceparent("worker 3", "b3: 0"), None);
/// ```
pub fn label_with_traceparent(label: &str, traceparent: &str) -> Option<String> {
    is_traceparent(traceparent).then(|| format!("{label}{SEPARATOR}{traceparent}"))
}

impl Holder {
    /// Sets the label and the traceparent from the text that came with the request, which may be empty.
    pub fn set_label(&mut self, text: &str) {
        (self.label, self.traceparent) = parts_of(text);
    }
}

impl Waiter {
    /// Sets the label and the traceparent from the text that came with the request, which may be empty.
    pub fn set_label(&mut self, text: &str) {
        (self.label, self.traceparent) = parts_of(text);
    }
}

fn parts_of(text: &str) -> (Option<String>, Option<String>) {
    let behind = text.rsplit_once(SEPARATOR).filter(|(_, behind)| is_traceparent(behind));
    let label = behind.map_or(text, |(label, _)| label);
    ((!label.is_empty()).then(|| label.to_owned()), behind.map(|(_, traceparent)| traceparent.to_owned()))
}

fn is_traceparent(text: &str) -> bool {
    if text.len() != TRACEPARENT {
        return false;
    }
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &&str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_some = |part: &str| part.bytes().any(|byte| byte != b'0');
    parts.iter().map(|part| part.len()).eq([2, 32, 16, 2])
        && parts.iter().all(is_hex)
        && parts[0] != "ff"
        && is_some(parts[1])
        && is_some(parts[2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OwnerId;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_label_and_a_traceparent_come_back_apart() {
        let mut waiter = Waiter::new(OwnerId::new("a:1"));
        let mut read = |text: &str| {
            waiter.set_label(text);
            (waiter.label.clone().unwrap_or_default(), waiter.traceparent.clone())
        };
        for label in ["", "worker 3", "Büro 2 (h:1)"] {
            let both = label_with_traceparent(label, GOOD).unwrap();
            assert_eq!((read(label), read(&both)), ((label.into(), None), (label.into(), Some(GOOD.into()))));
        }
        // Another program's labels.
        for odd in ["a\u{1f}b", "\u{1f}", &format!("a {GOOD}"), &format!("a\u{1f}{GOOD}\u{1f}")] {
            assert_eq!(read(odd), (odd.to_owned(), None));
        }
    }

    #[test]
    fn only_what_has_the_form_of_the_w3c_is_sent() {
        let changed = |from: &str, to: &str| GOOD.replacen(from, to, 1);
        for good in [GOOD.to_owned(), changed("00-", "cc-"), changed("-01", "-00")] {
            assert!(label_with_traceparent("", &good).is_some(), "{good}");
        }
        for bad in [
            String::new(),
            changed("00-", "ff-"),
            changed("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            changed("00f067aa0ba902b7", &"0".repeat(16)),
            changed("4bf", "4BF"),
            changed("4bf", "4-f"),
            changed("4bf", "é4"),
            changed("-01", "-1"),
            format!("{GOOD}0"),
            format!("{GOOD}-what-a-later-version-adds"),
            "x".repeat(1 << 20),
        ] {
            assert_eq!(label_with_traceparent("", &bad), None, "{bad:.60}");
        }
    }
}
