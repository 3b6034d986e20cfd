//! Labels; and names on a terminal: control characters that other programs wrote must not reach it.

use crate::exit::Failure;

/// The host and process that a label names: `host:pid`, or `label (host:pid)`.
pub(crate) fn host_and_process(label: &str) -> Option<(&str, u32)> {
    let process = match label.strip_suffix(')') {
        Some(rest) => rest.rsplit_once('(')?.1,
        None => label,
    };
    let (host, process) = process.rsplit_once(':')?;
    Some((host, process.parse().ok()?))
}

/// The label with host and process, which stay visible for operators that look for the process.
pub(crate) fn with_process(label: &str) -> String {
    let host = nix::unistd::gethostname();
    let host = host.map_or_else(|_| "?".to_owned(), |host| host.to_string_lossy().into_owned());
    format!("{label} ({host}:{})", std::process::id())
}

/// Whether the text is this label, or one of the two parts of `label (host:pid)`.
pub(crate) fn goes_by(label: &str, text: &str) -> bool {
    let parts = label.strip_suffix(')').and_then(|label| label.rsplit_once(" ("));
    label == text || parts.is_some_and(|(given, process)| given == text || process == text)
}

/// The only match for this text; each match is described in a line.
///
/// # Errors
/// If there are several, with the lines of the first ten.
pub(crate) fn the_only<T>(
    mut found: Vec<T>,
    what: &str,
    text: &str,
    line: impl Fn(&T) -> String,
) -> Result<Option<T>, Failure> {
    if found.len() <= 1 {
        return Ok(found.pop());
    }
    let mut message = format!("{} {what} go by {}; name one by its owner:", found.len(), escaped(text));
    found.iter().take(10).for_each(|one| message.push_str(&format!("\n{}", line(one))));
    Err(Failure::ours(message))
}

/// The text, or as many of its first words as there is room for. Only a first word that is longer than that is cut.
pub(crate) fn fit_words(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let head: String = text.chars().take(columns.saturating_sub(1)).collect();
    head.rsplit_once(' ').map_or_else(|| format!("{head}…"), |(words, _)| format!("{words} …"))
}

/// The text, or its beginning and its end: that of a name often tells more than its middle.
pub(crate) fn fit_name(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    if length <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let (head, tail) = (room / 2, room - room / 2);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

/// The text with its control characters escaped.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Leaves only the scheme of each server address, which may contain a password.
pub(crate) fn without_addresses(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(char::is_whitespace).unwrap_or(part.len());
        let quote = if part[..end].ends_with('\'') { "'" } else { "" };
        shown.push_str(&format!("://…{quote}{}", &part[end..]));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_process_are_read_from_labels_that_name_them() {
        assert_eq!(host_and_process("h:12"), Some(("h", 12)));
        assert_eq!(host_and_process("nightly (h.x:12)"), Some(("h.x", 12)));
        assert_eq!(host_and_process("orders-worker-3"), None);
        assert_eq!(host_and_process("a:b"), None);
    }

    #[test]
    fn a_label_goes_by_its_parts() {
        for (label, text, is) in [
            ("nightly (h:12)", "nightly (h:12)", true),
            ("nightly (h:12)", "nightly", true),
            ("nightly (h:12)", "h:12", true),
            ("nightly (h:12)", "night", false),
            ("h:12", "h:12", true),
            ("h:12", "h", false),
            ("", "", true),
        ] {
            assert_eq!(goes_by(label, text), is, "{label} by {text}");
        }
    }

    #[test]
    fn long_text_is_cut_between_words_and_a_long_name_in_its_middle() {
        for (columns, text) in [
            (12, "orders: 2 é!"),
            (11, "orders: 2 …"),
            (10, "orders: …"),
            (7, "orders…"),
            (3, "or…"),
            (0, "…"),
        ] {
            assert_eq!(fit_words("orders: 2 é!", columns), text);
        }
        for (columns, text) in [(8, "abcdéfgh"), (7, "abc…fgh"), (4, "a…gh"), (1, "…")] {
            assert_eq!(fit_name("abcdéfgh", columns), text);
        }
    }

    #[test]
    fn addresses_are_not_repeated() {
        let text = "unexpected 'redis://u:it's@h' found\n\nunix:///a?pass=b redis://c";
        assert_eq!(without_addresses(text), "unexpected 'redis://…' found\n\nunix://… redis://…");
        assert_eq!(without_addresses("no address"), "no address");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("a\u{1b}[2Jé"), "a\\u{1b}[2Jé");
    }
}
