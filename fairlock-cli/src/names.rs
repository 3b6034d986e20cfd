//! Labels and names on a terminal: control characters that other programs wrote must not reach it.

/// The host and process that a label names: `host:pid`, or `label (host:pid)`.
pub(crate) fn host_and_process(label: &str) -> Option<(&str, u32)> {
    let process = match label.strip_suffix(')') {
        Some(rest) => rest.rsplit_once('(')?.1,
        None => label,
    };
    let (host, process) = process.rsplit_once(':')?;
    Some((host, process.parse().ok()?))
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
