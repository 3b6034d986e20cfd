//! `fairlock doctor`: whether locks are safe on the server, and what to change if not.

use std::io::stdout;

use fairlock::admin::{Finding, LockName, Verdict};
use fairlock::settings::RedisBuilder;
use serde_json::{Value, json};

use crate::args::Doctor;
use crate::process::{Exit, Failure, JSON_VERSION, confirm, print, width_of};
use crate::server;
use crate::settings::{Server, with_option};
use crate::words::escaped;

pub(crate) fn doctor(server: &Server, options: &Doctor) -> Result<Exit, Failure> {
    let lock = options.name.as_deref().map(LockName::new).transpose()?;
    let findings = match server::redis(server, server.response_timeout) {
        None if options.begin_life => return Err(Failure::ours("--begin-life is for Redis")),
        None if lock.is_some() => {
            return Err(Failure::ours("NAME is for Redis: elsewhere the rights are the same for all locks"));
        }
        None => match server::postgres(server, server.response_timeout) {
            Some(builder) => builder.doctor().map_err(|error| server::explained(server, error))?,
            None => server::file(server)?.doctor()?,
        },
        Some(builder) => match of_redis(server, builder, options, lock.as_ref())? {
            Some(findings) => findings,
            None => return Ok(Exit::No),
        },
    };
    let text = if options.json {
        let all: Vec<Value> = findings.iter().map(to_json).collect();
        format!("{}\n", Value::from(all))
    } else {
        server::where_it_looks(server) + &to_text(&findings, width_of(stdout()))
    };
    print(&text)?; // if nobody reads it, the exit code remains
    let unsafe_there = findings.iter().any(|finding| finding.verdict == Verdict::Unsafe);
    Ok(if unsafe_there { Exit::No } else { Exit::Done })
}

/// None if it was not confirmed.
fn of_redis(
    server: &Server,
    builder: RedisBuilder,
    options: &Doctor,
    lock: Option<&LockName>,
) -> Result<Option<Vec<Finding>>, Failure> {
    let connected = builder.connect();
    let backend = connected.map_err(|error| {
        let mut failure = server::explained(server, error);
        if failure.message.contains("no majority") {
            failure.message.push_str("; without --durable it says what each sentinel says");
        }
        failure
    })?;
    if options.begin_life {
        let question = "End the grace? Two clients can then hold a lock, if one of them held it before the server forgot it.";
        if !confirm(question, options.yes)? {
            return Ok(None);
        }
        backend.begin_life()?;
    }
    Ok(Some(lock.map_or_else(|| backend.doctor(), |lock| backend.doctor_for(lock))?))
}

/// The columns before the text of a finding.
const MARGIN: usize = 24;

fn to_text(findings: &[Finding], columns: usize) -> String {
    let (mut text, mut server) = (String::new(), "");
    for finding in findings {
        if finding.server != server {
            server = &finding.server;
            text.push_str(&format!("{server}\n"));
        }
        let what = escaped(&with_option(&finding.text, finding.setting));
        text.push_str(&format!("  {:<7}  {:<11}  ", word(finding.verdict), finding.topic));
        text.push_str(&wrapped(&what, columns.saturating_sub(MARGIN).max(20)));
        text.push('\n');
    }
    text
}

/// Lines of whole words behind the margin. A word that is longer than a line is one: it may be a key to copy.
fn wrapped(text: &str, columns: usize) -> String {
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let width = word.chars().count();
        if length > 0 && length + 1 + width > columns {
            lines.push_str(&format!("\n{:MARGIN$}", ""));
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += width;
    }
    lines
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Note => "note",
        Verdict::Unsafe => "UNSAFE",
        _ => "unknown",
    }
}

fn to_json(finding: &Finding) -> Value {
    let verdict = word(finding.verdict).to_lowercase();
    let text = with_option(&finding.text, finding.setting);
    json!({ "version": JSON_VERSION, "server": finding.server, "topic": finding.topic, "verdict": verdict, "text": text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_broken_between_words_and_a_long_word_is_not() {
        let margin = " ".repeat(MARGIN);
        for (text, lines) in [
            ("a lock", vec!["a lock"]),
            ("a lock is lost", vec!["a lock is", "lost"]),
            ("key fairlock_record:{x} is", vec!["key", "fairlock_record:{x}", "is"]),
            ("é é é é é é", vec!["é é é é é", "é"]),
        ] {
            assert_eq!(wrapped(text, 9), lines.join(&format!("\n{margin}")));
        }
    }
}
