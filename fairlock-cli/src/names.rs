//! Labels; and names on a terminal: control characters that other programs wrote must not reach it.

use unicode_width::UnicodeWidthChar;

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
    if self::columns(text) <= columns {
        return text.to_owned();
    }
    let head = fitting(text.chars(), columns.saturating_sub(1));
    head.rsplit_once(' ').map_or_else(|| format!("{head}…"), |(words, _)| format!("{words} …"))
}

/// The text, or its beginning and its end: that of a name often tells more than its middle.
pub(crate) fn fit_name(text: &str, columns: usize) -> String {
    if self::columns(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let tail = fitting(text.chars().rev(), room - room / 2);
    fitting(text.chars(), room / 2) + "…" + &tail.chars().rev().collect::<String>()
}

/// How many columns of a terminal the text takes: some characters take two.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// The first characters, as many as there is room for.
pub(crate) fn fitting(text: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    text.take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= columns
    })
    .collect()
}

/// The text with its control characters escaped, and the characters without a width: some change the direction of what follows.
pub(crate) fn escaped(text: &str) -> String {
    let is_plain = |c: char| c.width().is_some_and(|width| width > 0);
    text.chars().flat_map(|c| if is_plain(c) { vec![c] } else { c.escape_default().collect() }).collect()
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
        for (columns, text) in [(10, "夜間の仕事"), (9, "夜間…仕事"), (8, "夜…仕事"), (3, "…")]
        {
            assert_eq!(fit_name("夜間の仕事", columns), text);
        }
    }

    #[test]
    fn addresses_are_not_repeated() {
        let text = "unexpected 'redis://u:it's@h' found\n\nunix:///a?pass=b redis://c";
        assert_eq!(without_addresses(text), "unexpected 'redis://…' found\n\nunix://… redis://…");
        assert_eq!(without_addresses("no address"), "no address");
    }

    #[test]
    fn what_would_disturb_a_terminal_is_escaped() {
        assert_eq!(escaped("a\u{1b}[2Jé\u{202e}b"), "a\\u{1b}[2Jé\\u{202e}b");
    }
}
