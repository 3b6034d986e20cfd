//! `fairlock doctor`: whether locks are safe on the server, and what to change if not.

use std::io::{Write, stdout};

use fairlock::{Finding, LockName, Verdict};
use serde_json::{Value, json};

use crate::args::{Doctor, Server};
use crate::ask::confirm;
use crate::exit::{Exit, Failure};
use crate::names::escaped;
use crate::server;

pub(crate) fn doctor(server: &Server, options: &Doctor) -> Result<Exit, Failure> {
    let lock = options.name.as_deref().map(LockName::new).transpose()?;
    let backend = server::backend(server).map_err(|mut failure| {
        if failure.message.contains("no majority") {
            failure.message.push_str("; without --durable it says what each sentinel says");
        }
        failure
    })?;
    if options.begin_life {
        let question = "End the grace? Two clients can hold a lock then, if one of them held it before the server forgot it.";
        if !confirm(question, options.yes)? {
            return Ok(Exit::No);
        }
        backend.begin_life()?;
    }
    let findings = backend.doctor(lock.as_ref())?;
    let text = if options.json {
        let all: Vec<Value> = findings.iter().map(to_json).collect();
        format!("{}\n", Value::from(all))
    } else {
        to_text(&findings)
    };
    let _ = stdout().write_all(text.as_bytes()); // if standard output is closed, the exit code remains
    let unsafe_there = findings.iter().any(|finding| finding.verdict == Verdict::Unsafe);
    Ok(if unsafe_there { Exit::No } else { Exit::Done })
}

fn to_text(findings: &[Finding]) -> String {
    let (mut text, mut server) = (String::new(), "");
    for finding in findings {
        if finding.server != server {
            server = &finding.server;
            text.push_str(&format!("{server}\n"));
        }
        let (word, what) = (word(finding.verdict), escaped(&finding.text));
        text.push_str(&format!("  {word:<7}  {:<11}  {what}\n", finding.topic));
    }
    text
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Note => "note",
        Verdict::Unsafe => "UNSAFE",
        Verdict::Unknown => "unknown",
    }
}

fn to_json(finding: &Finding) -> Value {
    let verdict = word(finding.verdict).to_lowercase();
    json!({ "server": finding.server, "topic": finding.topic, "verdict": verdict, "text": finding.text })
}
