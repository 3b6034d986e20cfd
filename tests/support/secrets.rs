//! No password is printed: each password of a test has one of the words here, and no text of ours may have one of them.
//!
//! Lines of the log are looked through in each process with a server that has passwords, errors and outputs of commands where tests
//! look at them.

use std::sync::{Mutex, PoisonError};

/// Each test's password has one of these.
const WORDS: [&str; 2] = ["canary", "kanarie"];

/// Lines of the log with a password.
static LEAKS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Panics if a password would not be noticed.
#[track_caller]
pub(crate) fn assert_noticed(password: &str) {
    assert!(
        WORDS.iter().any(|word| password.contains(word)),
        "a test's password has the word {}: {password}",
        WORDS[0]
    );
}

fn has_one(text: &str) -> bool {
    WORDS.iter().any(|word| text.contains(word))
}

/// Panics if the text has a password.
#[track_caller]
pub fn assert_no_secret(text: &str) {
    assert!(!has_one(text), "a password is printed: {text}");
}

/// Keeps a line that has a password: a logger must not panic.
pub(crate) fn look_through(line: &str) {
    if has_one(line) {
        LEAKS.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    }
}

/// Panics if a line of the log had a password.
pub fn assert_none_was_logged() {
    let leaks = std::mem::take(&mut *LEAKS.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(leaks.is_empty(), "passwords in the log: {leaks:#?}");
}
