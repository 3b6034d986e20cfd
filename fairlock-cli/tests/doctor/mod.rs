//! `doctor` against good servers, and against servers with a fault.

#[cfg(feature = "night")]
mod groups;
mod postgres;
mod redis;

use serde_json::Value;

use crate::support::output;

/// The exit code, and the findings: topic, verdict, text.
fn look(url: &str, arguments: &[&str]) -> (Option<i32>, Vec<[String; 3]>) {
    let said = output(url, &[&["doctor", "--json"], arguments].concat());
    let findings: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
    let spoken = said.out.replace("fairlock.micros()", "a function of the database");
    for of_rust in ["::", "()", "`durable"] {
        assert!(!spoken.contains(of_rust), "{of_rust}: {spoken}");
    }
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let all = findings.as_array().unwrap().iter();
    (said.status.code(), all.map(|f| [word(f, "topic"), word(f, "verdict"), word(f, "text")]).collect())
}

/// Looks, and compares the exit code and the topics that are unsafe.
#[track_caller]
fn judge(url: &str, arguments: &[&str], code: i32, unsafe_topics: &[&str]) -> Vec<[String; 3]> {
    let (gave, findings) = look(url, arguments);
    assert_eq!((gave, of(&findings, "unsafe")), (Some(code), unsafe_topics.to_vec()), "{findings:#?}");
    findings
}

/// Nothing is unsafe or unknown.
#[track_caller]
fn approve(url: &str) -> Vec<[String; 3]> {
    let findings = judge(url, &[], 0, &[]);
    assert_eq!(of(&findings, "unknown"), [""; 0], "{findings:#?}");
    findings
}

fn of<'a>(findings: &'a [[String; 3]], verdict: &str) -> Vec<&'a str> {
    findings.iter().filter(|finding| finding[1] == verdict).map(|finding| finding[0].as_str()).collect()
}

/// `verdict` is empty where it depends on how quick the machine is.
#[track_caller]
fn assert_found(findings: &[[String; 3]], topic: &str, verdict: &str, words: &str) {
    let is_found = |[of, word, text]: &[String; 3]| {
        of == topic && (verdict.is_empty() || word == verdict) && text.contains(words)
    };
    assert!(findings.iter().any(is_found), "{topic} {verdict} {words}: {findings:#?}");
}
